// What an engine reserves for a model, decided before anything is reserved. The engine runs on it and `inspect` prints
// it, so that planning and running never disagree.
#ifndef NUNSPARK_ENGINE_ENGINE_PLAN_H_
#define NUNSPARK_ENGINE_ENGINE_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "decode/draft.h"
#include "engine/hidden_draft.h"
#include "engine/model_files.h"
#include "kv/kv_cache.h"
#include "nunspark/options.h"
#include "weights/memory_plan.h"
#include "weights/piece_index.h"

namespace nunspark {

// What runs one model.
struct ModelPlan {
  PieceIndex index;
  int threads = 1;
  int32_t max_rows = 1;  // of one pass
  KvRoom kv_room;
  std::vector<KvLayerShape> kv_shapes;  // [layers]
  MemoryPlan memory;
};

// A draft model beside the target: everything of it stays in memory.
struct DraftModelPlan {
  std::unique_ptr<ModelFilesImpl> files;
  ModelPlan model;
  int64_t context = 0;  // positions of a sequence, drafts included
};

struct EnginePlan : ModelPlan {
  TreeShape draft_shape = TreeShape::Chain(0);
  // What drafts; at most one of them.
  std::unique_ptr<DraftModelPlan> draft;
  std::unique_ptr<HiddenDraftPlan> hidden_draft;
  int64_t kv_tokens = 0;  // of all sequences together
};

// How keys and values of layers without a window are stored.
KvFormat KvFormatOf(const EngineOptions& options);

// Opens what drafts, too. Errors: kInvalidArgument for options out of range, and for a draft model that cannot draft
// for this one; ModelFiles::Open's; MakeMemoryPlan's.
Result<EnginePlan> MakeEnginePlan(const ModelFilesImpl& files, const EngineOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_ENGINE_PLAN_H_
