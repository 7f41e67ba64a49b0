#include "decode/generate.h"

#include <algorithm>

#include "decode/sequence_run.h"

namespace nunspark {

void AppendRows(std::span<const int32_t> tokens, int64_t begin, int64_t end, int32_t sequence, Batch& batch) {
  const int32_t length = static_cast<int32_t>(tokens.size());
  for (int64_t i = begin; i < end; ++i) {
    batch.rows.push_back({.token = tokens[static_cast<size_t>(i)],
                          .position = static_cast<int32_t>(i),
                          .sequence = sequence,
                          .rope_length = length});
  }
}

bool ChangesFrequencies(const Model& model, int64_t position) {
  return position > 0 && position == model.hparams().rope_switch_length();
}

Status RunPrompt(Target& target, std::span<const int32_t> tokens, PromptLogits wanted, const LogitsCallback& callback,
                 const PromptCallback& on_progress) {
  RETURN_IF_ERROR(CheckTokens(tokens, target.model.hparams().vocab_size));
  target.kv.Truncate(0);
  if (tokens.data() != target.tokens.data()) target.tokens.assign(tokens.begin(), tokens.end());
  const int32_t total = static_cast<int32_t>(tokens.size());
  const int32_t chunk = std::clamp(target.prefill_chunk, 1, target.model.max_rows());
  Batch& batch = target.batch;
  batch.sequences.assign(1, &target.kv);
  batch.cancelled = &target.cancelled;
  for (int32_t begin = 0; begin < total; begin += chunk) {
    if (target.cancelled.load(std::memory_order_relaxed)) return CancelledError("cancelled");
    const int32_t end = std::min(total, begin + chunk);
    RETURN_IF_ERROR(target.kv.Reserve(end));
    batch.rows.clear();
    batch.logit_rows.clear();
    AppendRows(tokens, begin, end, 0, batch);
    const int32_t first_wanted = wanted == PromptLogits::kAll ? begin : total - 1;
    for (int32_t i = std::max(begin, first_wanted); i < end; ++i) batch.logit_rows.push_back(i - begin);
    const int32_t first_row = wanted == PromptLogits::kAll ? begin : total - 1;
    RETURN_IF_ERROR(target.model.Forward(batch, target.weights, [&](const HeadRows& head) {
      return callback(first_row + head.first, head.count, head.logits);
    }));
    if (on_progress && !on_progress(end, total)) return CancelledError("cancelled");
  }
  return Status();
}

Status RunToken(Target& target, int32_t token, const std::function<Status(const float* logits)>& callback) {
  RETURN_IF_ERROR(CheckTokens({&token, 1}, target.model.hparams().vocab_size));
  if (target.cancelled.load(std::memory_order_relaxed)) return CancelledError("cancelled");
  const int64_t position = target.kv.length();
  // A run that was cancelled or failed on the way has stored less than all tokens.
  const bool incomplete = static_cast<size_t>(position) != target.tokens.size();
  target.tokens.push_back(token);
  if (ChangesFrequencies(target.model, position) || incomplete) {
    return RunPrompt(target, target.tokens, PromptLogits::kLast,
                     [&](int64_t, int64_t, const float* logits) { return callback(logits); });
  }
  RETURN_IF_ERROR(target.kv.Reserve(position + 1));
  target.batch.rows.clear();
  AppendRows(target.tokens, position, position + 1, 0, target.batch);
  target.batch.sequences.assign(1, &target.kv);
  target.batch.cancelled = &target.cancelled;
  target.batch.logit_rows.assign(1, 0);
  return target.model.Forward(target.batch, target.weights,
                              [&](const HeadRows& head) { return callback(head.logits); });
}

}  // namespace nunspark
