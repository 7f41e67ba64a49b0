// SequenceGroup: the decoding loop, of one sequence or of many together, each weight read once for all of them.
//
// A step is one pass of the model: for every sequence that is being decoded its last token and what a drafter proposes
// to follow it, and the next rows of prompts that are not done. Sequences join before any step and leave as they end,
// and each gets the very tokens that it gets alone, without drafts: a row's logits do not depend on what else is in its
// batch, samples are keyed by the sequence's own seed and positions, and a drafted token is kept where it is the one
// that the target picks (GroupTarget::accept_top_k > 1 relaxes that). What to put into a step is decided in FillBatch
// alone. Used by one thread at a time.
#ifndef NUNSPARK_DECODE_SEQUENCE_GROUP_H_
#define NUNSPARK_DECODE_SEQUENCE_GROUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decode/draft_governor.h"
#include "decode/drafter.h"
#include "decode/sequence_run.h"
#include "kv/kv_cache.h"
#include "kv/prefix_store.h"
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
  KvPool& kv;                          // room for every sequence that joins, and PlanTreePositions
  int64_t context = 0;                 // positions of one sequence
  int32_t max_sequences = 1;           // at most model.max_rows()
  int32_t prefill_chunk = 1024;        // rows of prompts in one step
  const std::atomic<bool>& cancelled;  // ends a step between layers
  std::span<const int32_t> stop_ids;
  std::function<int64_t()> bytes_read;  // of the drive, so far

  PrefixStore* prefixes = nullptr;  // of what came before; none: every prompt from its beginning

  Drafter* drafter = nullptr;  // none: plain decoding
  TreeShape shape = TreeShape::Chain(0);
  bool governed = true;      // else always drafts of the whole shape
  int32_t accept_top_k = 1;  // a drafted token among so many best ones is kept, whether or not it is picked
  // While sequences decode, prompts beside them take so many rows that a step lasts about as long as this; 0: all that
  // fit.
  double step_target_s = 0;
};

struct GroupCallbacks {
  // After each token, EOS included. Returning false ends the sequence (FinishReason::kCancelled).
  std::function<bool(int32_t tag, const GeneratedToken& token)> on_token;
  // Prompt tokens done so far. Returning false ends the sequence likewise. May be empty.
  std::function<bool(int32_t tag, int64_t done, int64_t total)> on_prompt;
  // A sequence has left. Called once for each that joined.
  std::function<void(int32_t tag, Result<GenerateResult> result)> on_end;
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
  // return to the pool before the step does. Errors: the pass's; kCancelled leaves every sequence as it was, after any
  // other the group can only be emptied, by EndAll. REQUIRES: !empty().
  Status Step();

  // Ends a sequence with FinishReason::kCancelled; does nothing when none has this tag. Not to be called by callbacks.
  void Leave(int32_t tag);
  // Ends all: with kCancelled for an ok status, else with that error.
  void EndAll(const Status& status);

  bool empty() const { return members_.empty(); }
  int32_t size() const { return static_cast<int32_t>(members_.size()); }

  // What plans need. Bytes of one sequence beside its KV blocks, times max_sequences, and of the group itself.
  struct Needs {
    std::span<const KvLayerShape> layers;
    int64_t context = 0;
    int64_t vocab_size = 0;
    int64_t model_dim = 0;
    int32_t max_sequences = 1;
    TreeShape shape = TreeShape::Chain(0);
  };
  static int64_t PlanBytes(const Needs& needs);
  // Positions of keys and values that the paths of draft trees take, beside those of the sequences.
  static int64_t PlanTreePositions(const Needs& needs);
  // Rows of a pass in which all sequences decode with drafts.
  static int64_t PlanRows(const Needs& needs) { return int64_t{needs.max_sequences} * (1 + needs.shape.nodes()); }

 private:
  static constexpr int32_t kRoot = -1;
  static constexpr int32_t kDone = -2;

  struct Member {
    Member(int32_t its_tag, int32_t its_slot, const SequenceRequest& request, const GroupTarget& target,
           SamplerScratch& scratch);

    // Tokens that are known and not stored yet: what of the sequence has to be computed.
    int64_t pending() const { return std::ssize(tokens) - kv.length(); }

    const int32_t tag;
    const int32_t slot;
    std::vector<int32_t> tokens;  // prompt and what was generated
    KvSequence kv;
    SequenceRun run;
    std::vector<float> hidden;  // [model_dim] of the last processed position, for a drafter that wants it
    AcceptanceRate acceptance;
    Draft draft;
    bool decoding = false;  // everything is stored but the token picked last

    // Of one step.
    int64_t base = 0;         // stored before it
    int32_t first_path = -1;  // of its tree, in paths_; -1: a chain
    int32_t at = kDone;       // the node whose logits come next
    int32_t reached = kRoot;  // the last node on the way that was kept
    int32_t accepted = 0;     // drafted tokens
  };
  // Whose logits a row of batch_.logit_rows is, and of which node.
  struct Pick {
    Member* member;
    int32_t node;
  };

  Status FillBatch();
  Status MakeDrafts(std::span<Member* const> decoding);
  int32_t DraftLength(const Member& member, int32_t decoding) const;
  Status AddDecodingRows(Member& member);
  Status AddPromptRows();
  Status AddRows(Member& member, int64_t count);
  void Walk(const Pick& pick, const float* logits, const float* hidden);
  int32_t ChildKept(const Member& member, int32_t node, int32_t chosen, const float* logits) const;
  void KeepPath(Member& member);
  void RecordPass(double pass_s);
  bool Deliver(Member& member, int64_t bytes_read);
  void End(Member& member, const Status& status);
  void KeepPrefix(const Member& member);
  void Sweep();

  const GroupTarget target_;
  const GroupCallbacks callbacks_;
  const int32_t paths_per_sequence_;  // 0: no trees
  SamplerScratch scratch_;
  std::vector<std::unique_ptr<Member>> members_;  // in the order of joining
  std::vector<int32_t> free_slots_;
  std::vector<std::unique_ptr<KvSequence>> paths_;  // [max_sequences * paths_per_sequence_]
  DraftGovernor governor_;
  AcceptanceRate acceptance_;      // of all sequences
  std::vector<TreeShape> shapes_;  // chains by their length, or the tree alone

  // Of one step; kept, so that a step allocates nothing.
  Batch batch_;
  std::vector<Pick> picks_;
  std::vector<Member*> decoding_;
  std::vector<DraftRequest> requests_;
  int64_t prompt_rows_ = 0;
  double draft_s_ = 0;
  int32_t draft_steps_ = 0;
  bool draft_known_ = true;  // whether draft_s_ is worth remembering
  double prompt_row_s_ = 0;  // of a row of a prompt beside others, about
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SEQUENCE_GROUP_H_
