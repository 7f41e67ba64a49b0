// Sampler: from a row of logits to a token.
//
// temperature <= 0: the largest logit, the lowest id among equals. Otherwise logits / temperature; top-k keeps the k
// largest; typical-p keeps the smallest set of tokens whose surprise is nearest to the expected one that reaches p
// (Meister et al., arXiv:2202.00666); top-p keeps the smallest set of most probable tokens that reaches p; min-p drops
// tokens less probable than min_p times the best; the survivor with the largest value + Gumbel noise is taken, which
// draws exactly from their softmax (Gumbel 1954; Maddison et al., A* Sampling, 2014). Noise is keyed by (seed, choice,
// position, token), so a draw does not depend on batching or speculation, and equal draws of draft and target tend to
// agree.
#ifndef NUNSPARK_DECODE_SAMPLER_H_
#define NUNSPARK_DECODE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "decode/draft.h"
#include "nunspark/options.h"
#include "nunspark/session.h"
#include "nunspark/status.h"

namespace nunspark {

// Errors: kInvalidArgument naming the option, its range and the value.
Status CheckSampling(const SamplingOptions& options);

// What a sampler works in; the samplers of one thread may share it. Holds nothing between two samples.
class SamplerScratch {
 public:
  // Bytes it takes at most: samplers that are not greedy, logits that rules change.
  static int64_t PlanBytes(int64_t vocab_size) {
    return vocab_size * static_cast<int64_t>(sizeof(Candidate) + 2 * sizeof(float));
  }

  // Room for one row of logits that are changed before they are sampled.
  std::vector<float>& changed() { return changed_; }

 private:
  friend class Sampler;
  struct Candidate {
    float value;  // the logit's distance from the largest one, over the temperature: at most 0
    int32_t token;
  };
  std::vector<Candidate> candidates_;
  std::vector<float> probabilities_;
  std::vector<float> changed_;
};

// Used by one thread at a time; allocates at construction only.
class Sampler {
 public:
  // `scratch` must outlive the sampler.
  Sampler(const SamplingOptions& options, int64_t vocab_size, SamplerScratch& scratch);

  // The token at `key.position`. logits [vocab_size].
  int32_t Sample(const float* logits, const DrawKey& key) {
    int32_t token = 0;
    SampleBest(logits, key, {&token, 1});
    return token;
  }

  // The tokens that win the draw, the winner first, then what would win without those before it: the draw without
  // replacement (Kool et al., arXiv:1903.06059). Returns how many there are: fewer than asked for when the filters
  // leave fewer. REQUIRES: 1 <= winners.size() <= kMostWinners.
  static constexpr size_t kMostWinners = TreeShape::kMostChildren;
  size_t SampleBest(const float* logits, const DrawKey& key, std::span<int32_t> winners);

  // The logarithm of the softmax of `logits`, whatever the options: of `token`, and of the best.size() most probable
  // ones. Needs a scratch that has room: call Reserve once before.
  float Logprobs(const float* logits, int32_t token, std::span<TokenLogprob> best);
  void Reserve();

 private:
  using Candidate = SamplerScratch::Candidate;

  void Values(const float* logits, int64_t begin, int64_t count, float* values) const;
  void CollectAll(const float* logits);
  void CollectTopK(const float* logits, int32_t count);
  void CollectTopP(const float* logits);
  void KeepTypical();
  void KeepTopP();
  size_t DrawFromAll(const float* logits, const DrawKey& key, std::span<int32_t> winners) const;
  size_t DrawFromCandidates(const DrawKey& key, std::span<int32_t> winners) const;

  const double temperature_;
  const int32_t top_k_;
  const double top_p_;
  const double typical_p_;
  int64_t vocab_size_;
  double least_value_;      // of min-p
  int64_t best_token_ = 0;  // of this sample
  SamplerScratch& scratch_;
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SAMPLER_H_
