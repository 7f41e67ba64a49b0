#include "decode/logit_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace nunspark {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

constexpr double kMostPenalty = 1000;

}  // namespace

Status CheckLogitRules(const GenerateOptions& options, int64_t vocab_size) {
  const SamplingOptions& sampling = options.sampling;
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= kMostPenalty)) {
    return InvalidArgumentError(fmt::format("repetition-penalty must be above 0 and at most {}, found {}", kMostPenalty,
                                            sampling.repetition_penalty));
  }
  const auto check = [](const char* name, double value) {
    if (std::abs(value) <= kMostPenalty) return Status();
    return InvalidArgumentError(
        fmt::format("{} must be from {} to {}, found {}", name, -kMostPenalty, kMostPenalty, value));
  };
  RETURN_IF_ERROR(check("presence-penalty", sampling.presence_penalty));
  RETURN_IF_ERROR(check("frequency-penalty", sampling.frequency_penalty));
  for (const TokenBias& bias : sampling.logit_bias) {
    if (bias.token < 0 || bias.token >= vocab_size) {
      return InvalidArgumentError(
          fmt::format("logit-bias names token {}, outside the vocabulary of {} tokens", bias.token, vocab_size));
    }
    if (std::isnan(bias.bias) || bias.bias == std::numeric_limits<float>::infinity()) {
      return InvalidArgumentError(
          fmt::format("logit-bias of token {} must be a number or -infinity, found {}", bias.token, bias.bias));
    }
  }
  for (const int32_t token : options.stop_ids) {
    if (token >= 0 && token < vocab_size) continue;
    return InvalidArgumentError(fmt::format("stop token {} is outside the vocabulary of {} tokens", token, vocab_size));
  }
  if (options.constraint != nullptr && options.min_tokens > 0) {
    return InvalidArgumentError(
        "min-tokens does not go with an output that is held to a form: where the form ends, so does the output");
  }
  if (options.min_tokens < 0 || options.min_tokens > options.max_tokens) {
    return InvalidArgumentError(
        fmt::format("min-tokens must be from 0 to max-tokens, {}, found {}", options.max_tokens, options.min_tokens));
  }
  return Status();
}

LogitRules::LogitRules(const GenerateOptions& options, std::span<const int32_t> stop_ids,
                       std::span<const int32_t> prompt, int64_t room, int64_t vocab_size)
    : options_(options),
      stop_ids_(stop_ids),
      vocab_size_(vocab_size),
      penalties_(options.sampling.repetition_penalty != 1 || options.sampling.presence_penalty != 0 ||
                 options.sampling.frequency_penalty != 0),
      active_(penalties_ || !options.sampling.logit_bias.empty() || options.min_tokens > 0 ||
              options.constraint != nullptr) {
  if (options.constraint != nullptr) allowed_.resize(static_cast<size_t>((vocab_size + 31) / 32));
  if (!penalties_) return;
  seen_.reserve(static_cast<size_t>(std::min(room, vocab_size)));
  for (const int32_t token : prompt) seen_.push_back({token, 0});
  const auto by_token = [](const Seen& a, const Seen& b) { return a.token < b.token; };
  std::sort(seen_.begin(), seen_.end(), by_token);
  const auto same = [](const Seen& a, const Seen& b) { return a.token == b.token; };
  seen_.erase(std::unique(seen_.begin(), seen_.end(), same), seen_.end());
}

void LogitRules::Apply(float* logits) {
  const SamplingOptions& sampling = options_.sampling;
  const float repetition = static_cast<float>(sampling.repetition_penalty);
  for (const Seen& seen : seen_) {
    float& logit = logits[seen.token];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (seen.count == 0) continue;
    logit -= static_cast<float>(sampling.presence_penalty + sampling.frequency_penalty * seen.count);
  }
  for (const TokenBias& bias : sampling.logit_bias) logits[bias.token] += bias.bias;
  if (options_.constraint != nullptr) {
    options_.constraint->Allowed(allowed_);
    for (size_t word = 0; word < allowed_.size(); ++word) {
      const int64_t begin = static_cast<int64_t>(word) * 32;
      const int64_t end = std::min(begin + 32, vocab_size_);
      for (uint32_t forbidden = ~allowed_[word]; forbidden != 0; forbidden &= forbidden - 1) {
        const int64_t token = begin + std::countr_zero(forbidden);
        if (token < end) logits[token] = kNever;
      }
    }
  }
  if (generated_ >= options_.min_tokens) return;
  for (const int32_t token : stop_ids_) logits[token] = kNever;
  for (const int32_t token : options_.stop_ids) logits[token] = kNever;
}

void LogitRules::Advance(int32_t token) {
  ++generated_;
  if (options_.constraint != nullptr) options_.constraint->Advance(token);
  if (!penalties_) return;
  const auto at = std::lower_bound(seen_.begin(), seen_.end(), token,
                                   [](const Seen& seen, int32_t wanted) { return seen.token < wanted; });
  if (at != seen_.end() && at->token == token) {
    ++at->count;
  } else {
    seen_.insert(at, {token, 1});
  }
}

}  // namespace nunspark
