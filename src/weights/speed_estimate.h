// What a memory plan will do: bytes read per token, expected hits, tokens per second. Arithmetic on the plan and two
// rates of the machine; nothing is read.
#ifndef NUNSPARK_WEIGHTS_SPEED_ESTIMATE_H_
#define NUNSPARK_WEIGHTS_SPEED_ESTIMATE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/model_layout.h"
#include "weights/memory_plan.h"
#include "weights/piece_index.h"

namespace nunspark {

// Bytes per second.
struct MachineRates {
  double drive = 0;   // scattered reads, as the drive probe measures them
  double memory = 0;  // front to back, by as many threads as compute
};

struct SpeedEstimate {
  double expert_hit_rate = 1;  // 1 for a model without experts
  double read_bytes_per_token = 0;
  double drive_s = 0;       // per token; reading the above
  double compute_s = 0;     // per token; all weights that a token uses, from memory
  double tokens_per_s = 0;  // 0 when a rate is unknown
  std::string_view bound;   // "drive", "memory"; of the larger of the two times
};

// Share of a token's experts that a cache of `slots` of all `experts` holds, when nothing is known about the model's
// routing: 1 - (1 - s)^(1 + log2(experts per layer / experts per token)) with s = slots / experts. The exponent says
// how much likelier an expert in memory is to be chosen than any expert; docs/measurements/hit-rate.md compares the
// formula with published figures. `experts`, `slots`: of all layers.
double TypicalHitRate(int64_t slots, int64_t experts, int64_t experts_per_layer, int64_t experts_per_token);

// Decoding one token at a time under `plan`. Reads of a layer's experts begin when its router has chosen them: they
// overlap with the products of that layer's experts but the last, not with the rest of the layers. `hit_rate`: of a
// trace, else the typical one.
SpeedEstimate EstimateSpeed(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                            const MachineRates& rates, std::optional<double> hit_rate = std::nullopt);

// The smallest budget at which decoding is kKneeShare as fast as with all weights in memory: more gains little. Between
// plan.floor_bytes and plan.full_bytes. `plan`: of any budget.
inline constexpr double kKneeShare = 0.8;
int64_t KneeBudget(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                   const MachineRates& rates);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_SPEED_ESTIMATE_H_
