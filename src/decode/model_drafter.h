// ModelDrafter: a smaller model drafts (Leviathan et al., arXiv:2211.17192; Chen et al., arXiv:2302.01318).
//
// It keeps its own keys and values of every sequence, catches up with what the target accepted, and draws with the
// target's keys: equal logits give equal tokens, whatever the temperature.
#ifndef NUNSPARK_DECODE_MODEL_DRAFTER_H_
#define NUNSPARK_DECODE_MODEL_DRAFTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decode/drafter.h"
#include "decode/sampler.h"
#include "kv/kv_cache.h"
#include "models/batch.h"
#include "models/model.h"
#include "models/weight_source.h"

namespace nunspark {

// What a draft model runs on. Borrowed.
struct DraftTarget {
  Model& model;
  WeightSource& weights;
  KvPool& kv;                // room for `slots` sequences of `context` positions, and for the paths of trees
  int64_t context = 0;       // positions, those of drafts included
  int32_t slots = 1;         // sequences
  int32_t paths = 1;         // of a tree; 1: chains only
  int64_t target_vocab = 0;  // tokens beyond it are not drafted
};

class ModelDrafter : public Drafter {
 public:
  explicit ModelDrafter(const DraftTarget& target);

  bool WantsHidden() const override { return false; }
  bool DraftsTrees() const override { return true; }
  void Begin(int32_t slot) override;
  int32_t WantedLength(int32_t, int32_t most) override { return most; }
  Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) override;
  void Observe(int32_t, int32_t, int32_t) override {}

  // Bytes beside its model and keys and values, for the memory plan.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, int64_t context, int32_t slots, int32_t paths,
                           int64_t vocab_size);
  // Positions of the keys and values that `slots` sequences of `context` need, trees included.
  static int64_t PlanPositions(int64_t context, int32_t slots, int32_t paths, int32_t depth);

 private:
  struct Slot {
    std::unique_ptr<KvSequence> kv;
    std::vector<int32_t> stored;  // the tokens whose keys and values are there
  };

  Status CatchUp(std::span<const DraftRequest> requests);
  Status DraftLevel(std::span<const DraftRequest> requests, int32_t level);
  Status Run(std::span<const DraftRequest> requests, int32_t level);
  void AddChildren(const DraftRequest& request, int32_t parent, int32_t level, const float* logits);
  bool Fits(const DraftRequest& request) const;

  const DraftTarget target_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<KvSequence>> paths_;  // [slots * paths], of trees
  SamplerScratch scratch_;

  // Of one pass; kept, so that a proposal allocates nothing.
  Batch batch_;
  struct Wanted {
    size_t request = 0;
    int32_t node = -1;  // whose children these logits give; -1: the root
  };
  std::vector<Wanted> wanted_;        // [logit rows]
  std::vector<int32_t> level_begin_;  // [requests] the first node of the level that runs next
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_MODEL_DRAFTER_H_
