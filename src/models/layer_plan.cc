#include "models/layer_plan.h"

#include "base/check.h"

namespace nunspark {
namespace {

// Absent roles keep the default, whose data index is -1.
WeightUse UseOf(const PieceLayout& piece, Role role) {
  const WeightUse* const use = FindWeight(piece, role);
  return use == nullptr ? WeightUse{} : *use;
}

FloatType FloatTypeOf(const WeightFormat& format) {
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    if (format == FloatFormat(type)) return type;
  }
  CHECK(false && "vectors are plain floats");
  return FloatType::kF32;
}

}  // namespace

std::vector<LayerPlan> MakeLayerPlans(const ModelLayout& layout) {
  std::vector<LayerPlan> plans;
  std::vector<int32_t> kv_index(layout.hparams.layer.size(), -1);
  int32_t kept = 0;
  for (int32_t i = 0; i < layout.hparams.layers; ++i) {
    LayerPlan& plan = plans.emplace_back();
    const size_t layer = static_cast<size_t>(i);
    plan.index = i;
    plan.core = layout.core[layer];
    plan.first_expert = layout.first_expert[layer];
    plan.shape = layout.hparams.layer[layer];
    plan.keeps_kv = plan.shape.kv_layer == i;
    if (plan.keeps_kv) kv_index[layer] = kept++;
    plan.kv_index = plan.shape.kv_layer < 0 ? -1 : kv_index[static_cast<size_t>(plan.shape.kv_layer)];
    const PieceLayout& core = layout.pieces[static_cast<size_t>(plan.core)];
    const std::pair<WeightUse LayerPlan::*, Role> uses[] = {
        {&LayerPlan::attention_norm, Role::kAttentionNorm},
        {&LayerPlan::query, Role::kQuery},
        {&LayerPlan::key, Role::kKey},
        {&LayerPlan::value, Role::kValue},
        {&LayerPlan::attention_out, Role::kAttentionOut},
        {&LayerPlan::query_norm, Role::kQueryNorm},
        {&LayerPlan::key_norm, Role::kKeyNorm},
        {&LayerPlan::sinks, Role::kSinks},
        {&LayerPlan::post_attention_norm, Role::kPostAttentionNorm},
        {&LayerPlan::query_a, Role::kQueryA},
        {&LayerPlan::query_a_norm, Role::kQueryANorm},
        {&LayerPlan::query_b, Role::kQueryB},
        {&LayerPlan::kv_a, Role::kKvA},
        {&LayerPlan::kv_a_norm, Role::kKvANorm},
        {&LayerPlan::kv_b, Role::kKvB},
        {&LayerPlan::key_b, Role::kKeyB},
        {&LayerPlan::value_b, Role::kValueB},
        {&LayerPlan::ffn_norm, Role::kFfnNorm},
        {&LayerPlan::gate, Role::kGate},
        {&LayerPlan::up, Role::kUp},
        {&LayerPlan::down, Role::kDown},
        {&LayerPlan::post_ffn_norm, Role::kPostFfnNorm},
        {&LayerPlan::xielu_alpha_p, Role::kXieluAlphaP},
        {&LayerPlan::xielu_alpha_n, Role::kXieluAlphaN},
        {&LayerPlan::xielu_beta, Role::kXieluBeta},
        {&LayerPlan::xielu_epsilon, Role::kXieluEpsilon},
        {&LayerPlan::router, Role::kRouter},
        {&LayerPlan::router_scale, Role::kRouterScale},
        {&LayerPlan::per_expert_scale, Role::kPerExpertScale},
        {&LayerPlan::expert_norm, Role::kExpertNorm},
        {&LayerPlan::post_dense_norm, Role::kPostDenseNorm},
        {&LayerPlan::post_expert_norm, Role::kPostExpertNorm},
        {&LayerPlan::per_layer_gate, Role::kPerLayerGate},
        {&LayerPlan::per_layer_projection, Role::kPerLayerProjection},
        {&LayerPlan::post_per_layer_norm, Role::kPostPerLayerNorm},
        {&LayerPlan::layer_scalar, Role::kLayerScalar},
    };
    for (const auto& [member, role] : uses) plan.*member = UseOf(core, role);
    if (!plan.moe()) continue;
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
          .biases = use.biases < 0 ? nullptr : lease.part(use.biases),
          .row_begin = use.row_begin,
          .row_step = use.row_step,
          .stored_rows = use.stored_rows};
}

FloatVector VectorOf(const WeightUse& use, const Lease& lease) {
  if (!Has(use)) return {};
  return {.type = FloatTypeOf(use.format), .size = use.cols, .data = lease.part(use.data)};
}

float NumberOf(const WeightUse& use, const Lease& lease) {
  float number = 0;
  DecodeFloats(VectorOf(use, lease), &number);
  return number;
}

FloatVector BiasOf(const WeightUse& use, const Lease& lease) {
  if (use.bias < 0) return {};
  return {.type = use.bias_type,
          .size = use.rows,
          .data = lease.part(use.bias) + use.row_begin * FloatBytes(use.bias_type),
          .step = use.row_step};
}

}  // namespace nunspark
