#include "models/model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "models/model_scratch.h"

namespace nunspark {
namespace {

// Rows of activations that one thread rounds at least: fewer are done before another thread would have begun.
constexpr int64_t kRoundGrain = 4;

// Tokens gathered on the stack at once, so that nothing is allocated.
constexpr size_t kTokensAtOnce = 256;

// Paths of a tree are one sequence: its first row is of all of them.
int32_t CountSequences(const Batch& batch) {
  int32_t count = 0, end = 0;
  for (const Row& row : batch.rows) {
    if (row.sequence < end) continue;
    ++count;
    end = row.sequence + row.copies;
  }
  return count;
}

}  // namespace

Model::Model(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows, Numerics numerics)
    : layout_(layout),
      pool_(pool),
      max_rows_(max_rows),
      kernels_(Kernels()),
      numerics_(NumericsOf(layout, numerics)),
      rotate_(layout.hparams.rope_interleaved ? kernels_.rope_pairs : kernels_.rope_halves),
      plans_(MakeLayerPlans(layout)),
      scratch_(new Scratch) {
  for (const RopeParams& rope : layout.hparams.ropes) ropes_.emplace_back(rope);
  const PieceLayout& norm_head = layout.pieces[static_cast<size_t>(layout.norm_head)];
  final_norm_ = *FindWeight(norm_head, Role::kFinalNorm);
  const PieceLayout& head_piece = layout.hparams.tied ? layout.pieces[static_cast<size_t>(layout.embed)] : norm_head;
  head_ = *FindWeight(head_piece, layout.hparams.tied ? Role::kEmbed : Role::kHead);
  if (layout.per_layer_embed >= 0) {
    per_layer_model_projection_ = *FindWeight(norm_head, Role::kPerLayerModelProjection);
    per_layer_projection_norm_ = *FindWeight(norm_head, Role::kPerLayerProjectionNorm);
  }
}

Model::~Model() = default;

int64_t Model::ScratchBytes(const ModelLayout& layout, int threads, int32_t max_rows, Numerics numerics) {
  return Scratch::TotalFloats(layout, threads, max_rows, NumericsOf(layout, numerics)) * 4 +
         Scratch::RoutingBytes(layout.hparams, max_rows);
}

Numerics Model::NumericsOf(const ModelLayout& layout, Numerics numerics) {
  for (const PieceLayout& piece : layout.pieces) {
    for (const WeightUse& use : piece.weights) {
      if (HasCodes(use.format)) return numerics;
    }
  }
  return Numerics::kF32;
}

std::vector<KvLayerShape> Model::KvShapes(const HParams& hparams, const KvFormat& format) {
  std::vector<KvLayerShape> shapes;
  for (size_t i = 0; i < hparams.layer.size(); ++i) {
    const LayerShape& layer = hparams.layer[i];
    if (layer.kv_layer != static_cast<int32_t>(i)) continue;
    int64_t window = layer.window;  // of all layers that attend to these
    for (const LayerShape& other : hparams.layer) {
      if (other.kv_layer != layer.kv_layer) continue;
      window = window == 0 || other.window == 0 ? 0 : std::max(window, other.window);
    }
    KvLayerShape shape{.kv_heads = static_cast<int>(layer.kv_heads),
                       .key_dim = static_cast<int>(layer.head_dim),
                       .value_dim = static_cast<int>(layer.head_dim),
                       .window = window,
                       .format = window == 0 ? format : KvFormat{.type = format.type}};
    if (hparams.kv_rank > 0) {
      // Latent attention keeps what all heads share: the latent, which is also the value, and the rotated part.
      shape.kv_heads = 1;
      shape.key_dim = static_cast<int>(hparams.kv_rank + hparams.qk_rope_dim);
      shape.value_dim = static_cast<int>(hparams.kv_rank);
      shape.values = KvValues::kPartOfKeys;
    }
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<int32_t> Model::KvOrder(const HParams& hparams) {
  std::vector<int32_t> index(hparams.layer.size(), -1);  // into KvShapes
  int32_t kept = 0;
  for (size_t i = 0; i < hparams.layer.size(); ++i) {
    if (hparams.layer[i].kv_layer == static_cast<int32_t>(i)) index[i] = kept++;
  }
  std::vector<int32_t> order;
  for (const LayerShape& layer : hparams.layer) order.push_back(index[static_cast<size_t>(layer.kv_layer)]);
  return order;
}

Result<std::unique_ptr<Model>> Model::Create(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows,
                                             Numerics numerics, std::span<const int32_t> borrowed_kv) {
  const bool borrows = layout.spec->block.attention == Attention::kBorrowed;
  CHECK(max_rows >= 1 && borrowed_kv.size() == (borrows ? layout.core.size() : 0));
  std::unique_ptr<Model> model(new Model(layout, pool, max_rows, numerics));
  for (size_t i = 0; i < borrowed_kv.size(); ++i) model->plans_[i].kv_index = borrowed_kv[i];
  RETURN_IF_ERROR(model->scratch_->Allocate(layout, pool.threads(), max_rows, model->numerics_));
  return model;
}

Status Model::Forward(const Batch& batch, WeightSource& weights, const LogitsSink& sink) {
  CHECK(!IsDrafter(*layout_.spec));
  float* const x = scratch_->x;
  RETURN_IF_ERROR(Embed(batch, weights, x));
  RETURN_IF_ERROR(Layers(0, static_cast<int32_t>(plans_.size()), batch, weights, x));
  RETURN_IF_ERROR(Head(batch, weights, x, sink));
  weights.EndPass();
  for (const Row& row : batch.rows) {
    for (KvSequence* const sequence : SequencesOf(batch, row)) sequence->Commit(row.position + 1);
  }
  return Status();
}

Status Model::Embed(const Batch& batch, WeightSource& weights, float* x) {
  CHECK(!batch.rows.empty() && static_cast<int64_t>(batch.rows.size()) <= max_rows_);
  const HParams& h = hparams();
  int32_t tokens[kTokensAtOnce];
  for (size_t first = 0; first < batch.rows.size(); first += kTokensAtOnce) {
    const size_t count = std::min(kTokensAtOnce, batch.rows.size() - first);
    for (size_t i = 0; i < count; ++i) tokens[i] = batch.rows[first + i].token;
    RETURN_IF_ERROR(weights.ReadRows(layout_.embed, {tokens, count}, x + static_cast<int64_t>(first) * h.model_dim));
  }
  if (h.embed_scale != 1) {
    kernels_.scale(x, static_cast<float>(h.embed_scale), static_cast<int64_t>(batch.rows.size()) * h.model_dim);
  }
  return layout_.per_layer_embed >= 0 ? EmbedPerLayer(batch, weights, x) : Status();
}

// Inputs of each layer: half from the token's row of a table, half projected from its embedding (Gemma 3n, Gemma 4).
Status Model::EmbedPerLayer(const Batch& batch, WeightSource& weights, const float* x) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  const int64_t width = h.layers * h.per_layer_dim;
  int32_t tokens[kTokensAtOnce];
  for (size_t first = 0; first < batch.rows.size(); first += kTokensAtOnce) {
    const size_t count = std::min(kTokensAtOnce, batch.rows.size() - first);
    for (size_t i = 0; i < count; ++i) {
      // Tokens beyond the table share its first row, as in the authors' code.
      const int32_t token = batch.rows[first + i].token;
      tokens[i] = token < h.per_layer_vocab ? token : 0;
    }
    RETURN_IF_ERROR(
        weights.ReadRows(layout_.per_layer_embed, {tokens, count}, s.per_layer + static_cast<int64_t>(first) * width));
  }
  ASSIGN_OR_RETURN(const Lease ends, weights.Acquire(layout_.norm_head));
  Input in{.x = x, .rows = rows, .rounded = s.rounded};
  Project({{per_layer_model_projection_, s.projected}}, ends, in);
  kernels_.scale(s.projected, static_cast<float>(1 / std::sqrt(static_cast<double>(h.model_dim))), rows * width);
  Norm(per_layer_projection_norm_, ends, s.projected, rows * h.layers, s.projected);
  kernels_.scale(s.per_layer, static_cast<float>(std::sqrt(static_cast<double>(h.per_layer_dim))), rows * width);
  kernels_.add(s.per_layer, s.projected, rows * width);
  kernels_.scale(s.per_layer, static_cast<float>(std::sqrt(0.5)), rows * width);
  return Status();
}

Status Model::Layers(int32_t begin, int32_t end, const Batch& batch, WeightSource& weights, float* x) {
  FillRope(batch);
  const auto first = [](const Row& row) { return row.position == 0; };
  weights.BeginPass({.rows = static_cast<int64_t>(batch.rows.size()),
                     .sequences = CountSequences(batch),
                     .starts_sequence = std::any_of(batch.rows.begin(), batch.rows.end(), first)});
  for (int32_t layer = begin; layer < end; ++layer) {
    if (batch.cancelled != nullptr && batch.cancelled->load(std::memory_order_relaxed))
      return CancelledError("cancelled");
    RETURN_IF_ERROR(Layer(plans_[static_cast<size_t>(layer)], batch, weights, x));
    if (batch.rows.size() == 1 && layer + 1 < end) PredictExperts(plans_[static_cast<size_t>(layer) + 1], weights, x);
  }
  return Status();
}

// One layer over all rows of the batch. x [rows, model_dim] is updated in place. Norms before and after the two blocks
// are there as the type has them: before (Llama), after (OLMo 2), or both (Gemma, GLM-4).
Status Model::Layer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x) {
  ASSIGN_OR_RETURN(const Lease core, weights.Acquire(plan.core));
  const int64_t rows = static_cast<int64_t>(batch.rows.size());

  RETURN_IF_ERROR(AwaitKv(plan, batch));
  const float* const in = NormOr(plan.attention_norm, core, x, rows);
  Attention(plan, core, batch, {.x = in, .rows = rows, .rounded = scratch_->rounded});
  AddBranch(plan.post_attention_norm, core, rows, x);
  RETURN_IF_ERROR(Ffn(plan, core, rows, weights, x));
  AddBranch(plan.post_ffn_norm, core, rows, x);
  if (Has(plan.per_layer_gate)) AddPerLayerInput(plan, core, rows, x);
  if (Has(plan.layer_scalar)) kernels_.scale(x, NumberOf(plan.layer_scalar, core), rows * hparams().model_dim);
  return Status();
}

// A block's output joins the residual stream.
void Model::AddBranch(const WeightUse& post_norm, const Lease& core, int64_t rows, float* x) {
  float* const branch = scratch_->branch;
  if (Has(post_norm)) Norm(post_norm, core, branch, rows, branch);
  kernels_.add(x, branch, rows * hparams().model_dim);
}

Status Model::Head(const Batch& batch, WeightSource& weights, const float* x, const LogitsSink& sink) {
  if (batch.logit_rows.empty()) return Status();
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  ASSIGN_OR_RETURN(const Lease norm, weights.Acquire(layout_.norm_head));
  Lease embed;
  if (h.tied) {
    ASSIGN_OR_RETURN(embed, weights.Acquire(layout_.embed));
  }
  const int32_t total = static_cast<int32_t>(batch.logit_rows.size());
  const int32_t at_once = std::min(kHeadRows, max_rows_);
  for (int32_t first = 0; first < total; first += at_once) {
    const int32_t count = std::min(at_once, total - first);
    for (int32_t i = 0; i < count; ++i) {
      const int64_t row = batch.logit_rows[static_cast<size_t>(first + i)];
      Norm(final_norm_, norm, x + row * h.model_dim, 1, s.normed + i * h.model_dim);
    }
    Input in{.x = s.normed, .rows = count, .rounded = s.rounded};
    Project({{head_, s.logits}}, h.tied ? embed : norm, in);
    RETURN_IF_ERROR(CheckFinite(batch, first, count));
    if (h.logit_softcap > 0) kernels_.softcap(s.logits, static_cast<float>(h.logit_softcap), count * h.vocab_size);
    RETURN_IF_ERROR(sink({.first = first, .count = count, .logits = s.logits, .hidden = s.normed}));
  }
  return Status();
}

// ---- steps

// A hidden state that is not finite makes every logit of its row so: the first one tells.
Status Model::CheckFinite(const Batch& batch, int32_t first, int32_t count) const {
  for (int32_t i = 0; i < count; ++i) {
    if (std::isfinite(scratch_->logits[i * hparams().vocab_size])) continue;
    const Row& row = batch.rows[static_cast<size_t>(batch.logit_rows[static_cast<size_t>(first + i)])];
    return DataLossError(fmt::format(
        "the logits at position {} are not finite numbers: the weights are damaged or config.json does not fit them",
        row.position));
  }
  return Status();
}

void Model::FillRope(const Batch& batch) {
  for (size_t rope = 0; rope < ropes_.size(); ++rope) {
    const int64_t pairs = ropes_[rope].pairs();
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      const int64_t at = static_cast<int64_t>(r) * pairs;
      ropes_[rope].Fill(batch.rows[r].position, batch.rows[r].rope_length, scratch_->cos[rope] + at,
                        scratch_->sin[rope] + at);
    }
  }
}

// x through the norm, in scratch's `normed`; x itself where the type has no norm there.
const float* Model::NormOr(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows) {
  if (!Has(weight)) return x;
  Norm(weight, lease, x, rows, scratch_->normed);
  return scratch_->normed;
}

void Model::Norm(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out) {
  NormRows(VectorOf(weight, lease), weight.cols, hparams().rms_epsilon, x, rows, out);
}

void Model::Multiply(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out) {
  Input in{.x = x, .rows = rows, .rounded = scratch_->rounded};
  Project({{weight, out}}, lease, in);
}

// weight.data == nullptr: norm without weight.
void Model::NormRows(const FloatVector& weight, int64_t size, double epsilon, const float* x, int64_t rows,
                     float* out) {
  const float offset = static_cast<float>(hparams().norm_offset);
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.rms_norm(x + r * size, weight, offset, static_cast<float>(epsilon), size, out + r * size);
    }
  });
}

// Products of one input, shared out among the threads as one job.
void Model::Project(std::initializer_list<Product> products, const Lease& lease, Input& in) {
  for (const Product& product : products) {
    if (Rounds(product.weight)) RoundRows(in, product.weight.cols);
  }
  pool_.ParallelForParts(
      std::ssize(products), [&](int64_t i) { return ThreadPool::Part{.items = products.begin()[i].weight.rows}; },
      kOutputGrain,
      [&](int64_t i, int64_t begin, int64_t end, int thread) {
        const Product& product = products.begin()[i];
        MultiplyRange(product.weight, lease, in, begin, end, product.y, thread);
      });
}

// Outputs [begin, end) of one product.
void Model::MultiplyRange(const WeightUse& weight, const Lease& lease, const Input& in, int64_t begin, int64_t end,
                          float* y, int thread) const {
  const WeightMatrix w = MatrixOf(weight, lease);
  const FloatVector bias = BiasOf(weight, lease);
  float* const scratch = scratch_->thread(thread);
  if (Rounds(weight)) {
    kernels_.matmul_codes(w, bias, numerics_, in.rounded, in.rows, begin, end, y, w.rows, scratch);
  } else {
    kernels_.matmul(w, bias, in.x, w.cols, in.rows, begin, end, y, w.rows, scratch);
  }
}

// Once for all products of an input.
void Model::RoundRows(Input& in, int64_t cols) {
  if (in.is_rounded) return;
  in.is_rounded = true;
  const int64_t bytes = LayoutOfRoundedRow(cols, numerics_).bytes;
  pool_.ParallelFor(in.rows, kRoundGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.round_row(in.x + r * cols, cols, numerics_, in.rounded + r * bytes);
    }
  });
}

}  // namespace nunspark
