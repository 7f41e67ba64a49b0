// Feed-forward networks: dense, experts, both side by side; and per-layer inputs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/align.h"
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
  if (plan.moe() && !Has(plan.expert_norm)) {
    Input in = RouterInput(plan, core, rows, x);
    Route(plan, core, in);
    return FfnMoe(plan, weights, in);
  }
  Input in{.x = NormOr(plan.ffn_norm, core, x, rows), .rows = rows, .rounded = s.rounded};
  FfnDense(plan, core, in);
  if (!plan.moe()) return Status();

  // Both, each with norms of its own; the router norms the stream once more.
  Norm(plan.post_dense_norm, core, s.branch, rows, s.branch);
  Input router_in = RouterInput(plan, core, rows, x);
  Route(plan, core, router_in);
  Norm(plan.expert_norm, core, x, rows, s.routed);
  std::swap(s.branch, s.normed);  // the dense part stays in `normed`
  Input expert_in{.x = s.routed, .rows = rows, .rounded = s.rounded};
  RETURN_IF_ERROR(FfnMoe(plan, weights, expert_in));
  Norm(plan.post_expert_norm, core, s.branch, rows, s.branch);
  kernels_.add(s.branch, s.normed, rows * hparams().model_dim);
  return Status();
}

// What the router of a layer sees of the residual stream x: what its experts do, unless they have a norm of their own.
Model::Input Model::RouterInput(const LayerPlan& plan, const Lease& core, int64_t rows, const float* x) {
  Scratch& s = *scratch_;
  if (!Has(plan.expert_norm)) return {.x = NormOr(plan.ffn_norm, core, x, rows), .rows = rows, .rounded = s.rounded};
  const int64_t dim = hparams().model_dim;
  Norm(plan.router_scale, core, x, rows, s.routed);
  kernels_.scale(s.routed, static_cast<float>(1 / std::sqrt(static_cast<double>(dim))), rows * dim);
  return {.x = s.routed, .rows = rows, .rounded = s.rounded};
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
  weights.Announce(
      {.layer = plan.index, .pieces = wanted, .last_rows = s.routing.last_rows, .row_counts = s.routing.row_counts});
  // Experts run as they become available, those that are in memory together where there is room for the rows of all;
  // every (row, rank) has its own output, so the order leaves no trace.
  const bool together = in.rows * hparams().experts_per_token <= max_rows_;
  std::vector<Lease>& ready = s.routing.ready;
  while (!wanted.empty()) {
    ASSIGN_OR_RETURN(Lease expert, weights.AcquireAny(wanted, Arrived::kFirstParts));
    const Arrived arrived = expert.arrived();
    while (expert.held()) {
      wanted.erase(std::find(wanted.begin(), wanted.end(), expert.piece()));
      ready.push_back(std::move(expert));
      expert = together ? weights.AcquireReady(wanted, arrived) : Lease();
    }
    const Status status = RunExperts(plan, ready, weights, in);
    ready.clear();
    RETURN_IF_ERROR(status);
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

// Names the experts that a layer will probably want, by its router on the one row that the layer before it has put out.
void Model::PredictExperts(const LayerPlan& plan, WeightSource& weights, const float* x) {
  if (!plan.moe()) return;
  const int64_t count = std::min<int64_t>(weights.PredictionsWanted(), hparams().experts);
  if (count <= 0) return;
  const Lease core = weights.Peek(plan.core);
  if (!core.held()) return;
  Scratch& s = *scratch_;
  Input in = RouterInput(plan, core, 1, x);
  Project({{plan.router, s.router}}, core, in);
  const std::span<int32_t> named(s.routing.predicted.data(), static_cast<size_t>(count));
  TopK(s.router, hparams().experts, static_cast<int>(count), named.data(), s.routing.scores.data());
  for (PieceId& piece : named) piece += plan.first_expert;
  weights.Predict(plan.index, named);
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
    const int32_t place = --routing.starts[e + 1];
    routing.slots[static_cast<size_t>(place)] = static_cast<int32_t>(slot);
    routing.places[static_cast<size_t>(slot)] = place;
  }
  for (size_t e = 0; e < static_cast<size_t>(h.experts); ++e) routing.starts[e] = routing.starts[e + 1];
  routing.starts[static_cast<size_t>(h.experts)] = static_cast<int32_t>(slots);

  const auto last_row = [&](PieceId piece) {
    return static_cast<int32_t>(routing.SlotsOf(piece - plan.first_expert).back() / h.experts_per_token);
  };
  if (rows > 1) {
    std::sort(routing.wanted.begin(), routing.wanted.end(),
              [&](PieceId a, PieceId b) { return std::pair(last_row(a), a) < std::pair(last_row(b), b); });
  }
  routing.last_rows.clear();
  routing.row_counts.clear();
  for (const PieceId piece : routing.wanted) {
    routing.last_rows.push_back(last_row(piece));
    routing.row_counts.push_back(static_cast<int32_t>(routing.SlotsOf(piece - plan.first_expert).size()));
  }
}

// The rows of some experts, one expert's after the other's, to s.gathered or s.gathered_rounded or both.
void Model::GatherRows(const LayerPlan& plan, std::span<const Lease> experts, Input& in) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const bool gate = Rounds(plan.expert_gate), up = Rounds(plan.expert_up);
  const bool rounded = gate || up, floats = !gate || !up;
  // Rounded once for all experts.
  if (rounded) RoundRows(in, h.model_dim);
  const int64_t bytes = rounded ? LayoutOfRoundedRow(h.model_dim, numerics_).bytes : 0;
  int64_t at = 0;
  for (const Lease& expert : experts) {
    for (const int32_t slot : s.routing.SlotsOf(expert.piece() - plan.first_expert)) {
      const int64_t row = slot / h.experts_per_token;
      if (rounded) std::copy_n(in.rounded + row * bytes, bytes, s.gathered_rounded + at * bytes);
      if (floats) std::copy_n(in.x + row * h.model_dim, h.model_dim, s.gathered + at * h.model_dim);
      ++at;
    }
  }
}

// s.gate [rows, width] = activation(s.gate, s.up), and the same rounded into s.gathered_rounded where `down` wants it.
void Model::ActivateRows(const LayerPlan& plan, const Lease& core, int64_t rows, int64_t width, const WeightUse& down) {
  Activate(plan, core, rows * width);
  Input activated{.x = scratch_->gate, .rows = rows, .rounded = scratch_->gathered_rounded};
  if (Rounds(down)) RoundRows(activated, width);
}

// Runs some experts over their rows: gather, gate and up, down into s.parts. What down needs may still be on its way.
// REQUIRES: one expert, or room for the rows of all.
Status Model::RunExperts(const LayerPlan& plan, std::span<const Lease> experts, WeightSource& weights, Input& in) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  GatherRows(plan, experts, in);

  // first_rows[e]: of expert e among the gathered ones; the last entry: of all.
  std::vector<int64_t>& first_rows = s.routing.first_rows;
  first_rows.assign(1, 0);
  for (const Lease& expert : experts) {
    first_rows.push_back(first_rows.back() + std::ssize(s.routing.SlotsOf(expert.piece() - plan.first_expert)));
  }
  // Calls product(expert, first row, rows, matrix, begin, end, thread) for all outputs of `matrices` matrices of each
  // expert, as one job.
  const auto run = [&](int64_t matrices, int64_t outputs, const auto& product) {
    const auto rows_of = [&](size_t e) { return first_rows[e + 1] - first_rows[e]; };
    pool_.ParallelForParts(
        std::ssize(experts) * matrices,
        [&](int64_t part) {
          // Reading a matrix takes about as long as one row of products.
          return ThreadPool::Part{.items = outputs, .cost = 1 + rows_of(static_cast<size_t>(part / matrices))};
        },
        kOutputGrain,
        [&](int64_t part, int64_t begin, int64_t end, int thread) {
          const auto e = static_cast<size_t>(part / matrices);
          product(experts[e], first_rows[e], rows_of(e), part % matrices, begin, end, thread);
        });
  };
  const auto input_of = [&](const float* x, int64_t width, int64_t first_row, int64_t rows) {
    const int64_t bytes = numerics_ == Numerics::kF32 ? 0 : LayoutOfRoundedRow(width, numerics_).bytes;
    return Input{.x = x + first_row * width, .rows = rows, .rounded = s.gathered_rounded + first_row * bytes};
  };
  const int64_t dim = h.model_dim, width = h.expert_ffn_dim;
  run(2, width,
      [&](const Lease& expert, int64_t row, int64_t rows, int64_t matrix, int64_t begin, int64_t end, int thread) {
        const WeightUse& weight = matrix == 0 ? plan.expert_gate : plan.expert_up;
        float* const y = (matrix == 0 ? s.gate : s.up) + row * width;
        MultiplyRange(weight, expert, input_of(s.gathered, dim, row, rows), begin, end, y, thread);
      });
  ActivateRows(plan, experts.front(), first_rows.back(), width, plan.expert_down);
  for (const Lease& expert : experts) RETURN_IF_ERROR(weights.AwaitRest(expert));
  run(1, dim, [&](const Lease& expert, int64_t row, int64_t rows, int64_t, int64_t begin, int64_t end, int thread) {
    const Input activated = input_of(s.gate, width, row, rows);
    const int64_t place = s.routing.starts[static_cast<size_t>(expert.piece() - plan.first_expert)];
    MultiplyRange(plan.expert_down, expert, activated, begin, end, s.parts + place * dim, thread);
  });
  return Status();
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
        const auto slot = static_cast<size_t>(r * k + rank);
        kernels_.add_scaled(sum, s.routing.weights[slot], s.parts + int64_t{s.routing.places[slot]} * dim, dim);
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
