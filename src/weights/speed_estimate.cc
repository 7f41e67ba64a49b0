#include "weights/speed_estimate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nunspark {
namespace {

// Fitted to runs at seven budgets (docs/measurements/budgets.md). Of what memory gives to plain reading, the products
// of weights reach this share; of what the drive gives to the probe, a run's reads reach this one, since each layer's
// begin and end by themselves.
constexpr double kShareOfMemoryRate = 0.85;
constexpr double kShareOfDriveRate = 0.85;
// What a layer takes besides, for threads that meet and vectors that are no weights; one with experts meets more often.
constexpr double kLayerSeconds = 20e-6;
constexpr double kMoeSeconds = 60e-6;
// From the router's choice to the first byte of an expert.
constexpr double kFirstByteSeconds = 200e-6;

// What one token needs.
struct Work {
  double core_bytes = 0;      // of weights, the head among them
  double expert_bytes = 0;    // of the experts chosen
  double streamed_bytes = 0;  // cores that do not stay, from the drive
  double expert_read_bytes = 0;
  int64_t experts = 0;
  int32_t moe_layers = 0;
};

Work WorkOf(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan) {
  Work work;
  const HParams& h = layout.hparams;
  for (size_t layer = 0; layer < layout.core.size(); ++layer) {
    const PieceId core = layout.core[layer];
    work.core_bytes += static_cast<double>(layout.pieces[static_cast<size_t>(core)].bytes);
    if (static_cast<int32_t>(layer) >= plan.pinned_cores) {
      work.streamed_bytes += static_cast<double>(index.piece(core).read_bytes);
    }
    const PieceId expert = layout.first_expert[layer];
    if (expert < 0) continue;
    // Experts of one layer differ by what their places in the file add to a direct read.
    int64_t read_bytes = 0;
    for (PieceId id = expert; id < expert + h.experts; ++id) read_bytes += index.piece(id).read_bytes;
    const auto used = static_cast<double>(std::min(h.experts_per_token, h.experts));
    const auto bytes = static_cast<double>(layout.pieces[static_cast<size_t>(expert)].bytes);
    work.expert_bytes += used * bytes;
    work.expert_read_bytes += used * static_cast<double>(read_bytes) / static_cast<double>(h.experts);
    work.experts += h.experts;
    ++work.moe_layers;
  }
  const PieceId head = h.tied ? layout.embed : layout.norm_head;
  work.core_bytes += static_cast<double>(layout.pieces[static_cast<size_t>(head)].bytes);
  return work;
}

// The mean over the layers of a token of what a layer's experts take. Misses are uneven: a layer without one leaves the
// drive idle, one with several leaves the processor idle. Each of `used` experts misses with the same probability;
// those in memory are computed while others are read, and the one that arrives last after that.
double ExpertSeconds(int32_t used, double miss_rate, double compute_s, double read_s) {
  double mean = 0;
  double ways = 1;  // to choose the experts that miss
  for (int32_t misses = 0; misses <= used; ++misses) {
    const double probability = ways * std::pow(miss_rate, misses) * std::pow(1 - miss_rate, used - misses);
    const double reading_s = misses == 0 ? 0 : kFirstByteSeconds + misses * read_s + compute_s;
    mean += probability * std::max(used * compute_s, reading_s);
    ways *= static_cast<double>(used - misses) / (misses + 1);
  }
  return mean;
}

}  // namespace

double TypicalHitRate(int64_t slots, int64_t experts, int64_t experts_per_layer, int64_t experts_per_token) {
  CHECK(experts_per_layer > 0 && experts_per_token > 0);
  if (slots >= experts) return 1;
  const double share = static_cast<double>(std::max<int64_t>(slots, 0)) / static_cast<double>(experts);
  const double ratio = static_cast<double>(experts_per_layer) / static_cast<double>(experts_per_token);
  return 1 - std::pow(1 - share, 1 + std::max(0.0, std::log2(ratio)));
}

SpeedEstimate EstimateSpeed(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                            const MachineRates& rates, std::optional<double> hit_rate) {
  const Work work = WorkOf(layout, index, plan);
  const HParams& h = layout.hparams;
  SpeedEstimate estimate;
  if (work.experts > 0) {
    estimate.expert_hit_rate =
        hit_rate.value_or(TypicalHitRate(plan.expert_slots, work.experts, h.experts, h.experts_per_token));
  }
  const double expert_misses = work.expert_read_bytes * (1 - estimate.expert_hit_rate);
  estimate.read_bytes_per_token = work.streamed_bytes + expert_misses;
  if (rates.drive <= 0 || rates.memory <= 0) return estimate;
  const double compute_rate = rates.memory * kShareOfMemoryRate;
  const double drive_rate = rates.drive * kShareOfDriveRate;
  const double core_s = work.core_bytes / compute_rate + kLayerSeconds * static_cast<double>(layout.core.size()) +
                        kMoeSeconds * work.moe_layers;
  const double expert_s = work.expert_bytes / compute_rate;
  estimate.drive_s = estimate.read_bytes_per_token / drive_rate;
  estimate.compute_s = core_s + expert_s;
  estimate.bound = estimate.drive_s > estimate.compute_s ? "drive" : "memory";
  double moe_s = 0;
  if (work.moe_layers > 0) {
    const auto used = static_cast<int32_t>(std::min(h.experts_per_token, h.experts));
    const double times = static_cast<double>(work.moe_layers) * used;
    moe_s = work.moe_layers * ExpertSeconds(used, 1 - estimate.expert_hit_rate, expert_s / times,
                                            work.expert_read_bytes / times / drive_rate);
  }
  estimate.tokens_per_s = 1 / std::max(estimate.drive_s, core_s + moe_s);
  return estimate;
}

int64_t KneeBudget(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                   const MachineRates& rates) {
  const auto keeps_up = [&](int64_t budget_bytes) {
    const Result<MemoryPlan> tried = MakeMemoryPlan(layout, index, {.budget_bytes = budget_bytes}, {});
    if (!tried.ok()) return false;
    const SpeedEstimate estimate = EstimateSpeed(layout, index, *tried, rates);
    return estimate.tokens_per_s * estimate.compute_s >= kKneeShare;
  };
  int64_t low = plan.floor_bytes, high = plan.full_bytes;
  if (low >= high || keeps_up(low)) return low;
  while (high - low > std::max<int64_t>(1, plan.full_bytes / 1000)) {
    const int64_t middle = low + (high - low) / 2;
    (keeps_up(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace nunspark
