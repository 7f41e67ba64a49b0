#include "decode/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/math.h"
#include "kernels/kernels.h"

namespace nunspark {
namespace {

constexpr int kBlock = 16;  // tokens looked at together

// Up to this many, the largest values are kept in a heap, which most tokens never enter.
constexpr int32_t kHeapMost = 1024;

// Of a top-p set.
constexpr size_t kSortedAtFirst = 256;

struct Better {
  template <typename Candidate>
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  }
};

double Gumbel(const DrawKey& key, int32_t token) { return -Log(-Log(KeyedUniform(key, static_cast<uint32_t>(token)))); }

// A token that was drawn, and its value with noise; ties go to the lower id, so that the order of looking is free.
struct Winner {
  int32_t token;
  double value;

  void Take(int32_t other, double its_value) {
    if (its_value > value || (its_value == value && other < token)) *this = {other, its_value};
  }
};

// The first random word of a token's uniform number.
uint32_t FirstWord(const DrawKey& key, int32_t token) {
  return Philox({key.position, key.choice, static_cast<uint32_t>(token), 0},
                {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)})[0];
}

// Small functions of a block that become part of the loop around them, compiled for its vectors.
#define NUNSPARK_IN_BLOCK inline __attribute__((always_inline))

// The first word of Philox for items [first, first + kBlock) of a draw: what base/rng.h computes, side by side.
NUNSPARK_IN_BLOCK void FirstWords(const DrawKey& key, uint32_t first, uint32_t* out) {
  uint32_t c0[kBlock], c1[kBlock], c2[kBlock], c3[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    c0[i] = key.position;
    c1[i] = key.choice;
    c2[i] = first + static_cast<uint32_t>(i);
    c3[i] = 0;
  }
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlock; ++i) {
      const uint64_t a = uint64_t{0xD2511F53} * c0[i];
      const uint64_t b = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  std::copy_n(c0, kBlock, out);
}

// An upper bound of the noise that goes with a first word, without logarithms. With u the uniform number,
// -log(-log u) <= -log(1 - u), and 1 - u is at least (~word >> 1) / 2^31. A float's bits over 2^23 are 127 above a
// number that is at most its binary logarithm (Mitchell 1962).
NUNSPARK_IN_BLOCK float NoiseBound(uint32_t word) {
  constexpr float kLn2 = 0.693148f;       // rounded up
  constexpr float kRounding = 1.0f / 64;  // of all the conversions, amply
  const float rest = static_cast<float>(static_cast<int32_t>(~word >> 1));
  const float bits = static_cast<float>(std::bit_cast<int32_t>(rest));
  return (158.0f - bits * 0x1p-23f) * kLn2 + kRounding;
}

// Relative to the best, so that no temperature, however small, overflows: the best is 0, the others at most that.
NUNSPARK_IN_BLOCK void ValuesOf(const float* logits, int64_t count, double best, double temperature, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>((logits[i] - best) / temperature);
}

// kBlock tokens from `first` on: their values, and what these can become with their noise at most. Says whether any of
// those is above to_beat. logits: those of the block.
struct BlockRequest {
  const DrawKey& key;
  double best, temperature;
};
using BlockBounds = bool (*)(const BlockRequest& request, const float* logits, uint32_t first, float to_beat,
                             float* values, float* bounds);

NUNSPARK_IN_BLOCK bool BoundsOfBlock(const BlockRequest& request, const float* logits, uint32_t first, float to_beat,
                                     float* values, float* bounds) {
  uint32_t words[kBlock];
  FirstWords(request.key, first, words);
  ValuesOf(logits, kBlock, request.best, request.temperature, values);
  int any = 0;
  for (int i = 0; i < kBlock; ++i) {
    bounds[i] = values[i] + NoiseBound(words[i]);
    any |= bounds[i] > to_beat ? 1 : 0;
  }
  return any != 0;
}

bool BoundsOfBlockPlain(const BlockRequest& request, const float* logits, uint32_t first, float to_beat, float* values,
                        float* bounds) {
  return BoundsOfBlock(request, logits, first, to_beat, values, bounds);
}

#if defined(__x86_64__)
// The same operations, hence the same bits, in wider registers.
__attribute__((target("avx2"))) bool BoundsOfBlockAvx2(const BlockRequest& request, const float* logits, uint32_t first,
                                                       float to_beat, float* values, float* bounds) {
  return BoundsOfBlock(request, logits, first, to_beat, values, bounds);
}

BlockBounds FastestBlockBounds() { return __builtin_cpu_supports("avx2") ? BoundsOfBlockAvx2 : BoundsOfBlockPlain; }
#else
BlockBounds FastestBlockBounds() { return BoundsOfBlockPlain; }
#endif

}  // namespace

Status CheckSampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature)) {
    return InvalidArgumentError(fmt::format("temperature must be a finite number, found {}", options.temperature));
  }
  if (options.top_k < 0)
    return InvalidArgumentError(fmt::format("top-k must be 0 (off) or more, found {}", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgumentError(fmt::format("top-p must be above 0 and at most 1, found {}", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return InvalidArgumentError(fmt::format("min-p must be from 0 to 1, found {}", options.min_p));
  }
  return Status();
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size, SamplerScratch& scratch)
    : options_(options),
      vocab_size_(vocab_size),
      least_value_(options.min_p > 0 ? Log(options.min_p) : -std::numeric_limits<double>::infinity()),
      scratch_(scratch) {
  if (options_.temperature <= 0) return;
  scratch.candidates_.reserve(static_cast<size_t>(vocab_size));
  scratch.probabilities_.resize(std::max(scratch.probabilities_.size(), static_cast<size_t>(vocab_size)));
}

int32_t Sampler::Sample(const float* logits, const DrawKey& key) {
  best_token_ = Kernels().argmax(logits, vocab_size_);
  if (options_.temperature <= 0) return static_cast<int32_t>(best_token_);

  const bool top_k = options_.top_k > 0 && options_.top_k < vocab_size_;
  if (!top_k && options_.top_p >= 1) return DrawFromAll(logits, key);
  if (top_k) {
    CollectTopK(logits);
    if (options_.top_p < 1) KeepTopP();
  } else {
    CollectTopP(logits);
  }
  // Values are relative to the best token's, which is 0.
  std::erase_if(scratch_.candidates_, [this](const Candidate& c) { return c.value < least_value_; });
  return DrawFromCandidates(key);
}

void Sampler::Values(const float* logits, int64_t begin, int64_t count, float* values) const {
  ValuesOf(logits + begin, count, logits[best_token_], options_.temperature, values);
}

// candidates_ = the k best.
void Sampler::CollectTopK(const float* logits) {
  std::vector<Candidate>& kept = scratch_.candidates_;
  const size_t k = static_cast<size_t>(options_.top_k);
  const bool heap = options_.top_k <= kHeapMost;
  kept.clear();
  float values[kBlock];
  for (int64_t begin = 0; begin < vocab_size_; begin += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, vocab_size_ - begin);
    Values(logits, begin, count, values);
    if (heap && kept.size() == k) {
      bool any = false;
      for (int64_t i = 0; i < count; ++i) any |= values[i] > kept.front().value;
      if (!any) continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const Candidate candidate{values[i], static_cast<int32_t>(begin + i)};
      if (std::isnan(candidate.value)) continue;
      if (heap && kept.size() == k) {
        if (!Better()(candidate, kept.front())) continue;
        std::pop_heap(kept.begin(), kept.end(), Better());  // the worst is in front
        kept.pop_back();
      }
      kept.push_back(candidate);
      if (heap) std::push_heap(kept.begin(), kept.end(), Better());
    }
  }
  if (kept.size() <= k) return;
  std::nth_element(kept.begin(), kept.begin() + options_.top_k - 1, kept.end(), Better());
  kept.resize(k);
}

// candidates_ = the smallest set of most probable tokens that reaches top_p.
void Sampler::CollectTopP(const float* logits) {
  std::vector<Candidate>& kept = scratch_.candidates_;
  float* const probabilities = scratch_.probabilities_.data();
  Values(logits, 0, vocab_size_, probabilities);
  Kernels().softmax(probabilities, vocab_size_);
  // Sums of the probabilities that share a binary exponent: the set is among the tokens of the largest ones that reach
  // top_p, with a little more for the rounding of sums in another order.
  constexpr double kRounding = 1e-6;
  double sums[256] = {};
  const auto exponent_of = [&](int64_t token) { return std::bit_cast<uint32_t>(probabilities[token]) >> 23 & 0xff; };
  for (int64_t token = 0; token < vocab_size_; ++token) sums[exponent_of(token)] += probabilities[token];
  uint32_t least = 255;
  for (double sum = sums[least]; least > 0 && sum < options_.top_p + kRounding; sum += sums[least]) --least;
  kept.clear();
  for (int64_t token = 0; token < vocab_size_; ++token) {
    if (exponent_of(token) >= least) kept.push_back({0, static_cast<int32_t>(token)});
  }
  for (Candidate& c : kept) Values(logits, c.token, 1, &c.value);
  // Sorted as far as needed: the set is small beside what might be in it.
  const auto at = [&kept](size_t index) { return kept.begin() + static_cast<ptrdiff_t>(index); };
  double sum = 0;
  size_t count = 0, sorted = 0;
  while (count < kept.size() && (count == 0 || sum < options_.top_p)) {
    if (count == sorted) {
      sorted = std::min(kept.size(), std::max<size_t>(kSortedAtFirst, 8 * sorted));
      std::nth_element(at(count), at(sorted - 1), kept.end(), Better());
      std::sort(at(count), at(sorted), Better());
    }
    sum += static_cast<double>(probabilities[kept[count].token]);
    ++count;
  }
  kept.resize(count);
}

// The same among the candidates there are.
void Sampler::KeepTopP() {
  std::vector<Candidate>& kept = scratch_.candidates_;
  std::sort(kept.begin(), kept.end(), Better());
  double total = 0;
  for (const Candidate& c : kept) total += Exp(c.value);
  double sum = 0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < options_.top_p * total)) {
    sum += Exp(kept[count].value);
    ++count;
  }
  kept.resize(count);
}

// Most tokens of a large vocabulary cannot win with the noise that their first random word bounds: logarithms are for
// the few others.
int32_t Sampler::DrawFromAll(const float* logits, const DrawKey& key) const {
  static const BlockBounds bounds_of_block = FastestBlockBounds();
  const int32_t best = static_cast<int32_t>(best_token_);
  const BlockRequest request{.key = key, .best = logits[best], .temperature = options_.temperature};
  Winner winner{best, Gumbel(key, best)};
  float values[kBlock], bounds[kBlock], last[kBlock];
  for (int64_t begin = 0; begin < vocab_size_; begin += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, vocab_size_ - begin);
    const float* block = logits + begin;
    if (count < kBlock) {
      // No token beyond the vocabulary wins.
      std::fill_n(last, kBlock, -std::numeric_limits<float>::infinity());
      block = std::copy_n(block, count, last) - count;
    }
    const float to_beat = static_cast<float>(winner.value);
    if (!bounds_of_block(request, block, static_cast<uint32_t>(begin), to_beat, values, bounds)) continue;
    for (int64_t i = 0; i < count; ++i) {
      if (!(bounds[i] > to_beat) || values[i] < least_value_) continue;
      const int32_t token = static_cast<int32_t>(begin + i);
      winner.Take(token, values[i] + Gumbel(key, token));
    }
  }
  return winner.token;
}

int32_t Sampler::DrawFromCandidates(const DrawKey& key) const {
  const int32_t best = static_cast<int32_t>(best_token_);
  Winner winner{best, Gumbel(key, best)};  // a candidate whatever the filters
  for (const Candidate& c : scratch_.candidates_) {
    const float bound = c.value + NoiseBound(FirstWord(key, c.token));
    if (bound > static_cast<float>(winner.value)) winner.Take(c.token, c.value + Gumbel(key, c.token));
  }
  return winner.token;
}

}  // namespace nunspark
