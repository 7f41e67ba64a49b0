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
  int64_t window = 0;         // positions a query sees, itself included; 0 = all

  WeightUse attention_norm, query, key, value, attention_out, query_norm, key_norm;
  WeightUse ffn_norm, gate, up, down;
  WeightUse router, expert_gate, expert_up, expert_down;  // expert_*: as indices into an expert's parts

  bool moe() const { return first_expert >= 0; }
};

std::vector<LayerPlan> MakeLayerPlans(const ModelLayout& layout);

// A weight's bytes inside a leased piece.
WeightMatrix MatrixOf(const WeightUse& use, const Lease& lease);
FloatVector VectorOf(const WeightUse& use, const Lease& lease);  // norms
FloatVector BiasOf(const WeightUse& use, const Lease& lease);    // absent: data == nullptr

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_LAYER_PLAN_H_
