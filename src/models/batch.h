// Batch: the only input of a forward pass. One-token decode, prompt chunks and many sequences differ in its contents.
#ifndef NUNSPARK_MODELS_BATCH_H_
#define NUNSPARK_MODELS_BATCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "nunspark/status.h"

namespace nunspark {

struct Row {
  int32_t token = 0;
  int32_t position = 0;     // absolute, in its sequence
  int32_t sequence = 0;     // index into Batch::sequences
  int32_t rope_length = 0;  // RopeTable::Fill's length
  // Its keys and values go to so many of Batch::sequences, from `sequence` on: a node of a draft tree is part of
  // several paths. It attends in the first of them.
  int32_t copies = 1;
};

// Rows of one sequence, copies included, come in increasing position, without gaps, from the sequence's stored length
// on.
struct Batch {
  std::vector<Row> rows;
  std::vector<KvSequence*> sequences;
  std::vector<int32_t> logit_rows;  // increasing indices of the rows whose logits are wanted
  // Ends the pass between layers when it becomes true; nullptr: nothing does.
  const std::atomic<bool>* cancelled = nullptr;
};

// Where a row's keys and values go.
inline std::span<KvSequence* const> SequencesOf(const Batch& batch, const Row& row) {
  return std::span(batch.sequences).subspan(static_cast<size_t>(row.sequence), static_cast<size_t>(row.copies));
}

// What comes out for logit_rows[first .. first + count).
struct HeadRows {
  int32_t first = 0;
  int32_t count = 0;
  const float* logits = nullptr;  // [count, vocab_size]
  const float* hidden = nullptr;  // [count, model_dim], after the final norm: what the logits are made from
};

// Receives all of logit_rows in order, a few at a time; the memory is reused afterwards. An error ends the pass.
using LogitsSink = std::function<Status(const HeadRows& rows)>;

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_BATCH_H_
