// Forward passes over one sequence for their logits: a prompt in chunks, then token by token.
#ifndef NUNSPARK_DECODE_GENERATE_H_
#define NUNSPARK_DECODE_GENERATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "models/batch.h"
#include "models/model.h"
#include "models/weight_source.h"
#include "nunspark/session.h"
#include "nunspark/status.h"

namespace nunspark {

// What a run works on. Borrowed.
struct Target {
  Model& model;
  WeightSource& weights;
  KvSequence& kv;
  int32_t prefill_chunk = 1024;        // at most model.max_rows()
  const std::atomic<bool>& cancelled;  // checked between passes
  Batch batch;                         // reused, so that a step allocates nothing
  std::vector<int32_t> tokens = {};    // of the sequence, in case it has to be computed anew
};

// Appends the rows of tokens [begin, end) of a sequence to a batch, where it is batch.sequences[sequence]. Rotations
// that depend on the length take that of all `tokens`: a prompt's for its rows, position + 1 for a generated token.
void AppendRows(std::span<const int32_t> tokens, int64_t begin, int64_t end, int32_t sequence, Batch& batch);

// Whether the model rotates by other frequencies from a sequence with a token at `position` on. Then the whole sequence
// is computed anew, as in the authors' code.
bool ChangesFrequencies(const Model& model, int64_t position);

// Which logits of a prompt are wanted.
enum class PromptLogits { kLast, kAll };

// Runs `tokens` as a new sequence, in chunks. Errors: kInvalidArgument for an empty prompt or an id outside the
// vocabulary; kCancelled; kResourceExhausted beyond the planned context; those of the reads.
Status RunPrompt(Target& target, std::span<const int32_t> tokens, PromptLogits wanted, const LogitsCallback& callback,
                 const PromptCallback& on_progress = {});

// Runs one more token at the end of the sequence, or the whole sequence anew where it ChangesFrequencies.
Status RunToken(Target& target, int32_t token, const std::function<Status(const float* logits)>& callback);

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_GENERATE_H_
