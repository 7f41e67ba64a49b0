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
#include "weights/memory_plan.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark {

struct HiddenDraftPlan {
  DrafterFiles files;
  PieceIndex index;
  int32_t max_rows = 1;  // of one step
  MemoryPlan memory;
};

// For drafts of `shape` of so many sequences at once.
HiddenDraftPlan PlanHiddenDraft(DrafterFiles files, const TreeShape& shape, int32_t sequences, int threads,
                                Numerics numerics);

struct HiddenDraft {
  std::unique_ptr<PieceCache> cache;
  std::unique_ptr<DraftNetwork> network;
};

// `queue` has plan.index's paths open. Plan, target and pool must outlive the result. Errors: PieceCache::Create's;
// DraftNetwork::Create's.
Result<HiddenDraft> StartHiddenDraft(const HiddenDraftPlan& plan, const ModelLayout& target,
                                     WeightSource& target_weights, ThreadPool& pool, std::unique_ptr<ReadQueue> queue,
                                     const PieceCacheOptions& options, Numerics numerics);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_HIDDEN_DRAFT_H_
