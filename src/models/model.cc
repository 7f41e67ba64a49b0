#include "models/model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "base/mapped_memory.h"

namespace nunspark {
namespace {

// Rows whose logits are computed together: the head is read once for them, and their logits fit in a few MB.
constexpr int32_t kHeadRows = 8;

// Outputs are handed to threads in multiples of this many (a cache line of floats).
constexpr int64_t kOutputGrain = 16;

int64_t Padded(int64_t floats) { return AlignUp(floats, 16); }

auto NormOf(const KernelTable& kernels, Norm norm) {
  switch (norm) {
    case Norm::kRms: break;
  }
  return kernels.rms_norm;
}

auto RotateOf(const KernelTable& kernels, RopeForm form) {
  switch (form) {
    case RopeForm::kHalves: break;
  }
  return kernels.rope_halves;
}

auto ActivationOf(const KernelTable& kernels, Activation activation) {
  switch (activation) {
    case Activation::kSwiGlu: break;
  }
  return kernels.swiglu;
}

}  // namespace

// Activations of one pass. All arrays are carved from one mapping, 64-byte aligned.
struct Model::Scratch {
  // Sizes in floats, in the order of carving. The one place that says what a pass needs.
  struct Sizes {
    int64_t x, normed, query, key, value, attended, gate, up, gathered, parts, router, logits, cos, sin, per_thread;

    Sizes(const ModelLayout& layout, int64_t rows) {
      const HParams& h = layout.hparams;
      const bool moe = h.experts > 0;
      const int64_t ffn = std::max(h.ffn_dim, h.expert_ffn_dim);
      x = Padded(rows * h.model_dim);
      normed = Padded(rows * h.model_dim);
      query = Padded(rows * h.query_out());
      key = Padded(rows * h.kv_out());
      value = Padded(rows * h.kv_out());
      attended = Padded(rows * h.query_out());
      gate = Padded(rows * ffn);
      up = Padded(rows * ffn);
      gathered = moe ? Padded(rows * h.model_dim) : 0;
      parts = moe ? Padded(rows * h.experts_per_token * h.model_dim) : 0;
      router = moe ? Padded(rows * h.experts) : 0;
      logits = Padded(std::min<int64_t>(rows, kHeadRows) * h.vocab_size);
      cos = Padded(rows * h.head_dim / 2);
      sin = Padded(rows * h.head_dim / 2);
      per_thread = Padded(AttentionScratchFloats(static_cast<int>(h.head_dim), static_cast<int>(h.head_dim)));
      for (const PieceLayout& piece : layout.pieces) {
        // The experts of a layer are alike.
        if (piece.kind == PieceKind::kExpert && piece.expert > 0) continue;
        for (const WeightUse& use : piece.weights) {
          const WeightMatrix shape{.format = use.format, .rows = use.rows, .cols = use.cols};
          per_thread = std::max(per_thread, Padded(MatMulScratchFloats(shape, rows)));
        }
      }
    }

    int64_t Total(int thread_count) const {
      return x + normed + query + key + value + attended + gate + up + gathered + parts + router + logits + cos + sin +
             per_thread * thread_count;
    }
  };

  // Routing of one layer's rows. Expert e's rows are slots[starts[e] .. starts[e + 1]); a slot is row * k + rank.
  struct Routing {
    std::vector<int32_t> experts;  // [rows * k]
    std::vector<float> weights;    // [rows * k]
    std::vector<int32_t> starts;   // [experts + 1]
    std::vector<int32_t> slots;    // [rows * k]
    std::vector<PieceId> wanted;   // pieces of the layer that still have to run
  };

  static int64_t RoutingBytes(const HParams& h, int64_t rows) {
    return rows * h.experts_per_token * 12 + (h.experts + 1) * 8;
  }

  MappedMemory memory;
  float *x, *normed, *query, *key, *value, *attended, *gate, *up, *gathered, *parts, *router, *logits, *cos, *sin;
  float* threads;
  int64_t per_thread = 0;
  Routing routing;

  float* thread(int index) const { return threads + per_thread * index; }
};

Model::Model(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows)
    : layout_(layout),
      pool_(pool),
      max_rows_(max_rows),
      kernels_(Kernels()),
      norm_(NormOf(kernels_, layout.spec->block.norm)),
      rotate_(RotateOf(kernels_, layout.spec->block.rope)),
      activate_(ActivationOf(kernels_, layout.spec->block.activation)),
      rope_(layout.hparams.rope, layout.hparams.head_dim),
      plans_(MakeLayerPlans(layout)),
      scratch_(new Scratch) {
  const PieceLayout& norm_head = layout.pieces[static_cast<size_t>(layout.norm_head)];
  final_norm_ = *FindWeight(norm_head, Role::kFinalNorm);
  const PieceLayout& head_piece = layout.hparams.tied ? layout.pieces[static_cast<size_t>(layout.embed)] : norm_head;
  head_ = *FindWeight(head_piece, layout.hparams.tied ? Role::kEmbed : Role::kHead);
}

Model::~Model() = default;

int64_t Model::ScratchBytes(const ModelLayout& layout, int threads, int32_t max_rows) {
  return Scratch::Sizes(layout, max_rows).Total(threads) * 4 + Scratch::RoutingBytes(layout.hparams, max_rows);
}

std::vector<KvLayerShape> Model::KvShapes(const HParams& hparams) {
  return std::vector<KvLayerShape>(static_cast<size_t>(hparams.layers),
                                   {static_cast<int>(hparams.kv_heads), static_cast<int>(hparams.head_dim),
                                    static_cast<int>(hparams.head_dim)});
}

Result<std::unique_ptr<Model>> Model::Create(const ModelLayout& layout, ThreadPool& pool, int32_t max_rows) {
  CHECK(max_rows >= 1);
  std::unique_ptr<Model> model(new Model(layout, pool, max_rows));
  Scratch& s = *model->scratch_;
  const Scratch::Sizes sizes(layout, max_rows);
  ASSIGN_OR_RETURN(s.memory, MappedMemory::Create(sizes.Total(pool.threads()) * 4,
                                                  fmt::format("the activations of {} rows", max_rows),
                                                  "use a smaller --prefill-chunk"));
  float* next = reinterpret_cast<float*>(s.memory.data());
  const auto carve = [&next](int64_t floats) { return std::exchange(next, next + floats); };
  s.x = carve(sizes.x);
  s.normed = carve(sizes.normed);
  s.query = carve(sizes.query);
  s.key = carve(sizes.key);
  s.value = carve(sizes.value);
  s.attended = carve(sizes.attended);
  s.gate = carve(sizes.gate);
  s.up = carve(sizes.up);
  s.gathered = carve(sizes.gathered);
  s.parts = carve(sizes.parts);
  s.router = carve(sizes.router);
  s.logits = carve(sizes.logits);
  s.cos = carve(sizes.cos);
  s.sin = carve(sizes.sin);
  s.threads = carve(sizes.per_thread * pool.threads());
  s.per_thread = sizes.per_thread;
  const HParams& h = layout.hparams;
  s.routing.experts.resize(static_cast<size_t>(max_rows * h.experts_per_token));
  s.routing.weights.resize(s.routing.experts.size());
  s.routing.slots.resize(s.routing.experts.size());
  s.routing.starts.resize(static_cast<size_t>(h.experts) + 1);
  s.routing.wanted.reserve(static_cast<size_t>(h.experts));
  return model;
}

Status Model::Forward(const Batch& batch, WeightSource& weights, const LogitsSink& sink) {
  float* const x = scratch_->x;
  RETURN_IF_ERROR(Embed(batch, weights, x));
  RETURN_IF_ERROR(Layers(0, static_cast<int32_t>(plans_.size()), batch, weights, x));
  RETURN_IF_ERROR(Head(batch, weights, x, sink));
  for (const Row& row : batch.rows) batch.sequences[static_cast<size_t>(row.sequence)]->Commit(row.position + 1);
  return Status();
}

Status Model::Embed(const Batch& batch, WeightSource& weights, float* x) {
  CHECK(!batch.rows.empty() && static_cast<int64_t>(batch.rows.size()) <= max_rows_);
  // Tokens are gathered on the stack, so that nothing is allocated.
  constexpr size_t kAtOnce = 256;
  int32_t tokens[kAtOnce];
  for (size_t first = 0; first < batch.rows.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, batch.rows.size() - first);
    for (size_t i = 0; i < count; ++i) tokens[i] = batch.rows[first + i].token;
    RETURN_IF_ERROR(weights.ReadEmbedding({tokens, count}, x + static_cast<int64_t>(first) * hparams().model_dim));
  }
  return Status();
}

Status Model::Layers(int32_t begin, int32_t end, const Batch& batch, WeightSource& weights, float* x) {
  FillRope(batch);
  for (int32_t layer = begin; layer < end; ++layer) {
    RETURN_IF_ERROR(Layer(plans_[static_cast<size_t>(layer)], batch, weights, x));
  }
  return Status();
}

// One layer over all rows of the batch. x [rows, model_dim] is updated in place.
Status Model::Layer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x) {
  switch (layout_.spec->block.residual) {
    case Residual::kPreNorm: break;
  }
  return PreNormLayer(plan, batch, weights, x);
}

Status Model::PreNormLayer(const LayerPlan& plan, const Batch& batch, WeightSource& weights, float* x) {
  ASSIGN_OR_RETURN(const Lease core, weights.Acquire(plan.core));
  const int64_t rows = static_cast<int64_t>(batch.rows.size());

  Norm(plan.attention_norm, core, x, rows, scratch_->normed);
  Attention(plan, core, batch, x);
  Norm(plan.ffn_norm, core, x, rows, scratch_->normed);
  if (plan.moe()) return FfnMoe(plan, core, rows, weights, x);
  FfnDense(plan, core, rows, x);
  return Status();
}

void Model::Attention(const LayerPlan& plan, const Lease& core, const Batch& batch, float* x) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t rows = static_cast<int64_t>(batch.rows.size());

  Project(plan.query, core, s.normed, rows, s.query);  // [rows, heads * head_dim]
  Project(plan.key, core, s.normed, rows, s.key);      // [rows, kv_heads * head_dim]
  Project(plan.value, core, s.normed, rows, s.value);
  if (plan.query_norm.data >= 0) {
    // Each head is a row of head_dim values.
    Norm(plan.query_norm, core, s.query, rows * h.heads, s.query);
    Norm(plan.key_norm, core, s.key, rows * h.kv_heads, s.key);
  }
  Rotate(rows, h.heads, s.query);
  Rotate(rows, h.kv_heads, s.key);
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = batch.rows[static_cast<size_t>(r)];
    batch.sequences[static_cast<size_t>(row.sequence)]->Store(plan.index, row.position, s.key + r * h.kv_out(),
                                                              s.value + r * h.kv_out());
  }
  Attend(plan, batch);  // s.attended [rows, heads * head_dim]
  Project(plan.attention_out, core, s.attended, rows, s.normed);
  Add(s.normed, rows, x);
}

void Model::FfnDense(const LayerPlan& plan, const Lease& core, int64_t rows, float* x) {
  Scratch& s = *scratch_;
  const int64_t ffn = hparams().ffn_dim;
  Project(plan.gate, core, s.normed, rows, s.gate);
  Project(plan.up, core, s.normed, rows, s.up);
  pool_.ParallelFor(rows * ffn, 4096, [&](int64_t begin, int64_t end, int) {
    activate_(s.gate + begin, s.up + begin, end - begin, s.gate + begin);
  });
  Project(plan.down, core, s.gate, rows, s.normed);
  Add(s.normed, rows, x);
}

Status Model::FfnMoe(const LayerPlan& plan, const Lease& core, int64_t rows, WeightSource& weights, float* x) {
  Scratch& s = *scratch_;
  Route(plan, core, rows);
  std::vector<PieceId>& wanted = s.routing.wanted;
  weights.Announce(plan.index, wanted);
  // Experts run as they become available; every (row, rank) has its own output, so the order leaves no trace.
  while (!wanted.empty()) {
    ASSIGN_OR_RETURN(const Lease expert, weights.AcquireAny(wanted));
    RunExpert(plan, expert);
    wanted.erase(std::find(wanted.begin(), wanted.end(), expert.piece()));
  }
  Combine(rows, x);
  return Status();
}

// Chooses each row's experts and groups the (row, rank) slots by expert.
void Model::Route(const LayerPlan& plan, const Lease& core, int64_t rows) {
  Scratch& s = *scratch_;
  Scratch::Routing& routing = s.routing;
  const HParams& h = hparams();
  const int64_t k = h.experts_per_token;
  Project(plan.router, core, s.normed, rows, s.router);
  CHECK(layout_.spec->block.router == Router::kSoftmaxThenTopK);
  for (int64_t r = 0; r < rows; ++r) {
    // Softmax over all experts, then the k most probable, renormalised if the model says so.
    float* const probabilities = s.router + r * h.experts;
    kernels_.softmax(probabilities, h.experts);
    float* const chosen = routing.weights.data() + r * k;
    TopK(probabilities, h.experts, static_cast<int>(k), routing.experts.data() + r * k, chosen);
    if (!h.norm_topk) continue;
    float sum = 0;
    for (int64_t rank = 0; rank < k; ++rank) sum += chosen[rank];
    for (int64_t rank = 0; rank < k; ++rank) chosen[rank] /= sum;
  }

  std::fill(routing.starts.begin(), routing.starts.end(), 0);
  for (int64_t slot = 0; slot < rows * k; ++slot)
    ++routing.starts[static_cast<size_t>(routing.experts[static_cast<size_t>(slot)]) + 1];
  routing.wanted.clear();
  for (int32_t e = 0; e < h.experts; ++e) {
    if (routing.starts[static_cast<size_t>(e) + 1] > 0) routing.wanted.push_back(plan.first_expert + e);
    routing.starts[static_cast<size_t>(e) + 1] += routing.starts[static_cast<size_t>(e)];
  }
  // Filling moves each start to the next expert's; walking slots backwards restores them.
  for (int64_t slot = rows * k - 1; slot >= 0; --slot) {
    const size_t e = static_cast<size_t>(routing.experts[static_cast<size_t>(slot)]);
    routing.slots[static_cast<size_t>(--routing.starts[e + 1])] = static_cast<int32_t>(slot);
  }
  for (size_t e = 0; e < static_cast<size_t>(h.experts); ++e) routing.starts[e] = routing.starts[e + 1];
  routing.starts[static_cast<size_t>(h.experts)] = static_cast<int32_t>(rows * k);
}

// Runs one expert over its rows: gather, gate and up, down, scatter into s.parts.
void Model::RunExpert(const LayerPlan& plan, const Lease& expert) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const size_t e = static_cast<size_t>(expert.piece() - plan.first_expert);
  const int32_t* const slots = s.routing.slots.data() + s.routing.starts[e];
  const int64_t count = s.routing.starts[e + 1] - s.routing.starts[e];

  for (int64_t i = 0; i < count; ++i) {
    const float* const from = s.normed + slots[i] / h.experts_per_token * h.model_dim;
    std::copy_n(from, h.model_dim, s.gathered + i * h.model_dim);
  }
  Project(plan.expert_gate, expert, s.gathered, count, s.gate);
  Project(plan.expert_up, expert, s.gathered, count, s.up);
  pool_.ParallelFor(count * h.expert_ffn_dim, 4096, [&](int64_t begin, int64_t end, int) {
    activate_(s.gate + begin, s.up + begin, end - begin, s.gate + begin);
  });
  Project(plan.expert_down, expert, s.gate, count, s.gathered);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(s.gathered + i * h.model_dim, h.model_dim, s.parts + int64_t{slots[i]} * h.model_dim);
  }
}

void Model::Combine(int64_t rows, float* x) {
  Scratch& s = *scratch_;
  const int64_t dim = hparams().model_dim;
  const int64_t k = hparams().experts_per_token;
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      // Rank order, not arrival order: floating-point addition is not associative, and which expert arrives first
      // depends on the drive. The sum must not.
      float* const sum = s.normed + r * dim;
      std::fill_n(sum, dim, 0.0f);
      for (int64_t rank = 0; rank < k; ++rank) {
        const int64_t slot = r * k + rank;
        kernels_.add_scaled(sum, s.routing.weights[static_cast<size_t>(slot)], s.parts + slot * dim, dim);
      }
      kernels_.add(x + r * dim, sum, dim);
    }
  });
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
    Project(head_, h.tied ? embed : norm, s.normed, count, s.logits);
    RETURN_IF_ERROR(CheckFinite(batch, first, count));
    RETURN_IF_ERROR(sink(first, count, s.logits));
  }
  return Status();
}

// ---- steps
// -----------------------------------------------------------------------------------------------------------

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
  const int64_t pairs = rope_.pairs();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const int64_t at = static_cast<int64_t>(r) * pairs;
    rope_.Fill(batch.rows[r].position, batch.rows[r].rope_length, scratch_->cos + at, scratch_->sin + at);
  }
}

void Model::Norm(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* out) {
  const FloatVector w = VectorOf(weight, lease);
  const float epsilon = static_cast<float>(hparams().rms_epsilon);
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) norm_(x + r * w.size, w, 0.0f, epsilon, w.size, out + r * w.size);
  });
}

void Model::Rotate(int64_t rows, int64_t heads, float* heads_data) {
  const int64_t dim = hparams().head_dim;
  const int64_t pairs = rope_.pairs();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t head = 0; head < heads; ++head) {
      rotate_(heads_data + (r * heads + head) * dim, scratch_->cos + r * pairs, scratch_->sin + r * pairs, dim);
    }
  }
}

void Model::Project(const WeightUse& weight, const Lease& lease, const float* x, int64_t rows, float* y) {
  const WeightMatrix w = MatrixOf(weight, lease);
  const FloatVector bias = BiasOf(weight, lease);
  pool_.ParallelFor(w.rows, kOutputGrain, [&](int64_t begin, int64_t end, int thread) {
    kernels_.matmul(w, bias, x, w.cols, rows, begin, end, y, w.rows, scratch_->thread(thread));
  });
}

void Model::Attend(const LayerPlan& plan, const Batch& batch) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t group = h.heads / h.kv_heads;
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(h.head_dim)));
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  pool_.ParallelFor(rows * h.kv_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item / h.kv_heads;
      const int64_t kv_head = item % h.kv_heads;
      const Row& row = batch.rows[static_cast<size_t>(r)];
      const int64_t seen_end = int64_t{row.position} + 1;
      const int64_t seen_begin = plan.window > 0 ? std::max<int64_t>(0, seen_end - plan.window) : 0;
      const int64_t at = r * h.query_out() + kv_head * group * h.head_dim;
      kernels_.attend(s.query + at, static_cast<int>(group),
                      batch.sequences[static_cast<size_t>(row.sequence)]->View(plan.index), static_cast<int>(kv_head),
                      seen_begin, seen_end, {.scale = scale}, s.attended + at, s.thread(thread));
    }
  });
}

void Model::Add(const float* y, int64_t rows, float* x) { kernels_.add(x, y, rows * hparams().model_dim); }

}  // namespace nunspark
