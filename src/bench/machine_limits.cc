#include "bench/machine_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/affinity.h"
#include "base/align.h"
#include "base/cpu_count.h"
#include "base/spin.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace nunspark::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int kChains = 12;  // independent sums: more than latency times instructions a cycle anywhere
constexpr int64_t kFmaLoops = 1'000'000;
constexpr int kPeakRuns = 5;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// ---- reading

uint64_t ReadPlain(const uint8_t* begin, int64_t bytes) {
  uint64_t sums[16] = {};
  for (int64_t at = 0; at + 128 <= bytes; at += 128) {
    uint64_t words[16];
    std::memcpy(words, begin + at, sizeof words);
    for (int i = 0; i < 16; ++i) sums[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t ReadAvx2(const uint8_t* begin, int64_t bytes) {
  __m256i sums[8] = {};
  for (int64_t at = 0; at + 256 <= bytes; at += 256) {
    for (int i = 0; i < 8; ++i) {
      const auto* const place = reinterpret_cast<const __m256i*>(begin + at + 32 * i);
      sums[i] = _mm256_add_epi64(sums[i], _mm256_loadu_si256(place));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_add_epi64(sums[0], sums[i]);
  uint64_t words[4];
  std::memcpy(words, &sums[0], sizeof words);
  return words[0] + words[1] + words[2] + words[3];
}
#endif

uint64_t Read(const uint8_t* begin, int64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return ReadAvx2(begin, bytes);
#endif
  return ReadPlain(begin, bytes);
}

// ---- arithmetic: each runs kFmaLoops times kChains instructions and returns the operations of one instruction

using PeakLoop = int (*)();

// Keeps a value in its register, so that the loop around it stays.
#define NUNSPARK_KEEP_VECTOR(x) asm volatile("" : "+v"(x))

#if defined(__x86_64__)
// The multiplier is 1 - 2^-12 and the summand tiny: sums stay ordinary numbers.
__attribute__((target("avx512f"))) int FmaAvx512() {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.99975586f), summand = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, factor, summand);
      NUNSPARK_KEEP_VECTOR(sum);
    }
  }
  return 2 * 16;
}

__attribute__((target("avx2,fma"))) int FmaAvx2() {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.99975586f), summand = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, summand);
      asm volatile("" : "+x"(sum));
    }
  }
  return 2 * 8;
}

__attribute__((target("fma"))) int FmaScalar() {
  float sums[kChains];
  for (float& sum : sums) sum = 1.0f;
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (float& sum : sums) {
      sum = __builtin_fmaf(sum, 0.99975586f, 1e-3f);
      asm volatile("" : "+x"(sum));
    }
  }
  return 2;
}

__attribute__((target("avx512f,avx512vnni"))) int DotAvx512() {
  __m512i sums[kChains] = {};
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
      NUNSPARK_KEEP_VECTOR(sum);
    }
  }
  return 2 * 64;
}

// Without VNNI the products that cannot saturate are those of 16-bit numbers.
__attribute__((target("avx512f,avx512bw"))) int DotAvx512WithoutVnni() {
  __m512i sums[kChains] = {};
  const __m512i b = _mm512_set1_epi16(-5);
  __m512i a = _mm512_set1_epi16(3);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    NUNSPARK_KEEP_VECTOR(a);
    for (__m512i& sum : sums) {
      __m512i product = _mm512_madd_epi16(a, b);
      NUNSPARK_KEEP_VECTOR(product);
      sum = _mm512_add_epi32(sum, product);
      NUNSPARK_KEEP_VECTOR(sum);
    }
  }
  return 2 * 32;
}

__attribute__((target("avx2"))) int DotAvx2() {
  __m256i sums[kChains] = {};
  const __m256i b = _mm256_set1_epi16(-5);
  __m256i a = _mm256_set1_epi16(3);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    asm volatile("" : "+x"(a));
    for (__m256i& sum : sums) {
      __m256i product = _mm256_madd_epi16(a, b);
      asm volatile("" : "+x"(product));
      sum = _mm256_add_epi32(sum, product);
      asm volatile("" : "+x"(sum));
    }
  }
  return 2 * 16;
}

PeakLoop FmaLoop(std::string_view table) {
  if (table.starts_with("avx512") && __builtin_cpu_supports("avx512f")) return FmaAvx512;
  if (table.starts_with("avx2") && __builtin_cpu_supports("avx2")) return FmaAvx2;
  return __builtin_cpu_supports("fma") ? FmaScalar : nullptr;
}

PeakLoop DotLoop(std::string_view table) {
  if ((table == "avx512vnni" || table == "avx512amx") && __builtin_cpu_supports("avx512vnni")) return DotAvx512;
  if (table.starts_with("avx512") && __builtin_cpu_supports("avx512bw")) return DotAvx512WithoutVnni;
  if (table.starts_with("avx") && __builtin_cpu_supports("avx2")) return DotAvx2;
  return nullptr;
}
#elif defined(__aarch64__)
int FmaNeon() {
  float32x4_t sums[kChains];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(1.0f);
  const float32x4_t factor = vdupq_n_f32(0.99975586f), summand = vdupq_n_f32(1e-3f);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (float32x4_t& sum : sums) {
      sum = vfmaq_f32(summand, sum, factor);
      asm volatile("" : "+w"(sum));
    }
  }
  return 2 * 4;
}

int FmaScalar() {
  float sums[kChains];
  for (float& sum : sums) sum = 1.0f;
  for (int64_t i = 0; i < kFmaLoops; ++i) {
    for (float& sum : sums) {
      sum = __builtin_fmaf(sum, 0.99975586f, 1e-3f);
      asm volatile("" : "+w"(sum));
    }
  }
  return 2;
}

PeakLoop FmaLoop(std::string_view table) { return table.starts_with("neon") ? FmaNeon : FmaScalar; }
PeakLoop DotLoop(std::string_view) { return nullptr; }
#else
PeakLoop FmaLoop(std::string_view) { return nullptr; }
PeakLoop DotLoop(std::string_view) { return nullptr; }
#endif

double PeakGops(PeakLoop loop, int threads) {
  if (loop == nullptr) return 0;
  std::vector<double> rates;
  for (int run = 0; run < kPeakRuns; ++run) {
    std::atomic<int> operations{0};
    const double seconds = OnThreads(threads, Placement::kOwnCpus, [&](int) { operations = loop(); });
    rates.push_back(static_cast<double>(operations) * kChains * kFmaLoops * threads / seconds / 1e9);
  }
  return Median(rates);
}

}  // namespace

double OnThreads(int threads, Placement placement, const std::function<void(int thread)>& fn) {
  static const std::vector<int> cpus = ComputeCpus(AllowedCpus());
  const bool bind = placement == Placement::kOwnCpus && static_cast<size_t>(threads) <= cpus.size();
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  CpuMask before;
  const bool restore = bind && before.ReadFrom(0);
  const auto take_cpu = [&](int thread) {
    if (bind) (void)CpuMask(cpus[static_cast<size_t>(thread)]).ApplyTo(0);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      take_cpu(thread);
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) SpinPause();
      fn(thread);
    });
  }
  take_cpu(0);
  while (ready.load() != threads - 1) std::this_thread::yield();
  const Clock::time_point start = Clock::now();
  go.store(true, std::memory_order_release);
  fn(0);
  for (std::thread& other : others) other.join();
  const double seconds = Seconds(Clock::now() - start);
  if (restore) (void)before.ApplyTo(0);
  return seconds;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

ReadBuffer::ReadBuffer(int64_t bytes) : bytes_(AlignUp(bytes, kHugePage)) {
  data_ = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, static_cast<size_t>(bytes_)));
  if (data_ == nullptr) {
    std::fprintf(stderr, "Error: no memory for a buffer of %lld bytes\n", static_cast<long long>(bytes_));
    std::exit(1);
  }
  (void)::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  std::memset(data_, 1, static_cast<size_t>(bytes_));
}

ReadBuffer::~ReadBuffer() { std::free(data_); }

double ReadGbps(const ReadBuffer& buffer, int threads, int runs) {
  std::vector<double> rates;
  std::atomic<uint64_t> sink{0};
  for (int run = 0; run < runs; ++run) {
    const int64_t share = buffer.bytes() / threads / 256 * 256;
    const double seconds = OnThreads(threads, Placement::kOwnCpus,
                                     [&](int thread) { sink += Read(buffer.data() + share * thread, share); });
    rates.push_back(static_cast<double>(share * threads) / seconds / 1e9);
  }
  return Median(rates);
}

double FmaGflops(std::string_view table, int threads) { return PeakGops(FmaLoop(table), threads); }
double IntegerGops(std::string_view table, int threads) { return PeakGops(DotLoop(table), threads); }

}  // namespace nunspark::bench
