#include "decode/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
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

// The tokens with the largest values, noise included, the best first; ties go to the lower id, so that the order of
// looking is free.
class Winners {
 public:
  explicit Winners(size_t most) : most_(most) {}

  // What the value of one more must reach.
  float to_beat() const {
    return count_ < most_ ? -std::numeric_limits<float>::infinity() : static_cast<float>(values_[count_ - 1]);
  }

  void Take(int32_t token, double value) {
    size_t at = count_;
    while (at > 0 && (value > values_[at - 1] || (value == values_[at - 1] && token < tokens_[at - 1]))) --at;
    if (at == most_) return;
    if (count_ < most_) ++count_;
    for (size_t i = count_ - 1; i > at; --i) {
      tokens_[i] = tokens_[i - 1];
      values_[i] = values_[i - 1];
    }
    tokens_[at] = token;
    values_[at] = value;
  }

  size_t CopyTo(std::span<int32_t> tokens) const {
    std::copy_n(tokens_, count_, tokens.begin());
    return count_;
  }

 private:
  const size_t most_;
  size_t count_ = 0;
  int32_t tokens_[Sampler::kMostWinners];
  double values_[Sampler::kMostWinners];
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
  if (!(options.typical_p > 0 && options.typical_p <= 1)) {
    return InvalidArgumentError(fmt::format("typical-p must be above 0 and at most 1, found {}", options.typical_p));
  }
  return Status();
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size, SamplerScratch& scratch)
    : temperature_(options.temperature),
      top_k_(options.top_k),
      top_p_(options.top_p),
      typical_p_(options.typical_p),
      vocab_size_(vocab_size),
      least_value_(options.min_p > 0 ? Log(options.min_p) : -std::numeric_limits<double>::infinity()),
      scratch_(scratch) {
  if (temperature_ > 0) Reserve();
}

void Sampler::Reserve() {
  const size_t vocab = static_cast<size_t>(vocab_size_);
  scratch_.candidates_.reserve(vocab);
  scratch_.probabilities_.resize(std::max(scratch_.probabilities_.size(), vocab));
}

float Sampler::Logprobs(const float* logits, int32_t token, std::span<TokenLogprob> best) {
  best_token_ = Kernels().argmax(logits, vocab_size_);
  float* const probabilities = scratch_.probabilities_.data();
  std::copy_n(logits, vocab_size_, probabilities);
  Kernels().softmax(probabilities, vocab_size_);
  // The largest probability is 1 over the sum of all exponentials of distances from the largest logit.
  const double largest = static_cast<double>(logits[best_token_]);
  const double of_largest = Log(static_cast<double>(probabilities[best_token_]));
  const auto logprob = [&](int32_t other) {
    return static_cast<float>(static_cast<double>(logits[other]) - largest + of_largest);
  };
  if (!best.empty()) {
    std::vector<Candidate>& kept = scratch_.candidates_;
    const int64_t count = std::min<int64_t>(std::ssize(best), vocab_size_);
    kept.clear();
    for (int32_t other = 0; other < vocab_size_; ++other) kept.push_back({logits[other], other});
    std::partial_sort(kept.begin(), kept.begin() + count, kept.end(), Better());
    for (int64_t i = 0; i < count; ++i) {
      const int32_t other = kept[static_cast<size_t>(i)].token;
      best[static_cast<size_t>(i)] = {.token = other, .logprob = logprob(other)};
    }
  }
  return logprob(token);
}

size_t Sampler::SampleBest(const float* logits, const DrawKey& key, std::span<int32_t> winners) {
  CHECK(!winners.empty() && winners.size() <= kMostWinners);
  best_token_ = Kernels().argmax(logits, vocab_size_);
  if (temperature_ <= 0) {
    if (winners.size() == 1) {
      winners[0] = static_cast<int32_t>(best_token_);
      return 1;
    }
    scratch_.candidates_.reserve(static_cast<size_t>(vocab_size_));
    CollectTopK(logits, static_cast<int32_t>(std::min<int64_t>(std::ssize(winners), vocab_size_)));
    std::sort(scratch_.candidates_.begin(), scratch_.candidates_.end(), Better());
    std::transform(scratch_.candidates_.begin(), scratch_.candidates_.end(), winners.begin(),
                   [](const Candidate& c) { return c.token; });
    return scratch_.candidates_.size();
  }

  const bool top_k = top_k_ > 0 && top_k_ < vocab_size_;
  const bool typical = typical_p_ < 1;
  if (!top_k && !typical && top_p_ >= 1) return DrawFromAll(logits, key, winners);
  if (top_k) {
    CollectTopK(logits, top_k_);
  } else if (typical) {
    CollectAll(logits);
  } else {
    CollectTopP(logits);
  }
  if (typical) KeepTypical();
  if ((top_k || typical) && top_p_ < 1) KeepTopP();
  // Values are relative to the best token's, which is 0. It may be gone, but something always stays.
  std::vector<Candidate>& kept = scratch_.candidates_;
  const Candidate best = *std::min_element(kept.begin(), kept.end(), Better());
  std::erase_if(kept, [this](const Candidate& c) { return c.value < least_value_; });
  if (kept.empty()) kept.push_back(best);
  return DrawFromCandidates(key, winners);
}

void Sampler::Values(const float* logits, int64_t begin, int64_t count, float* values) const {
  const double temperature = temperature_ > 0 ? temperature_ : 1;
  ValuesOf(logits + begin, count, logits[best_token_], temperature, values);
}

void Sampler::CollectAll(const float* logits) {
  std::vector<Candidate>& kept = scratch_.candidates_;
  kept.clear();
  float values[kBlock];
  for (int64_t begin = 0; begin < vocab_size_; begin += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, vocab_size_ - begin);
    Values(logits, begin, count, values);
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isnan(values[i])) kept.push_back({values[i], static_cast<int32_t>(begin + i)});
    }
  }
}

// candidates_ = the `count` best.
void Sampler::CollectTopK(const float* logits, int32_t count_wanted) {
  std::vector<Candidate>& kept = scratch_.candidates_;
  const size_t k = static_cast<size_t>(count_wanted);
  const bool heap = count_wanted <= kHeapMost;
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
  std::nth_element(kept.begin(), kept.begin() + count_wanted - 1, kept.end(), Better());
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
  for (double sum = sums[least]; least > 0 && sum < top_p_ + kRounding; sum += sums[least]) --least;
  kept.clear();
  for (int64_t token = 0; token < vocab_size_; ++token) {
    if (exponent_of(token) >= least) kept.push_back({0, static_cast<int32_t>(token)});
  }
  for (Candidate& c : kept) Values(logits, c.token, 1, &c.value);
  // Sorted as far as needed: the set is small beside what might be in it.
  const auto at = [&kept](size_t index) { return kept.begin() + static_cast<ptrdiff_t>(index); };
  double sum = 0;
  size_t count = 0, sorted = 0;
  while (count < kept.size() && (count == 0 || sum < top_p_)) {
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

// Of the candidates, those whose surprise -log p is nearest to the expected one, until they reach typical_p.
void Sampler::KeepTypical() {
  std::vector<Candidate>& kept = scratch_.candidates_;
  double total = 0, weighted = 0;
  for (const Candidate& c : kept) {
    const double weight = Exp(c.value);
    total += weight;
    if (weight > 0) weighted += weight * static_cast<double>(c.value);
  }
  // -log p = log total - value, and its expectation log total - weighted / total: the logarithm drops out.
  const double expected = weighted / total;
  const auto nearer = [expected](const Candidate& a, const Candidate& b) {
    const double of_a = std::abs(static_cast<double>(a.value) - expected);
    const double of_b = std::abs(static_cast<double>(b.value) - expected);
    return of_a != of_b ? of_a < of_b : Better()(a, b);
  };
  std::sort(kept.begin(), kept.end(), nearer);
  double sum = 0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < typical_p_ * total)) sum += Exp(kept[count++].value);
  kept.resize(count);
}

// The same as CollectTopP among the candidates there are.
void Sampler::KeepTopP() {
  std::vector<Candidate>& kept = scratch_.candidates_;
  std::sort(kept.begin(), kept.end(), Better());
  double total = 0;
  for (const Candidate& c : kept) total += Exp(c.value);
  double sum = 0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < top_p_ * total)) {
    sum += Exp(kept[count].value);
    ++count;
  }
  kept.resize(count);
}

// Most tokens of a large vocabulary cannot win with the noise that their first random word bounds: logarithms are for
// the few others.
size_t Sampler::DrawFromAll(const float* logits, const DrawKey& key, std::span<int32_t> winners) const {
  static const BlockBounds bounds_of_block = FastestBlockBounds();
  const int32_t best = static_cast<int32_t>(best_token_);
  const BlockRequest request{.key = key, .best = logits[best], .temperature = temperature_};
  Winners found(winners.size());
  found.Take(best, Gumbel(key, best));
  float values[kBlock], bounds[kBlock], last[kBlock];
  for (int64_t begin = 0; begin < vocab_size_; begin += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, vocab_size_ - begin);
    const float* block = logits + begin;
    if (count < kBlock) {
      // No token beyond the vocabulary wins.
      std::fill_n(last, kBlock, -std::numeric_limits<float>::infinity());
      block = std::copy_n(block, count, last) - count;
    }
    const float to_beat = found.to_beat();
    if (!bounds_of_block(request, block, static_cast<uint32_t>(begin), to_beat, values, bounds)) continue;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t token = static_cast<int32_t>(begin + i);
      if (!(bounds[i] > to_beat) || values[i] < least_value_ || token == best) continue;
      found.Take(token, values[i] + Gumbel(key, token));
    }
  }
  return found.CopyTo(winners);
}

size_t Sampler::DrawFromCandidates(const DrawKey& key, std::span<int32_t> winners) const {
  Winners found(winners.size());
  for (const Candidate& c : scratch_.candidates_) {
    const float bound = c.value + NoiseBound(FirstWord(key, c.token));
    if (bound > found.to_beat()) found.Take(c.token, c.value + Gumbel(key, c.token));
  }
  return found.CopyTo(winners);
}

}  // namespace nunspark
