#include "decode/generate.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "decode/sampler.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size) {
  if (tokens.empty()) return InvalidArgumentError("the prompt is empty; give at least one token");
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return InvalidArgumentError(fmt::format("token id {} is outside the vocabulary of {} tokens", token, vocab_size));
  }
  return Status();
}

}  // namespace

Status RunPrompt(Target& target, std::span<const int32_t> tokens, PromptLogits wanted, const LogitsCallback& callback,
                 const PromptCallback& on_progress) {
  RETURN_IF_ERROR(CheckTokens(tokens, target.model.hparams().vocab_size));
  target.kv.Truncate(0);
  if (tokens.data() != target.tokens.data()) target.tokens.assign(tokens.begin(), tokens.end());
  const int32_t total = static_cast<int32_t>(tokens.size());
  RETURN_IF_ERROR(target.kv.Reserve(total));
  const int32_t chunk = std::clamp(target.prefill_chunk, 1, target.model.max_rows());
  Batch& batch = target.batch;
  batch.sequences.assign(1, &target.kv);
  batch.cancelled = &target.cancelled;
  for (int32_t begin = 0; begin < total; begin += chunk) {
    if (target.cancelled.load(std::memory_order_relaxed)) return CancelledError("cancelled");
    const int32_t end = std::min(total, begin + chunk);
    batch.rows.clear();
    batch.logit_rows.clear();
    for (int32_t i = begin; i < end; ++i) {
      batch.rows.push_back(
          {.token = tokens[static_cast<size_t>(i)], .position = i, .sequence = 0, .rope_length = total});
      if (wanted == PromptLogits::kAll || i + 1 == total) batch.logit_rows.push_back(i - begin);
    }
    const int32_t first_row = wanted == PromptLogits::kAll ? begin : total - 1;
    RETURN_IF_ERROR(target.model.Forward(batch, target.weights, [&](int32_t first, int32_t count, const float* logits) {
      return callback(first_row + first, count, logits);
    }));
    if (on_progress && !on_progress(end, total)) return CancelledError("cancelled");
  }
  return Status();
}

Status RunToken(Target& target, int32_t token, const std::function<Status(const float* logits)>& callback) {
  RETURN_IF_ERROR(CheckTokens({&token, 1}, target.model.hparams().vocab_size));
  if (target.cancelled.load(std::memory_order_relaxed)) return CancelledError("cancelled");
  const int32_t position = static_cast<int32_t>(target.kv.length());
  const bool other_frequencies = position > 0 && position == target.model.hparams().rope_switch_length();
  // A run that was cancelled or failed on the way has stored less than all tokens.
  const bool incomplete = static_cast<size_t>(position) != target.tokens.size();
  target.tokens.push_back(token);
  if (other_frequencies || incomplete) {
    return RunPrompt(target, target.tokens, PromptLogits::kLast,
                     [&](int64_t, int64_t, const float* logits) { return callback(logits); });
  }
  RETURN_IF_ERROR(target.kv.Reserve(position + 1));
  target.batch.rows.assign(1, {.token = token, .position = position, .sequence = 0, .rope_length = position + 1});
  target.batch.sequences.assign(1, &target.kv);
  target.batch.cancelled = &target.cancelled;
  target.batch.logit_rows.assign(1, 0);
  return target.model.Forward(target.batch, target.weights,
                              [&](int32_t, int32_t, const float* logits) { return callback(logits); });
}

Result<GenerateResult> RunGenerate(Target& target, std::span<const int32_t> prompt, const GenerateOptions& options,
                                   std::span<const int32_t> stop_ids, const std::function<int64_t()>& bytes_read,
                                   const TokenCallback& on_token, const PromptCallback& on_prompt) {
  RETURN_IF_ERROR(CheckSampling(options.sampling));
  if (options.max_tokens < 1) {
    return InvalidArgumentError(fmt::format("max-tokens must be at least 1, found {}", options.max_tokens));
  }
  Sampler sampler(options.sampling, target.model.hparams().vocab_size);
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  // max_tokens is what the caller asks for, not what will come.
  constexpr int32_t kReservedTokens = 1 << 16;
  const size_t reserved = static_cast<size_t>(std::min(options.max_tokens, kReservedTokens));
  result.ids.reserve(reserved);

  const Clock::time_point start = Clock::now();
  const int64_t bytes_at_start = bytes_read();
  int32_t token = -1;
  const auto pick = [&](const float* logits) {
    const uint32_t position = static_cast<uint32_t>(prompt.size() + result.ids.size());
    token = sampler.Sample(logits, {.seed = options.sampling.seed, .choice = 0, .position = position});
    return Status();
  };
  const auto cancelled = [&](const Status& status) { return status.code() == StatusCode::kCancelled; };

  Status status = RunPrompt(
      target, prompt, PromptLogits::kLast, [&](int64_t, int64_t, const float* logits) { return pick(logits); },
      on_prompt);
  result.prompt_s = SecondsSince(start);
  result.first_token_s = result.prompt_s;
  result.prompt_bytes_read = bytes_read() - bytes_at_start;
  if (cancelled(status)) {
    result.finish_reason = FinishReason::kCancelled;
    return result;
  }
  RETURN_IF_ERROR(status);

  std::vector<Clock::time_point> times;  // when each token was known
  times.reserve(reserved);
  result.finish_reason = FinishReason::kLength;
  while (true) {
    result.ids.push_back(token);
    times.push_back(Clock::now());
    const bool stop = !options.ignore_eos && std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
    if (!on_token(token)) {
      result.finish_reason = FinishReason::kCancelled;
      break;
    }
    if (stop) {
      result.finish_reason = FinishReason::kStop;
      break;
    }
    if (static_cast<int32_t>(result.ids.size()) >= options.max_tokens) break;
    status = RunToken(target, token, pick);
    if (cancelled(status)) {
      result.finish_reason = FinishReason::kCancelled;
      break;
    }
    RETURN_IF_ERROR(status);
  }
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  result.decode_s = seconds(times.back() - times.front());
  result.decode_second_half_s = seconds(times.back() - times[times.size() / 2]);
  result.decode_bytes_read = bytes_read() - bytes_at_start - result.prompt_bytes_read;
  return result;
}

}  // namespace nunspark
