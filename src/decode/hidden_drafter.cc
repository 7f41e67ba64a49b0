#include "decode/hidden_drafter.h"

#include <algorithm>
#include <utility>

namespace nunspark {

HiddenDrafter::HiddenDrafter(DraftNetwork& network) : network_(network) {
  for (Level* level : {&level_, &next_}) {
    level->nodes.reserve(static_cast<size_t>(network.max_rows()));
    level->rows.reserve(static_cast<size_t>(network.max_rows()));
    level->hidden.reserve(static_cast<size_t>(network.max_rows() * network.hidden_dim()));
  }
}

int32_t HiddenDrafter::RowsOf(const TreeShape& shape) {
  int32_t most = 1, level = 1;
  // The last level is drafted and never runs.
  for (int32_t i = 0; i + 1 < shape.depth(); ++i) {
    level *= shape.branching()[static_cast<size_t>(i)];
    most = std::max(most, level);
  }
  return most;
}

int64_t HiddenDrafter::PlanBytes(int64_t hidden_dim, int64_t vocab_size, int32_t max_rows) {
  const int64_t row = static_cast<int64_t>(sizeof(Node) + sizeof(DraftRow)) + hidden_dim * 4;
  return 2 * max_rows * row + SamplerScratch::PlanBytes(vocab_size);
}

Status HiddenDrafter::Propose(std::span<const DraftRequest> requests, const std::atomic<bool>&) {
  level_.Clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].shape->depth() == 0) continue;
    Add(requests[i], {.request = i}, requests[i].tokens.back(), requests[i].hidden, level_);
  }
  const int64_t dim = network_.hidden_dim();
  for (int32_t depth = 0; !level_.rows.empty(); ++depth) {
    next_.Clear();
    RETURN_IF_ERROR(network_.Step(level_.rows, level_.hidden.data(), [&](int32_t row, const float* logits) {
      const Node& node = level_.nodes[static_cast<size_t>(row)];
      AddChildren(requests[node.request], node, depth, logits, level_.hidden.data() + row * dim);
    }));
    std::swap(level_, next_);
  }
  return Status();
}

void HiddenDrafter::Add(const DraftRequest& request, const Node& node, int32_t token, const float* hidden,
                        Level& level) const {
  level.nodes.push_back(node);
  level.rows.push_back(
      {.token = token, .position = static_cast<int32_t>(std::ssize(request.tokens)) - 1, .kv = request.kv});
  level.hidden.insert(level.hidden.end(), hidden, hidden + network_.hidden_dim());
}

// `hidden`: after the node's token.
void HiddenDrafter::AddChildren(const DraftRequest& request, const Node& node, int32_t depth, const float* logits,
                                const float* hidden) {
  const int32_t count = request.shape->branching()[static_cast<size_t>(depth)];
  int32_t tokens[Sampler::kMostWinners];
  Sampler sampler(*request.sampling, network_.vocab_size(), scratch_);
  const size_t found = sampler.SampleBest(logits,
                                          {.seed = request.sampling->seed,
                                           .choice = request.sampling->choice,
                                           .position = static_cast<uint32_t>(std::ssize(request.tokens) + depth)},
                                          {tokens, static_cast<size_t>(count)});
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    // A tree is always whole: where the filters leave fewer tokens, the last one stands again and is never taken.
    const int32_t token = tokens[std::min(i, found - 1)];
    const int32_t child = request.draft->size();
    request.draft->Add(token, node.index);
    if (depth + 1 == request.shape->depth()) continue;
    Add(request, {.request = node.request, .index = child}, token, hidden, next_);
  }
}

}  // namespace nunspark
