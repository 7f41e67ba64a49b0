// Sampler: from a row of logits to a token.
//
// temperature <= 0: the largest logit, the lowest id among equals. Otherwise logits / temperature; top-k keeps the k
// largest; top-p keeps the smallest set of most probable tokens that reaches p; min-p drops tokens less probable than
// min_p times the best; the survivor with the largest value + Gumbel noise is taken, which draws exactly from their
// softmax (Gumbel 1954; Maddison et al., A* Sampling, 2014). Noise is keyed by (seed, choice, position, token), so a
// draw does not depend on batching or speculation, and equal draws of draft and target tend to agree.
#ifndef NUNSPARK_DECODE_SAMPLER_H_
#define NUNSPARK_DECODE_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark {

// Errors: kInvalidArgument naming the option, its range and the value.
Status CheckSampling(const SamplingOptions& options);

// What a sampler works in; the samplers of one thread may share it. Holds nothing between two samples.
class SamplerScratch {
 public:
  // Bytes it takes once a sampler that is not greedy has been made for it.
  static int64_t PlanBytes(int64_t vocab_size) {
    return vocab_size * static_cast<int64_t>(sizeof(Candidate) + sizeof(float));
  }

 private:
  friend class Sampler;
  struct Candidate {
    float value;  // the logit's distance from the largest one, over the temperature: at most 0
    int32_t token;
  };
  std::vector<Candidate> candidates_;
  std::vector<float> probabilities_;
};

// Used by one thread at a time; allocates at construction only.
class Sampler {
 public:
  // `scratch` must outlive the sampler.
  Sampler(const SamplingOptions& options, int64_t vocab_size, SamplerScratch& scratch);

  // The token at `key.position`. logits [vocab_size].
  int32_t Sample(const float* logits, const DrawKey& key);

 private:
  using Candidate = SamplerScratch::Candidate;

  void Values(const float* logits, int64_t begin, int64_t count, float* values) const;
  void CollectTopK(const float* logits);
  void CollectTopP(const float* logits);
  void KeepTopP();
  int32_t DrawFromAll(const float* logits, const DrawKey& key) const;
  int32_t DrawFromCandidates(const DrawKey& key) const;

  SamplingOptions options_;
  int64_t vocab_size_;
  double least_value_;      // of min-p
  int64_t best_token_ = 0;  // of this sample
  SamplerScratch& scratch_;
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SAMPLER_H_
