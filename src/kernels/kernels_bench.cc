// Speed of the kernels on one core, each table. Weights are rotated through a working set beyond the caches, as a
// model's are. BENCHMARK names: matmul/<table>/<format>/<rows>, attend/<table>/<type>/<shape>,
// row/<table>/<kernel>.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr int64_t kOuts = 1024;
constexpr int64_t kCols = 4096;

int64_t StoredBytes(const WeightFormat& format) {
  return DataBytes(format, kOuts, kCols) + ScaleBytes(format, kOuts, kCols) + BiasBytes(format, kOuts, kCols);
}

// A matrix whose bytes are cheap to make (speed does not depend on them), larger than the caches at `rows` >= 1.
std::vector<std::unique_ptr<RandomMatrix>> MakeSet(const WeightFormat& format, int64_t bytes_wanted) {
  std::vector<std::unique_ptr<RandomMatrix>> set;
  int64_t bytes = 0;
  while (bytes < bytes_wanted || set.empty()) {
    set.push_back(std::make_unique<RandomMatrix>(format, kOuts, kCols, static_cast<uint32_t>(set.size() + 1)));
    bytes += StoredBytes(format);
  }
  return set;
}

void MatMul(benchmark::State& state, const KernelTable* table, WeightFormat format, int64_t rows) {
  const auto set = MakeSet(format, rows <= 4 ? 200'000'000 : 1);
  const std::vector<float> x = RandomFloats(rows * kCols, 3);
  std::vector<float> y(static_cast<size_t>(rows * kOuts));
  std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(set[0]->matrix(), rows)));
  size_t next = 0;
  for (auto _ : state) {
    const WeightMatrix& w = set[next++ % set.size()]->matrix();
    table->matmul(w, {}, x.data(), kCols, rows, 0, kOuts, y.data(), kOuts, scratch.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  const auto bytes = static_cast<double>(StoredBytes(format));
  state.counters["weights_GBps"] = benchmark::Counter(runs * bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOPs"] =
      benchmark::Counter(runs * 2.0 * static_cast<double>(rows * kOuts * kCols) / 1e9, benchmark::Counter::kIsRate);
}

// Attention of the query heads that share one kv head, over 4096 positions.
struct AttendShape {
  const char* name;
  int q_heads, key_dim, value_dim;
  bool latent;  // the values are the first part of the keys
  float softcap;
};
constexpr AttendShape kAttendShapes[] = {
    {.name = "gqa4x128", .q_heads = 4, .key_dim = 128, .value_dim = 128, .latent = false, .softcap = 0},
    {.name = "gqa8x64", .q_heads = 8, .key_dim = 64, .value_dim = 64, .latent = false, .softcap = 0},
    {.name = "gqa2x256-softcap", .q_heads = 2, .key_dim = 256, .value_dim = 256, .latent = false, .softcap = 50},
    {.name = "latent16x576", .q_heads = 16, .key_dim = 576, .value_dim = 512, .latent = true, .softcap = 0},
};

void Attend(benchmark::State& state, const KernelTable* table, FloatType type, AttendShape shape) {
  constexpr int kPositions = 4096, kBlocks = kPositions / kKvBlockPositions;
  std::vector<uint8_t> key_bytes, value_bytes;
  AppendFloats(RandomFloats(int64_t{kPositions} * shape.key_dim, 1), type, key_bytes);
  if (!shape.latent) AppendFloats(RandomFloats(int64_t{kPositions} * shape.value_dim, 3), type, value_bytes);
  std::vector<const uint8_t*> keys, values;
  for (size_t b = 0; b < kBlocks; ++b) {
    keys.push_back(key_bytes.data() + b * key_bytes.size() / kBlocks);
    values.push_back(shape.latent ? keys.back() : value_bytes.data() + b * value_bytes.size() / kBlocks);
  }
  const KvView kv{.type = type,
                  .kv_heads = 1,
                  .key_dim = shape.key_dim,
                  .value_dim = shape.value_dim,
                  .value_stride = shape.latent ? shape.key_dim : shape.value_dim,
                  .key_blocks = keys.data(),
                  .value_blocks = values.data()};
  const std::vector<float> q = RandomFloats(int64_t{shape.q_heads} * shape.key_dim, 2);
  std::vector<float> out(static_cast<size_t>(shape.q_heads * shape.value_dim));
  std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(shape.key_dim, shape.value_dim)));
  const AttendParams params{.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim)), .softcap = shape.softcap};
  for (auto _ : state) {
    table->attend(q.data(), shape.q_heads, kv, 0, 0, kPositions, params, out.data(), scratch.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  const auto bytes = static_cast<double>(key_bytes.size() + value_bytes.size());
  state.counters["kv_GBps"] = benchmark::Counter(runs * bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOPs"] = benchmark::Counter(
      runs * 2.0 * shape.q_heads * (shape.key_dim + shape.value_dim) * kPositions / 1e9, benchmark::Counter::kIsRate);
}

// Element-wise kernels over one row that stays in the caches: values a second.
using RowKernel = void (*)(const KernelTable&, const float* a, const float* b, int64_t n, float* out);
struct NamedRowKernel {
  const char* name;
  RowKernel run;
};
constexpr NamedRowKernel kRowKernels[] = {
    {"swiglu",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.swiglu(a, b, n, out); }},
    {"geglu",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.geglu(a, b, n, out); }},
    {"swiglu_clipped", [](const KernelTable& t, const float* a, const float* b, int64_t n,
                          float* out) { t.swiglu_clipped(a, b, n, 1.702f, 7.0f, out); }},
    {"xielu", [](const KernelTable& t, const float* a, const float*, int64_t n,
                 float* out) { t.xielu(a, n, 0.8f, 1.3f, 0.5f, -1e-6f, out); }},
    {"softcap",
     [](const KernelTable& t, const float*, const float*, int64_t n, float* out) { t.softcap(out, 30.0f, n); }},
    {"rms_norm",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) {
       t.rms_norm(a, {.type = FloatType::kF32, .size = n, .data = reinterpret_cast<const uint8_t*>(b)}, 1.0f, 1e-6f, n,
                  out);
     }},
    {"rope_halves",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.rope_halves(out, a, b, n); }},
    {"rope_pairs",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.rope_pairs(out, a, b, n); }},
};

void Row(benchmark::State& state, const KernelTable* table, RowKernel run) {
  constexpr int64_t kSize = 2880;
  // Cosine and sine of one angle where a kernel rotates: values stay as large as they are.
  const std::vector<float> a(kSize, 0.6f), b(kSize, 0.8f);
  std::vector<float> out(kSize, 1.0f);
  for (auto _ : state) {
    run(*table, a.data(), b.data(), kSize, out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["Gvalues"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kSize / 1e9, benchmark::Counter::kIsRate);
}

// What memory gives one core: an upper limit for decoding.
void ReadMemory(benchmark::State& state) {
  std::vector<uint64_t> words(25'000'000, 1);
  for (auto _ : state) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= words.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["GBps"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(words.size()) * 8 / 1e9,
                         benchmark::Counter::kIsRate);
}

void RegisterAll() {
  benchmark::RegisterBenchmark("read_memory", ReadMemory)->Unit(benchmark::kMillisecond);
  std::vector<WeightFormat> formats;
  for (FloatType type : kAllFloatTypes) formats.push_back(FloatFormat(type));
  for (int bits : {4, 8, 1, 2, 3, 5, 6}) {
    formats.push_back({.encoding = Encoding::kAffine,
                       .bits = static_cast<uint8_t>(bits),
                       .group_size = 64,
                       .scale_type = FloatType::kBF16});
  }
  formats.push_back({.encoding = Encoding::kFp8Block, .bits = 8, .group_size = 128, .group_rows = 128});
  for (FloatType type : kAllFloatTypes) {
    formats.push_back(FloatFormat(type));
    formats.back().order = MatrixOrder::kColumnMajor;
  }
  formats.push_back({.encoding = Encoding::kAwq,
                     .bits = 4,
                     .group_size = 128,
                     .scale_type = FloatType::kF16,
                     .order = MatrixOrder::kColumnMajor});
  for (Encoding encoding : {Encoding::kMxFp4, Encoding::kMxFp8, Encoding::kNvFp4}) {
    formats.push_back(FixedFormat(encoding));
  }
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    formats.push_back(FixedFormat(static_cast<Encoding>(e)));
  }
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat& format : formats) {
      for (int64_t rows : {1, 4, 32, 256}) {
        benchmark::RegisterBenchmark(fmt::format("matmul/{}/{}/{}", table->name, FormatName(format), rows).c_str(),
                                     MatMul, table, format, rows)
            ->Unit(benchmark::kMicrosecond);
      }
    }
    for (const AttendShape& shape : kAttendShapes) {
      for (FloatType type : kAllFloatTypes) {
        benchmark::RegisterBenchmark(fmt::format("attend/{}/{}/{}", table->name, FloatName(type), shape.name).c_str(),
                                     Attend, table, type, shape)
            ->Unit(benchmark::kMicrosecond);
      }
    }
    for (const NamedRowKernel& kernel : kRowKernels) {
      benchmark::RegisterBenchmark(fmt::format("row/{}/{}", table->name, kernel.name).c_str(), Row, table, kernel.run)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace nunspark

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  nunspark::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
