// A drafter that works on the target's hidden state, beside its target. All of it stays in memory: streaming it would
// cost what drafts are to save.
#ifndef NUNSPARK_ENGINE_HIDDEN_DRAFT_H_
#define NUNSPARK_ENGINE_HIDDEN_DRAFT_H_

#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "decode/draft_network.h"
#include "decode/hidden_drafter.h"
#include "engine/drafter_files.h"
#include "io/read_queue.h"
#include "models/model_layout.h"
#include "models/weight_source.h"
#include "nunspark/options.h"
#include "nunspark/status.h"
#include "weights/piece_index.h"

namespace nunspark {

struct HiddenDraftPlan {
  DrafterFiles files;
  PieceIndex index;
  int32_t max_rows = 1;  // of one step
  int64_t bytes = 0;     // of weights and buffers
};

// For drafts of `shape` of so many sequences at once.
HiddenDraftPlan PlanHiddenDraft(DrafterFiles files, const TreeShape& shape, int32_t sequences, int threads,
                                Numerics numerics);

struct HiddenDraft {
  std::unique_ptr<WeightSource> weights;
  std::unique_ptr<DraftNetwork> network;
};

// Reads the weights. All arguments must outlive the result. Errors: the reads'; DraftNetwork::Create's.
Result<HiddenDraft> StartHiddenDraft(const HiddenDraftPlan& plan, const ModelLayout& target,
                                     WeightSource& target_weights, ThreadPool& pool, const ReadQueueOptions& io,
                                     Numerics numerics);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_HIDDEN_DRAFT_H_
