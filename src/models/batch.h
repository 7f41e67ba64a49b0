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
};

// Rows of one sequence come in increasing position, without gaps, from the sequence's stored length on.
struct Batch {
  std::vector<Row> rows;
  std::vector<KvSequence*> sequences;
  std::vector<int32_t> logit_rows;  // increasing indices of the rows whose logits are wanted
  // Ends the pass between layers when it becomes true; nullptr: nothing does.
  const std::atomic<bool>* cancelled = nullptr;
};

// Receives logits [count, vocab_size] for logit_rows[first .. first + count), in order, a few rows at a time; the
// memory is reused afterwards. An error ends the pass.
using LogitsSink = std::function<Status(int32_t first, int32_t count, const float* logits)>;

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_BATCH_H_
