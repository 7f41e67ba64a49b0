// RoPE tables: the angles by which query and key pairs are rotated.
//
// Formulas: transformers, modeling_rope_utils.py (default, linear, llama3, yarn, dynamic, longrope, proportional).
// Frequencies are rounded to float32 and angles are float32 products, as there; sine and cosine are our own, the same
// on every machine.
#ifndef NUNSPARK_MODELS_ROPE_H_
#define NUNSPARK_MODELS_ROPE_H_

#include <cstdint>
#include <vector>

#include "models/hparams.h"

namespace nunspark {

class RopeTable {
 public:
  explicit RopeTable(const RopeParams& params);

  int64_t rotary_dim() const { return params_.rotary_dim; }
  int64_t pairs() const { return static_cast<int64_t>(inverse_frequencies_.size()); }

  // Writes cos and sin of every pair at `position` [pairs], times the kind's attention factor. `length` is the sequence
  // length that governs length-dependent kinds (dynamic, longrope): the whole prompt's for its tokens, position + 1 for
  // generated ones. Not thread-safe: the frequencies of the last length are kept.
  void Fill(int64_t position, int64_t length, float* cos, float* sin);

 private:
  void Frequencies(double theta, const std::vector<double>& divisors, std::vector<float>& out) const;

  const RopeParams params_;
  float attention_factor_ = 1;
  std::vector<float> inverse_frequencies_;
  std::vector<float> stretched_;  // dynamic: those of stretched_length_; longrope: those beyond the trained length
  int64_t stretched_length_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_ROPE_H_
