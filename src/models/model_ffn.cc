// Feed-forward networks: dense, experts, both side by side; and per-layer inputs.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "models/model.h"
#include "models/model_scratch.h"

namespace nunspark {
namespace {

// Values that one thread activates at once.
constexpr int64_t kActivationGrain = 4096;

// gpt-oss (transformers, models/gpt_oss/modeling_gpt_oss.py).
constexpr float kClippedAlpha = 1.702f;
constexpr float kClippedLimit = 7.0f;

XieluParams XieluOf(const LayerPlan& plan, const Lease& core) {
  if (plan.shape.xielu) return *plan.shape.xielu;
  XieluParams params;
  params.alpha_p = NumberOf(plan.xielu_alpha_p, core);
  params.alpha_n = NumberOf(plan.xielu_alpha_n, core);
  if (Has(plan.xielu_beta)) params.beta = NumberOf(plan.xielu_beta, core);
  if (Has(plan.xielu_epsilon)) params.epsilon = NumberOf(plan.xielu_epsilon, core);
  return params;
}

}  // namespace

Status Model::Ffn(const LayerPlan& plan, const Lease& core, int64_t rows, WeightSource& weights, const float* x) {
  Scratch& s = *scratch_;
  Input in{.x = NormOr(plan.ffn_norm, core, x, rows), .rows = rows, .rounded = s.rounded};
  if (!plan.moe()) {
    FfnDense(plan, core, in);
    return Status();
  }
  if (!Has(plan.expert_norm)) {
    Route(plan, core, in);
    return FfnMoe(plan, weights, in);
  }

  // Both, each with norms of its own; the router norms the stream once more.
  FfnDense(plan, core, in);
  Norm(plan.post_dense_norm, core, s.branch, rows, s.branch);
  const int64_t size = rows * hparams().model_dim;
  Norm(plan.router_scale, core, x, rows, s.routed);
  kernels_.scale(s.routed, static_cast<float>(1 / std::sqrt(static_cast<double>(hparams().model_dim))), size);
  Input router_in{.x = s.routed, .rows = rows, .rounded = s.rounded};
  Route(plan, core, router_in);
  Norm(plan.expert_norm, core, x, rows, s.routed);
  std::swap(s.branch, s.normed);  // the dense part stays in `normed`
  Input expert_in{.x = s.routed, .rows = rows, .rounded = s.rounded};
  RETURN_IF_ERROR(FfnMoe(plan, weights, expert_in));
  Norm(plan.post_expert_norm, core, s.branch, rows, s.branch);
  kernels_.add(s.branch, s.normed, size);
  return Status();
}

void Model::FfnDense(const LayerPlan& plan, const Lease& core, Input& in) {
  Scratch& s = *scratch_;
  if (Has(plan.gate)) {
    Project({{plan.gate, s.gate}, {plan.up, s.up}}, core, in);
  } else {
    Project({{plan.up, s.up}}, core, in);
  }
  Activate(plan, core, in.rows * plan.shape.ffn_dim);
  Input activated{.x = s.gate, .rows = in.rows, .rounded = s.rounded};
  Project({{plan.down, s.branch}}, core, activated);
}

// s.gate = activation(s.gate, s.up), `count` values.
void Model::Activate(const LayerPlan& plan, const Lease& core, int64_t count) {
  Scratch& s = *scratch_;
  const auto each = [&](const auto& activate) {
    pool_.ParallelFor(count, kActivationGrain,
                      [&](int64_t begin, int64_t end, int) { activate(s.gate + begin, s.up + begin, end - begin); });
  };
  switch (layout_.spec->block.activation) {
    case Activation::kSwiGlu:
      return each([&](float* gate, float* up, int64_t n) { kernels_.swiglu(gate, up, n, gate); });
    case Activation::kGeGlu: return each([&](float* gate, float* up, int64_t n) { kernels_.geglu(gate, up, n, gate); });
    case Activation::kSwiGluClipped:
      return each([&](float* gate, float* up, int64_t n) {
        kernels_.swiglu_clipped(gate, up, n, kClippedAlpha, kClippedLimit, gate);
      });
    case Activation::kXielu: {
      const XieluParams stored = XieluOf(plan, core);
      const float beta = static_cast<float>(stored.beta);
      const float epsilon = std::min(static_cast<float>(stored.epsilon), 0.0f);
      const float alpha_p = static_cast<float>(Softplus(stored.alpha_p));
      const float alpha_n = beta + static_cast<float>(Softplus(stored.alpha_n));
      return each(
          [&](float* gate, float* up, int64_t n) { kernels_.xielu(up, n, alpha_p, alpha_n, beta, epsilon, gate); });
    }
  }
}

// The experts of rows that are routed already.
Status Model::FfnMoe(const LayerPlan& plan, WeightSource& weights, Input& in) {
  Scratch& s = *scratch_;
  std::vector<PieceId>& wanted = s.routing.wanted;
  weights.Announce(plan.index, wanted);
  // Experts run as they become available; every (row, rank) has its own output, so the order leaves no trace.
  while (!wanted.empty()) {
    ASSIGN_OR_RETURN(const Lease expert, weights.AcquireAny(wanted));
    RunExpert(plan, expert, in);
    wanted.erase(std::find(wanted.begin(), wanted.end(), expert.piece()));
  }
  Combine(in.rows, s.branch);
  return Status();
}

// Chooses each row's experts and groups the (row, rank) slots by expert.
void Model::Route(const LayerPlan& plan, const Lease& core, Input& in) {
  Project({{plan.router, scratch_->router}}, core, in);
  ChooseExperts(plan, core, in.rows);
  GroupByExpert(plan, in.rows);
}

void Model::ChooseExperts(const LayerPlan& plan, const Lease& core, int64_t rows) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t k = h.experts_per_token;
  for (int64_t r = 0; r < rows; ++r) {
    float* const scores = s.router + r * h.experts;
    int32_t* const experts = s.routing.experts.data() + r * k;
    float* const chosen = s.routing.weights.data() + r * k;
    switch (layout_.spec->block.router) {
      case Router::kNone: CHECK(false && "experts need a router");
      case Router::kSoftmaxThenTopK: {
        // Softmax over all experts, then the k most probable, renormalised if the model says so.
        kernels_.softmax(scores, h.experts);
        TopK(scores, h.experts, static_cast<int>(k), experts, chosen);
        if (!h.norm_topk) break;
        float sum = 0;
        for (int64_t rank = 0; rank < k; ++rank) sum += chosen[rank];
        for (int64_t rank = 0; rank < k; ++rank) chosen[rank] /= sum;
        break;
      }
      case Router::kTopKThenSoftmax:
        TopK(scores, h.experts, static_cast<int>(k), experts, chosen);
        kernels_.softmax(chosen, k);
        break;
    }
    if (!Has(plan.per_expert_scale)) continue;
    const FloatVector scales = VectorOf(plan.per_expert_scale, core);
    for (int64_t rank = 0; rank < k; ++rank) {
      float scale = 0;
      const int64_t offset = experts[rank] * FloatBytes(scales.type);
      DecodeFloats({.type = scales.type, .size = 1, .data = scales.data + offset}, &scale);
      chosen[rank] *= scale;
    }
  }
}

void Model::GroupByExpert(const LayerPlan& plan, int64_t rows) {
  Scratch::Routing& routing = scratch_->routing;
  const HParams& h = hparams();
  const int64_t slots = rows * h.experts_per_token;
  std::fill(routing.starts.begin(), routing.starts.end(), 0);
  for (int64_t slot = 0; slot < slots; ++slot)
    ++routing.starts[static_cast<size_t>(routing.experts[static_cast<size_t>(slot)]) + 1];
  routing.wanted.clear();
  for (int32_t e = 0; e < h.experts; ++e) {
    if (routing.starts[static_cast<size_t>(e) + 1] > 0) routing.wanted.push_back(plan.first_expert + e);
    routing.starts[static_cast<size_t>(e) + 1] += routing.starts[static_cast<size_t>(e)];
  }
  // Filling moves each start to the next expert's; walking slots backwards restores them.
  for (int64_t slot = slots - 1; slot >= 0; --slot) {
    const size_t e = static_cast<size_t>(routing.experts[static_cast<size_t>(slot)]);
    routing.slots[static_cast<size_t>(--routing.starts[e + 1])] = static_cast<int32_t>(slot);
  }
  for (size_t e = 0; e < static_cast<size_t>(h.experts); ++e) routing.starts[e] = routing.starts[e + 1];
  routing.starts[static_cast<size_t>(h.experts)] = static_cast<int32_t>(slots);
}

// Runs one expert over its rows: gather, gate and up, down, scatter into s.parts.
void Model::RunExpert(const LayerPlan& plan, const Lease& expert, Input& in) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const size_t e = static_cast<size_t>(expert.piece() - plan.first_expert);
  const int32_t* const slots = s.routing.slots.data() + s.routing.starts[e];
  const int64_t count = s.routing.starts[e + 1] - s.routing.starts[e];

  Input rows{.x = s.gathered, .rows = count, .rounded = s.gathered_rounded};
  const bool rounded_gate = Rounds(plan.expert_gate), rounded_up = Rounds(plan.expert_up);
  if (rounded_gate || rounded_up) {
    // Rounded once for all experts.
    RoundRows(in, h.model_dim);
    rows.is_rounded = true;
    const int64_t bytes = LayoutOfRoundedRow(h.model_dim, numerics_).bytes;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(in.rounded + slots[i] / h.experts_per_token * bytes, bytes, s.gathered_rounded + i * bytes);
    }
  }
  if (!rounded_gate || !rounded_up) {
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(in.x + slots[i] / h.experts_per_token * h.model_dim, h.model_dim, s.gathered + i * h.model_dim);
    }
  }
  Project({{plan.expert_gate, s.gate}, {plan.expert_up, s.up}}, expert, rows);
  Activate(plan, expert, count * h.expert_ffn_dim);
  Input activated{.x = s.gate, .rows = count, .rounded = s.gathered_rounded};
  Project({{plan.expert_down, s.gathered}}, expert, activated);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(s.gathered + i * h.model_dim, h.model_dim, s.parts + int64_t{slots[i]} * h.model_dim);
  }
}

// out [rows, model_dim] = the weighted sum of each row's experts.
void Model::Combine(int64_t rows, float* out) {
  Scratch& s = *scratch_;
  const int64_t dim = hparams().model_dim;
  const int64_t k = hparams().experts_per_token;
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      // Rank order, not arrival order: floating-point addition is not associative, and which expert arrives first
      // depends on the drive. The sum must not.
      float* const sum = out + r * dim;
      std::fill_n(sum, dim, 0.0f);
      for (int64_t rank = 0; rank < k; ++rank) {
        const int64_t slot = r * k + rank;
        kernels_.add_scaled(sum, s.routing.weights[static_cast<size_t>(slot)], s.parts + slot * dim, dim);
      }
    }
  });
}

// x += norm(projection(gelu(gate(x)) * input of this layer)).
void Model::AddPerLayerInput(const LayerPlan& plan, const Lease& core, int64_t rows, float* x) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t width = h.per_layer_dim;
  Input in{.x = x, .rows = rows, .rounded = s.rounded};
  Project({{plan.per_layer_gate, s.gate}}, core, in);
  for (int64_t r = 0; r < rows; ++r) {
    kernels_.geglu(s.gate + r * width, s.per_layer + (r * h.layers + plan.index) * width, width, s.gate + r * width);
  }
  Input gated{.x = s.gate, .rows = rows, .rounded = s.rounded};
  Project({{plan.per_layer_projection, s.branch}}, core, gated);
  AddBranch(plan.post_per_layer_norm, core, rows, x);
}

}  // namespace nunspark
