// What an engine reserves for a model, decided before anything is reserved. The engine runs on it and `inspect` prints
// it, so that planning and running never disagree.
#ifndef NUNSPARK_ENGINE_ENGINE_PLAN_H_
#define NUNSPARK_ENGINE_ENGINE_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/model_files.h"
#include "kv/kv_cache.h"
#include "nunspark/options.h"
#include "weights/memory_plan.h"
#include "weights/piece_index.h"

namespace nunspark {

struct EnginePlan {
  PieceIndex index;
  int threads = 1;
  int32_t max_rows = 1;                 // of one pass
  int64_t kv_positions = 0;             // of all sequences, each in blocks of its own
  std::vector<KvLayerShape> kv_shapes;  // [layers]
  FloatType kv_type = FloatType::kF16;
  MemoryPlan memory;
};

// Errors: kInvalidArgument for options out of range; MakeMemoryPlan's.
Result<EnginePlan> MakeEnginePlan(const ModelFilesImpl& files, const EngineOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_ENGINE_PLAN_H_
