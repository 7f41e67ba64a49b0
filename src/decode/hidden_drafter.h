// HiddenDrafter: drafts from the target's hidden state with a DraftNetwork - an EAGLE head or a Gemma 4 assistant.
//
// It keeps nothing between two proposals: each begins with the state that the target left at its last position. Levels
// of drafts run one after the other, those of all sequences in one step of the network. Tokens are drawn with the
// target's keys.
#ifndef NUNSPARK_DECODE_HIDDEN_DRAFTER_H_
#define NUNSPARK_DECODE_HIDDEN_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "decode/draft.h"
#include "decode/draft_network.h"
#include "decode/drafter.h"
#include "decode/sampler.h"

namespace nunspark {

class HiddenDrafter : public Drafter {
 public:
  // `network` must outlive the drafter. It drafts at once for as many sequences as network.max_rows() allows of
  // RowsOf(shape) each.
  explicit HiddenDrafter(DraftNetwork& network);

  // Rows of the network that drafts of one sequence take at once.
  static int32_t RowsOf(const TreeShape& shape);

  // Bytes beside the network, for the memory plan.
  static int64_t PlanBytes(int64_t hidden_dim, int64_t vocab_size, int32_t max_rows);

  bool WantsHidden() const override { return true; }
  bool DraftsTrees() const override { return true; }
  void Begin(int32_t) override {}
  int32_t WantedLength(int32_t, int32_t most) override { return most; }
  Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) override;
  void Observe(int32_t, int32_t, int32_t) override {}

 private:
  // A row of the next step: a node, or the root of a request's draft.
  struct Node {
    size_t request = 0;
    int32_t index = -1;  // in its draft; -1: the root
  };
  // The nodes of one level with what the network takes of each.
  struct Level {
    std::vector<Node> nodes;
    std::vector<DraftRow> rows;
    std::vector<float> hidden;  // [rows, hidden_dim] before each row's token

    void Clear() {
      nodes.clear();
      rows.clear();
      hidden.clear();
    }
  };

  void Add(const DraftRequest& request, const Node& node, int32_t token, const float* hidden, Level& level) const;
  void AddChildren(const DraftRequest& request, const Node& node, int32_t depth, const float* logits,
                   const float* hidden);

  DraftNetwork& network_;
  SamplerScratch scratch_;
  Level level_, next_;  // kept, so that a proposal allocates nothing
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_HIDDEN_DRAFTER_H_
