// Drafter: proposes tokens that the target then checks, many in one pass (speculative decoding: Leviathan et al.,
// arXiv:2211.17192).
//
// A proposal changes how fast tokens come, never which: a drafted token is kept where it equals what the target picks
// itself. So drafters draw with the target's own keys (decode/sampler.h), which makes them agree as often as can be.
#ifndef NUNSPARK_DECODE_DRAFTER_H_
#define NUNSPARK_DECODE_DRAFTER_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "decode/draft.h"
#include "kv/kv_cache.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark {

class NgramLength;

// What a drafter sees of one sequence. Borrowed for the call.
struct DraftRequest {
  int32_t slot = 0;                 // whose state in the drafter it is
  std::span<const int32_t> tokens;  // prompt and what was generated; the target has not processed the last one yet
  const float* hidden = nullptr;  // [model_dim] the target's state after its final norm at the last processed position;
                                  // nullptr unless the drafter wants it
  KvSequence* kv = nullptr;       // the target's, of tokens.size() - 1 positions
  const SamplingOptions* sampling = nullptr;
  const TreeShape* shape = nullptr;  // wanted; less is allowed of a chain
  Draft* draft = nullptr;            // the result, empty at first
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Whether DraftRequest::hidden is needed: then the target keeps it for every sequence.
  virtual bool WantsHidden() const = 0;

  // Whether it can draft trees with several children.
  virtual bool DraftsTrees() const = 0;

  // A new sequence takes the slot, 0 <= slot < the number of sequences it was made for. What was known of the one
  // before is forgotten.
  virtual void Begin(int32_t slot) = 0;

  // How many tokens of a chain are worth asking for at all, as the drafter itself sees it: at most `most`. Called once
  // before each proposal.
  virtual int32_t WantedLength(int32_t slot, int32_t most) = 0;

  // Drafts for all requests, which are of different slots. Errors: of its own reads; kCancelled once `cancelled` is
  // set.
  virtual Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) = 0;

  // What became of a proposal: `accepted` of `proposed` tokens, of a tree of so many levels. Not called where nothing
  // was proposed.
  virtual void Observe(int32_t slot, int32_t proposed, int32_t accepted) = 0;

  // Of prompt lookup, for the report.
  virtual const NgramLength* ngram_length(int32_t) const { return nullptr; }
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_DRAFTER_H_
