#include "decode/sequence_run.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace nunspark {
namespace {

// max_tokens is what the caller asks for, not what will come.
constexpr int32_t kReservedTokens = 1 << 16;

// Of the most probable tokens that are told with each token.
constexpr int32_t kMostLogprobs = 100;

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Status CheckGenerateOptions(const GenerateOptions& options, int64_t vocab_size) {
  RETURN_IF_ERROR(CheckSampling(options.sampling));
  if (options.max_tokens < 1) {
    return InvalidArgumentError(fmt::format("max-tokens must be at least 1, found {}", options.max_tokens));
  }
  if (options.logprobs < -1 || options.logprobs > kMostLogprobs) {
    return InvalidArgumentError(
        fmt::format("logprobs must be from 0 to {}, or -1 for none, found {}", kMostLogprobs, options.logprobs));
  }
  return CheckLogitRules(options, vocab_size);
}

Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size) {
  if (tokens.empty()) return InvalidArgumentError("the prompt is empty; give at least one token");
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return InvalidArgumentError(fmt::format("token id {} is outside the vocabulary of {} tokens", token, vocab_size));
  }
  return Status();
}

bool EndsText(const GenerateOptions& options, std::span<const int32_t> model_ends, int32_t token) {
  const auto is_in = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return is_in(options.stop_ids) || (!options.ignore_eos && is_in(model_ends));
}

Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context) {
  if (prompt_tokens + std::max<int64_t>(max_tokens - 1, 0) <= context) return Status();
  return InvalidArgumentError(fmt::format("{} prompt tokens and {} to generate do not fit the context of {}",
                                          prompt_tokens, max_tokens, context));
}

SequenceRun::SequenceRun(std::span<const int32_t> prompt, const GenerateOptions& options,
                         std::span<const int32_t> stop_ids, int64_t vocab_size, SamplerScratch& scratch,
                         int64_t bytes_read)
    : options_(options),
      stop_ids_(stop_ids),
      vocab_size_(vocab_size),
      scratch_(scratch),
      rules_(options_, stop_ids, prompt, std::ssize(prompt) + options.max_tokens, vocab_size),
      sampler_(options.sampling, vocab_size, scratch),
      bytes_at_start_(bytes_read),
      start_(Clock::now()) {
  const size_t reserved = static_cast<size_t>(std::min(options.max_tokens, kReservedTokens));
  result_.prompt_tokens = std::ssize(prompt);
  result_.finish_reason = FinishReason::kLength;
  result_.ids.reserve(reserved);
  moments_.reserve(reserved);
  if (options_.logprobs >= 0) {
    sampler_.Reserve();
    result_.logprobs.reserve(reserved);
  }
  if (rules_.active()) scratch.changed().reserve(static_cast<size_t>(vocab_size));
}

int64_t SequenceRun::PlanBytes(int64_t room, int64_t vocab_size) {
  return room * static_cast<int64_t>(2 * sizeof(int32_t) + sizeof(Moment)) + LogitRules::PlanBytes(room, vocab_size) +
         static_cast<int64_t>(sizeof(SequenceRun));
}

int32_t SequenceRun::Choose(const float* logits) {
  if (rules_.active()) {
    scratch_.changed().assign(logits, logits + vocab_size_);
    rules_.Apply(scratch_.changed().data());
    logits = scratch_.changed().data();
  }
  const int64_t position = result_.prompt_tokens + std::ssize(result_.ids) + std::ssize(taken_);
  const int32_t chosen = sampler_.Sample(logits, {.seed = options_.sampling.seed,
                                                  .choice = options_.sampling.choice,
                                                  .position = static_cast<uint32_t>(position)});
  return options_.token_override != nullptr ? options_.token_override->Replace(chosen) : chosen;
}

void SequenceRun::Take(int32_t token, const float* logits) {
  taken_.push_back(token);
  if (rules_.active()) rules_.Advance(token);
  if (options_.token_override != nullptr) options_.token_override->Advance(token);
  if (options_.logprobs < 0) return;
  std::vector<TokenLogprob>& best = result_.best_logprobs;
  best.resize(best.size() + static_cast<size_t>(options_.logprobs));
  const size_t count = static_cast<size_t>(options_.logprobs);
  result_.logprobs.push_back(sampler_.Logprobs(logits, token, {best.data() + best.size() - count, count}));
}

void SequenceRun::Keep(int32_t token, int64_t bytes_read) {
  const Clock::time_point now = Clock::now();
  if (moments_.empty()) {
    result_.prompt_s = result_.first_token_s = Seconds(now - start_);
    result_.prompt_bytes_read = bytes_read - bytes_at_start_;
  }
  moments_.push_back({now, bytes_read});
  result_.ids.push_back(token);
}

GeneratedToken SequenceRun::Generated() const {
  GeneratedToken generated{.token = result_.ids.back()};
  if (options_.logprobs < 0) return generated;
  const size_t at = result_.ids.size() - 1, count = static_cast<size_t>(options_.logprobs);
  generated.logprob = result_.logprobs[at];
  generated.best = std::span(result_.best_logprobs).subspan(at * count, count);
  return generated;
}

bool SequenceRun::GoesOn(bool wanted) {
  if (!wanted) {
    result_.finish_reason = FinishReason::kCancelled;
    return false;
  }
  if (EndsText(options_, stop_ids_, result_.ids.back())) {
    result_.finish_reason = FinishReason::kStop;
    return false;
  }
  return static_cast<int32_t>(result_.ids.size()) < options_.max_tokens;
}

GenerateResult SequenceRun::Finish(int64_t bytes_read) {
  result_.drafts.tokens = std::ssize(result_.ids);
  if (options_.logprobs >= 0) {
    // Of tokens that were taken after the end.
    result_.logprobs.resize(result_.ids.size());
    result_.best_logprobs.resize(result_.ids.size() * static_cast<size_t>(options_.logprobs));
  }
  if (moments_.empty()) {
    result_.prompt_s = result_.first_token_s = Seconds(Clock::now() - start_);
    result_.prompt_bytes_read = bytes_read - bytes_at_start_;
  } else {
    const Moment& middle = moments_[moments_.size() / 2];
    result_.decode_s = Seconds(moments_.back().time - moments_.front().time);
    result_.decode_second_half_s = Seconds(moments_.back().time - middle.time);
    result_.decode_bytes_read = bytes_read - bytes_at_start_ - result_.prompt_bytes_read;
    result_.decode_second_half_bytes_read = bytes_read - middle.bytes_read;
  }
  return std::move(result_);
}

}  // namespace nunspark
