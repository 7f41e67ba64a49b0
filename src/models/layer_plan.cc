#include "models/layer_plan.h"

#include "base/check.h"

namespace nunspark {
namespace {

// Absent roles keep the default, whose data index is -1.
WeightUse UseOf(const PieceLayout& piece, Role role) {
  const WeightUse* const use = FindWeight(piece, role);
  return use == nullptr ? WeightUse{} : *use;
}

FloatType FloatTypeOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32: return FloatType::kF32;
    case Encoding::kF16: return FloatType::kF16;
    case Encoding::kBF16: return FloatType::kBF16;
    default: break;
  }
  CHECK(false && "vectors are plain floats");
  return FloatType::kF32;
}

}  // namespace

std::vector<LayerPlan> MakeLayerPlans(const ModelLayout& layout) {
  std::vector<LayerPlan> plans;
  for (int32_t i = 0; i < layout.hparams.layers; ++i) {
    LayerPlan& plan = plans.emplace_back();
    const size_t layer = static_cast<size_t>(i);
    plan.index = i;
    plan.core = layout.core[layer];
    plan.first_expert = layout.first_expert[layer];
    plan.window = layout.hparams.window[layer];
    const PieceLayout& core = layout.pieces[static_cast<size_t>(plan.core)];
    plan.attention_norm = UseOf(core, Role::kAttentionNorm);
    plan.query = UseOf(core, Role::kQuery);
    plan.key = UseOf(core, Role::kKey);
    plan.value = UseOf(core, Role::kValue);
    plan.attention_out = UseOf(core, Role::kAttentionOut);
    plan.query_norm = UseOf(core, Role::kQueryNorm);
    plan.key_norm = UseOf(core, Role::kKeyNorm);
    plan.ffn_norm = UseOf(core, Role::kFfnNorm);
    plan.gate = UseOf(core, Role::kGate);
    plan.up = UseOf(core, Role::kUp);
    plan.down = UseOf(core, Role::kDown);
    if (!plan.moe()) continue;
    plan.router = UseOf(core, Role::kRouter);
    const PieceLayout& expert = layout.pieces[static_cast<size_t>(plan.first_expert)];
    plan.expert_gate = UseOf(expert, Role::kExpertGate);
    plan.expert_up = UseOf(expert, Role::kExpertUp);
    plan.expert_down = UseOf(expert, Role::kExpertDown);
  }
  return plans;
}

WeightMatrix MatrixOf(const WeightUse& use, const Lease& lease) {
  return {.format = use.format,
          .rows = use.rows,
          .cols = use.cols,
          .data = lease.part(use.data),
          .scales = use.scales < 0 ? nullptr : lease.part(use.scales),
          .biases = use.biases < 0 ? nullptr : lease.part(use.biases)};
}

FloatVector VectorOf(const WeightUse& use, const Lease& lease) {
  return {.type = FloatTypeOf(use.format.encoding), .size = use.cols, .data = lease.part(use.data)};
}

FloatVector BiasOf(const WeightUse& use, const Lease& lease) {
  if (use.bias < 0) return {};
  return {.type = use.bias_type, .size = use.rows, .data = lease.part(use.bias)};
}

}  // namespace nunspark
