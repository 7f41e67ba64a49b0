#include "engine/engine_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/align.h"
#include "base/cpu_count.h"
#include "decode/sequence_group.h"
#include "models/model.h"

namespace nunspark {
namespace {

// Touched stack and allocator arena of one compute thread, rounded up.
constexpr int64_t kThreadBytes = 128 << 10;

// Far beyond any model; below it no size of ours overflows.
constexpr int64_t kMaxContext = 1 << 26;

constexpr int kMaxThreads = 1024;

// Sequences that decode together: beyond a few hundred, a pass is bound by arithmetic and gains nothing by more.
constexpr int32_t kMaxSequences = 1024;

constexpr double kMaxReadTimeout = 86400;

FloatType KvFloatType(KvType type) {
  switch (type) {
    case KvType::kF32: return FloatType::kF32;
    case KvType::kF16: return FloatType::kF16;
    case KvType::kBF16: return FloatType::kBF16;
  }
  return FloatType::kF16;
}

Status CheckOptions(const ModelFilesImpl& files, const EngineOptions& options) {
  if (IsDrafter(*files.layout().spec)) {
    return UnsupportedError(fmt::format("{}: a model of type {} drafts for another one and cannot run alone",
                                        files.folder(), files.model_type()));
  }
  const int64_t most = files.max_context() > 0 ? std::min(files.max_context(), kMaxContext) : kMaxContext;
  if (options.context < 1 || options.context > most) {
    return InvalidArgumentError(
        fmt::format("a context of {} positions is outside 1 to {}, what this model was made for; shorten the "
                    "prompt or --max-tokens",
                    options.context, most));
  }
  if (options.prefill_chunk < 1) {
    return InvalidArgumentError(fmt::format("prefill chunk must be at least 1, found {}", options.prefill_chunk));
  }
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    return InvalidArgumentError(fmt::format("sequences that run together must be from 1 to {}, found {}", kMaxSequences,
                                            options.max_sequences));
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgumentError(
        fmt::format("threads must be from 0 (all) to {}, found {}", kMaxThreads, options.threads));
  }
  if (options.lookahead_top < 1) {
    return InvalidArgumentError(fmt::format("lookahead must name at least 1 expert, found {}", options.lookahead_top));
  }
  if (!(options.prediction_recall >= 0 && options.prediction_recall <= 1)) {
    return InvalidArgumentError(
        fmt::format("prediction recall must be from 0 to 1, found {}", options.prediction_recall));
  }
  if (!(options.read_timeout_s > 0 && options.read_timeout_s <= kMaxReadTimeout)) {
    return InvalidArgumentError(
        fmt::format("a read timeout must be from above 0 to {} s, found {}", kMaxReadTimeout, options.read_timeout_s));
  }
  const double share = options.expert_cache_fraction.value_or(0);
  if (!(share >= 0 && share <= 1)) {
    return InvalidArgumentError(fmt::format("--expert-cache-frac must be from 0 to 1, found {}", share));
  }
  return Status();
}

}  // namespace

Result<EnginePlan> MakeEnginePlan(const ModelFilesImpl& files, const EngineOptions& options) {
  RETURN_IF_ERROR(CheckOptions(files, options));
  const ModelLayout& layout = files.layout();
  EnginePlan plan;
  plan.index = PieceIndex::Build(layout, files.checkpoint().tensors);
  plan.threads = options.threads > 0 ? options.threads : std::min(DefaultThreads(), kMaxThreads);
  // A prompt chunk, which may hold rows of several sequences, and at the least one row of each.
  plan.max_rows = static_cast<int32_t>(std::max<int64_t>(
      std::min<int64_t>(options.prefill_chunk, options.context * options.max_sequences), options.max_sequences));
  plan.kv_positions = AlignUp(options.context, kKvBlockPositions) * options.max_sequences;
  plan.kv_shapes = Model::KvShapes(layout.hparams);
  plan.kv_type = KvFloatType(options.kv);

  MemoryRequest request;
  request.budget_bytes = options.budget_bytes;
  request.memory_bytes = options.memory_bytes;
  request.expert_fraction = options.expert_cache_fraction.value_or(-1);
  request.kv_bytes = KvPool::PlanBytes(plan.kv_shapes, plan.kv_type, plan.kv_positions);
  request.scratch_bytes =
      Model::ScratchBytes(layout, plan.threads, plan.max_rows, options.numerics) + plan.threads * kThreadBytes +
      SequenceGroup::PlanBytes(plan.kv_shapes, options.context, layout.hparams.vocab_size, options.max_sequences);
  ASSIGN_OR_RETURN(plan.memory, MakeMemoryPlan(layout, plan.index, request, MeasureSystemMemory()));
  return plan;
}

}  // namespace nunspark
