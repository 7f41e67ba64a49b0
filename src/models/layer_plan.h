// LayerPlan: everything a layer's step needs, looked up once at load - sizes, weights by role, piece ids, choices.
#ifndef NUNSPARK_MODELS_LAYER_PLAN_H_
#define NUNSPARK_MODELS_LAYER_PLAN_H_

#include <cstdint>
#include <vector>

#include "models/model_layout.h"
#include "models/weight_source.h"
#include "quant/encoding.h"

namespace nunspark {

struct LayerPlan {
  int32_t index = 0;
  PieceId core = -1;
  PieceId first_expert = -1;  // -1: dense
  LayerShape shape;
  int32_t kv_index = 0;  // whose keys and values it attends to, as an index into Model::KvShapes
  bool keeps_kv = true;  // it stores keys and values under kv_index

  WeightUse attention_norm, query, key, value, attention_out, query_norm, key_norm, sinks, post_attention_norm;
  WeightUse query_a, query_a_norm, query_b, kv_a, kv_a_norm, kv_b, key_b, value_b;
  WeightUse ffn_norm, gate, up, down, post_ffn_norm;
  WeightUse xielu_alpha_p, xielu_alpha_n, xielu_beta, xielu_epsilon;
  WeightUse router, router_scale, per_expert_scale, expert_norm, post_dense_norm, post_expert_norm;
  WeightUse expert_gate, expert_up, expert_down;  // as indices into an expert's parts
  WeightUse per_layer_gate, per_layer_projection, post_per_layer_norm, layer_scalar;

  bool moe() const { return first_expert >= 0; }
};

// Whether the layer has the weight.
inline bool Has(const WeightUse& use) { return use.data >= 0; }

std::vector<LayerPlan> MakeLayerPlans(const ModelLayout& layout);

// A weight's bytes inside a leased piece.
WeightMatrix MatrixOf(const WeightUse& use, const Lease& lease);
FloatVector VectorOf(const WeightUse& use,
                     const Lease& lease);                      // norms and other plain floats; absent: data == nullptr
float NumberOf(const WeightUse& use, const Lease& lease);      // a vector of one
FloatVector BiasOf(const WeightUse& use, const Lease& lease);  // absent: data == nullptr

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_LAYER_PLAN_H_
