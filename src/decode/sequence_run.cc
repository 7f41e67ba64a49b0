#include "decode/sequence_run.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace nunspark {
namespace {

// max_tokens is what the caller asks for, not what will come.
constexpr int32_t kReservedTokens = 1 << 16;

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Status CheckGenerateOptions(const GenerateOptions& options) {
  RETURN_IF_ERROR(CheckSampling(options.sampling));
  if (options.max_tokens >= 1) return Status();
  return InvalidArgumentError(fmt::format("max-tokens must be at least 1, found {}", options.max_tokens));
}

Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size) {
  if (tokens.empty()) return InvalidArgumentError("the prompt is empty; give at least one token");
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return InvalidArgumentError(fmt::format("token id {} is outside the vocabulary of {} tokens", token, vocab_size));
  }
  return Status();
}

Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context) {
  if (prompt_tokens + std::max<int64_t>(max_tokens - 1, 0) <= context) return Status();
  return InvalidArgumentError(fmt::format("{} prompt tokens and {} to generate do not fit the context of {}",
                                          prompt_tokens, max_tokens, context));
}

SequenceRun::SequenceRun(int64_t prompt_tokens, const GenerateOptions& options, std::span<const int32_t> stop_ids,
                         int64_t vocab_size, SamplerScratch& scratch, int64_t bytes_read)
    : options_(options),
      stop_ids_(stop_ids),
      sampler_(options.sampling, vocab_size, scratch),
      bytes_at_start_(bytes_read),
      start_(Clock::now()) {
  const size_t reserved = static_cast<size_t>(std::min(options.max_tokens, kReservedTokens));
  result_.prompt_tokens = prompt_tokens;
  result_.finish_reason = FinishReason::kLength;
  result_.ids.reserve(reserved);
  moments_.reserve(reserved);
}

void SequenceRun::Pick(const float* logits) {
  token_ = sampler_.Sample(logits,
                           {.seed = options_.sampling.seed, .choice = 0, .position = static_cast<uint32_t>(length())});
}

void SequenceRun::Keep(int64_t bytes_read) {
  const Clock::time_point now = Clock::now();
  if (moments_.empty()) {
    result_.prompt_s = result_.first_token_s = Seconds(now - start_);
    result_.prompt_bytes_read = bytes_read - bytes_at_start_;
  }
  moments_.push_back({now, bytes_read});
  result_.ids.push_back(token_);
}

bool SequenceRun::GoesOn(bool wanted) {
  if (!wanted) {
    result_.finish_reason = FinishReason::kCancelled;
    return false;
  }
  if (!options_.ignore_eos && std::find(stop_ids_.begin(), stop_ids_.end(), token_) != stop_ids_.end()) {
    result_.finish_reason = FinishReason::kStop;
    return false;
  }
  return static_cast<int32_t>(result_.ids.size()) < options_.max_tokens;
}

GenerateResult SequenceRun::Finish(int64_t bytes_read) {
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
