// SequenceGroup: sequences that are decoded together, each weight read once for all of them.
//
// A step is one pass of the model: one row for every sequence that is being decoded, and the next rows of prompts that
// are not done. Sequences join before any step and leave as they end, and each gets the very tokens that it gets alone:
// a row's logits do not depend on what else is in its batch, and samples are keyed by the sequence's own seed and
// positions. What to put into a step is decided in FillBatch alone. Used by one thread at a time.
#ifndef NUNSPARK_DECODE_SEQUENCE_GROUP_H_
#define NUNSPARK_DECODE_SEQUENCE_GROUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decode/sequence_run.h"
#include "kv/kv_cache.h"
#include "models/batch.h"
#include "models/model.h"
#include "models/weight_source.h"
#include "nunspark/session.h"
#include "nunspark/status.h"

namespace nunspark {

// What a group works on. Borrowed.
struct GroupTarget {
  Model& model;
  WeightSource& weights;
  KvPool& kv;                          // room for max_sequences times context positions
  int64_t context = 0;                 // positions of one sequence
  int32_t max_sequences = 1;           // at most model.max_rows()
  int32_t prefill_chunk = 1024;        // rows of prompts in one step
  const std::atomic<bool>& cancelled;  // ends a step between layers
  std::span<const int32_t> stop_ids;
  std::function<int64_t()> bytes_read;  // of the drive, so far
};

struct GroupCallbacks {
  GroupTokenCallback on_token;
  // A sequence has left. Called once for each that joined.
  std::function<void(int32_t tag, GenerateResult result)> on_end;
};

class SequenceGroup {
 public:
  SequenceGroup(GroupTarget target, GroupCallbacks callbacks);

  // The sequence takes part from the next step on. `tag` is the caller's name for it in callbacks and in Leave; no two
  // sequences of a group at once have the same. Errors: kInvalidArgument for a request that cannot be honoured: an
  // empty prompt, an id outside the vocabulary, options out of range, more tokens than the context has positions;
  // kResourceExhausted when max_sequences have joined already.
  Status Join(int32_t tag, const SequenceRequest& request);

  // One pass. Tokens go to on_token, in the order in which sequences joined; those that end leave, and their blocks
  // return to the pool before the step does. Errors: the pass's; then no sequence has moved, and a further step tries
  // again. REQUIRES: !empty().
  Status Step();

  // Ends a sequence with FinishReason::kCancelled; does nothing when none has this tag. Not to be called by callbacks.
  void Leave(int32_t tag);
  void LeaveAll();

  bool empty() const { return members_.empty(); }
  int32_t size() const { return static_cast<int32_t>(members_.size()); }

  // Bytes of one sequence beside its KV blocks, and of the group itself, for the memory plan.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, int64_t context, int64_t vocab_size,
                           int32_t max_sequences);

 private:
  struct Member {
    Member(int32_t its_tag, const SequenceRequest& request, const GroupTarget& target, SamplerScratch& scratch);

    // Tokens that are known and not stored yet: what of the sequence has to be computed.
    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - kv.length(); }

    int32_t tag;
    std::vector<int32_t> tokens;  // prompt and what was generated
    KvSequence kv;
    SequenceRun run;
  };

  Status FillBatch();
  Status AddRows(Member& member, int64_t most);
  void End(Member& member);

  const GroupTarget target_;
  const GroupCallbacks callbacks_;
  SamplerScratch scratch_;
  std::vector<std::unique_ptr<Member>> members_;  // in the order of joining

  // Of one step; kept, so that a step allocates nothing.
  Batch batch_;
  std::vector<Member*> picking_;  // whose logits are batch_.logit_rows
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SEQUENCE_GROUP_H_
