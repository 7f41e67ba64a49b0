#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/math.h"
#include "kernels/kernels.h"

namespace nunspark {
namespace {

// KeyedUniform is at least 2^-53 away from 1, so Gumbel noise is below this.
constexpr double kLargestGumbel = 37;

double Gumbel(const DrawKey& key, int32_t token) { return -Log(-Log(KeyedUniform(key, static_cast<uint32_t>(token)))); }

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
    : options_(options), vocab_size_(vocab_size), candidates_(scratch.candidates_) {
  if (options_.temperature > 0) candidates_.reserve(static_cast<size_t>(vocab_size));
}

int32_t Sampler::Sample(const float* logits, const DrawKey& key) {
  if (options_.temperature <= 0) return static_cast<int32_t>(Kernels().argmax(logits, vocab_size_));

  // Relative to the best, so that no temperature, however small, overflows: the best is 0, the others at most that.
  const double best_logit = logits[Kernels().argmax(logits, vocab_size_)];
  candidates_.clear();
  for (int32_t token = 0; token < vocab_size_; ++token) {
    candidates_.push_back({static_cast<float>((logits[token] - best_logit) / options_.temperature), token});
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  if (options_.top_k > 0 && options_.top_k < vocab_size_) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k - 1, candidates_.end(), better);
    candidates_.resize(static_cast<size_t>(options_.top_k));
  }
  if (options_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), better);
    KeepTopP();
  }
  if (options_.min_p > 0) {
    const float best =
        std::max_element(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
          return better(b, a);
        })->value;
    const double least = best + Log(options_.min_p);
    std::erase_if(candidates_, [least](const Candidate& c) { return c.value < least; });
  }
  return Draw(key);
}

// REQUIRES: candidates_ sorted, best first.
void Sampler::KeepTopP() {
  const double best = candidates_.front().value;
  double total = 0;
  for (const Candidate& c : candidates_) total += Exp(c.value - best);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < options_.top_p * total)) {
    sum += Exp(candidates_[kept].value - best);
    ++kept;
  }
  candidates_.resize(kept);
}

int32_t Sampler::Draw(const DrawKey& key) const {
  double best = -std::numeric_limits<double>::infinity();
  int32_t token = candidates_.front().token;
  for (const Candidate& c : candidates_) {
    // Most of a large vocabulary cannot win even with the largest noise.
    if (!(c.value + kLargestGumbel > best)) continue;
    const double value = c.value + Gumbel(key, c.token);
    // Candidates come in no particular order, so ties go to the lower id explicitly.
    if (value > best || (value == best && c.token < token)) {
      best = value;
      token = c.token;
    }
  }
  return token;
}

}  // namespace nunspark
