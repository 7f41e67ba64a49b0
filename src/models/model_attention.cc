// Attention: grouped queries (GQA, arXiv:2305.13245) and a latent for keys and values (MLA, arXiv:2405.04434).
#include <algorithm>

#include "base/check.h"
#include "models/model.h"
#include "models/model_scratch.h"

namespace nunspark {
namespace {

// Norms of the low-rank projections take the default of their class, not rms_norm_eps (transformers,
// models/deepseek_v3/modeling_deepseek_v3.py, which Youtu's inherits).
constexpr double kLatentEpsilon = 1e-6;

}  // namespace

void Model::Attention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input in) {
  switch (layout_.spec->block.attention) {
    case Attention::kGqa:
    case Attention::kBorrowed: return GroupedAttention(plan, core, batch, in);
    case Attention::kMla: return LatentAttention(plan, core, batch, in);
    case Attention::kSingleKey: return SingleKeyAttention(plan, core, in);
  }
}

// What the pass reads and writes in the layer's keys and values comes into memory, if it is not there already.
Status Model::AwaitKv(const LayerPlan& plan, const Batch& batch) {
  if (layout_.spec->block.attention == Attention::kSingleKey) return Status();
  KvPool& pool = batch.sequences.front()->pool();
  if (!pool.BeginLayer(plan.kv_index)) return Status();
  for (const KvSequence* const sequence : batch.sequences) pool.UseInLayer(*sequence, 0, sequence->length());
  for (const Row& row : batch.rows) {
    for (const KvSequence* const sequence : SequencesOf(batch, row)) {
      pool.UseInLayer(*sequence, row.position, row.position + 1);
    }
  }
  return pool.AwaitLayer();
}

void Model::GroupedAttention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input& in) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  const int64_t dim = plan.shape.head_dim;
  const int64_t kv_out = plan.shape.kv_heads * dim;
  const bool norm_last = layout_.spec->block.qk_norm == QkNorm::kPerHeadAfterRope;

  // s.query [rows, heads * head_dim], s.key and s.value [rows, kv_heads * head_dim]
  if (!plan.keeps_kv) {
    Project({{plan.query, s.query}}, core, in);
  } else if (plan.shape.value_is_key) {
    Project({{plan.query, s.query}, {plan.key, s.key}}, core, in);
    std::copy_n(s.key, rows * kv_out, s.value);
  } else {
    Project({{plan.query, s.query}, {plan.key, s.key}, {plan.value, s.value}}, core, in);
  }
  if (plan.keeps_kv) {
    if (layout_.spec->block.value_norm == ValueNorm::kPerHead) {
      NormRows({}, dim, h.rms_epsilon, s.value, rows * plan.shape.kv_heads, s.value);
    }
  }
  if (!norm_last) NormHeads(plan, core, rows);
  Rotate(plan, rows, h.heads, dim, 0, s.query);
  if (plan.keeps_kv) Rotate(plan, rows, plan.shape.kv_heads, dim, 0, s.key);
  if (norm_last) NormHeads(plan, core, rows);
  for (int64_t r = 0; plan.keeps_kv && r < rows; ++r) {
    const Row& row = batch.rows[static_cast<size_t>(r)];
    for (KvSequence* const sequence : SequencesOf(batch, row)) {
      sequence->Store(plan.kv_index, row.position, s.key + r * kv_out, s.value + r * kv_out);
    }
  }
  Attend(plan, core, batch, s.query);  // s.attended [rows, heads * head_dim]
  Input attended{.x = s.attended, .rows = rows, .rounded = s.rounded};
  Project({{plan.attention_out, s.branch}}, core, attended);
}

// Norms of queries and keys, each head as a row of head_dim values, or all heads as one.
void Model::NormHeads(const LayerPlan& plan, const Lease& core, int64_t rows) {
  if (!Has(plan.query_norm)) return;
  Scratch& s = *scratch_;
  const int64_t query_out = hparams().heads * plan.shape.head_dim;
  Norm(plan.query_norm, core, s.query, rows * (query_out / plan.query_norm.cols), s.query);
  if (!plan.keeps_kv) return;
  const int64_t kv_out = plan.shape.kv_heads * plan.shape.head_dim;
  Norm(plan.key_norm, core, s.key, rows * (kv_out / plan.key_norm.cols), s.key);
}

// The softmax over one key is 1: every query head gets the value of its kv head.
void Model::SingleKeyAttention(const LayerPlan& plan, const Lease& core, Input& in) {
  Scratch& s = *scratch_;
  const int64_t heads = hparams().heads, kv_heads = plan.shape.kv_heads, dim = plan.shape.head_dim;
  Project({{plan.value, s.value}}, core, in);  // [rows, kv_heads * head_dim]
  for (int64_t i = 0; i < in.rows * heads; ++i) {
    const int64_t kv_head = i / heads * kv_heads + i % heads / (heads / kv_heads);
    std::copy_n(s.value + kv_head * dim, dim, s.attended + i * dim);
  }
  Input attended{.x = s.attended, .rows = in.rows, .rounded = s.rounded};
  Project({{plan.attention_out, s.branch}}, core, attended);
}

// The cache keeps one latent and one rotated key part per position. What would expand the latent to the keys of every
// head is multiplied into the query instead, and values are expanded after the weighted sum: both are linear.
void Model::LatentAttention(const LayerPlan& plan, const Lease& core, const Batch& batch, Input& in) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  const int64_t rank = h.kv_rank;
  const int64_t latent = rank + h.qk_rope_dim;

  if (Has(plan.query_a)) {
    Project({{plan.query_a, s.value}, {plan.kv_a, s.key}}, core, in);  // [rows, query_rank], [rows, kv_rank + rope]
    NormRows(VectorOf(plan.query_a_norm, core), h.query_rank, kLatentEpsilon, s.value, rows, s.value);
    Input ranks{.x = s.value, .rows = rows, .rounded = s.rounded};
    Project({{plan.query_b, s.query}}, core, ranks);  // [rows, heads * (nope + rope)]
  } else {
    Project({{plan.query, s.query}, {plan.kv_a, s.key}}, core, in);
  }
  const FloatVector norm = VectorOf(plan.kv_a_norm, core);
  for (int64_t r = 0; r < rows; ++r) NormRows(norm, rank, kLatentEpsilon, s.key + r * latent, 1, s.key + r * latent);
  Rotate(plan, rows, h.heads, plan.shape.head_dim, h.qk_nope_dim, s.query);
  Rotate(plan, rows, 1, latent, rank, s.key);
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = batch.rows[static_cast<size_t>(r)];
    for (KvSequence* const sequence : SequencesOf(batch, row)) {
      sequence->Store(plan.kv_index, row.position, s.key + r * latent, nullptr);
    }
  }
  AbsorbQuery(plan, core, rows);          // s.absorbed [rows, heads * (kv_rank + rope)]
  Attend(plan, core, batch, s.absorbed);  // s.attended [rows, heads * kv_rank]
  ExpandValues(plan, core, rows);         // s.query [rows, heads * value_dim]
  Input values{.x = s.query, .rows = rows, .rounded = s.rounded};
  Project({{plan.attention_out, s.branch}}, core, values);
}

// absorbed[head] = [K_head^T q_nope | q_rope].
void Model::AbsorbQuery(const LayerPlan& plan, const Lease& core, int64_t rows) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const int64_t rank = h.kv_rank, nope = h.qk_nope_dim, latent = rank + h.qk_rope_dim, dim = plan.shape.head_dim;
  const bool transposed = Has(plan.key_b);
  WeightMatrix keys = MatrixOf(transposed ? plan.key_b : plan.kv_b, core);
  pool_.ParallelFor(h.heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t head = begin; head < end; ++head) {
      WeightMatrix of_head = keys;
      of_head.row_begin = head * (transposed ? rank : nope + h.value_dim);
      float* const out = s.absorbed + head * latent;
      const float* const query = s.query + head * dim;
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(query + r * h.heads * dim + nope, h.qk_rope_dim, out + r * h.heads * latent + rank);
      }
      if (transposed) {
        kernels_.matmul(of_head, {}, query, h.heads * dim, rows, 0, rank, out, h.heads * latent, s.thread(thread));
      } else {
        AbsorbRows(of_head, rows, query, out, s.thread(thread));
      }
    }
  });
}

// out[row] = sum over the head's nope rows of query[row][i] * keys[i], in their order.
void Model::AbsorbRows(const WeightMatrix& keys, int64_t rows, const float* query, float* out, float* decoded) const {
  const HParams& h = hparams();
  const int64_t query_stride = h.heads * (h.qk_nope_dim + h.qk_rope_dim);
  const int64_t out_stride = h.heads * (h.kv_rank + h.qk_rope_dim);
  for (int64_t r = 0; r < rows; ++r) std::fill_n(out + r * out_stride, h.kv_rank, 0.0f);
  for (int64_t i = 0; i < h.qk_nope_dim; ++i) {
    kernels_.decode_row(keys, i, decoded);
    for (int64_t r = 0; r < rows; ++r) {
      kernels_.add_scaled(out + r * out_stride, query[r * query_stride + i], decoded, h.kv_rank);
    }
  }
}

// s.query [rows, heads * value_dim] = V_head times what the head attended to.
void Model::ExpandValues(const LayerPlan& plan, const Lease& core, int64_t rows) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const bool own = Has(plan.value_b);
  WeightMatrix values = MatrixOf(own ? plan.value_b : plan.kv_b, core);
  values.rows = h.value_dim;
  pool_.ParallelFor(h.heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t head = begin; head < end; ++head) {
      WeightMatrix of_head = values;
      of_head.row_begin = own ? head * h.value_dim : head * (h.qk_nope_dim + h.value_dim) + h.qk_nope_dim;
      kernels_.matmul(of_head, {}, s.attended + head * h.kv_rank, h.heads * h.kv_rank, rows, 0, h.value_dim,
                      s.query + head * h.value_dim, h.heads * h.value_dim, s.thread(thread));
    }
  });
}

// Rotates part [first, first + rotary_dim) of every head; heads are head_stride floats apart.
void Model::Rotate(const LayerPlan& plan, int64_t rows, int64_t heads, int64_t head_stride, int64_t first,
                   float* data) {
  const size_t rope = static_cast<size_t>(plan.shape.rope);
  const int64_t pairs = ropes_[rope].pairs();
  for (int64_t r = 0; r < rows; ++r) {
    const float* const cos = scratch_->cos[rope] + r * pairs;
    const float* const sin = scratch_->sin[rope] + r * pairs;
    for (int64_t head = 0; head < heads; ++head) {
      rotate_(data + (r * heads + head) * head_stride + first, cos, sin, ropes_[rope].rotary_dim());
    }
  }
}

// query [rows, heads * key_dim] -> s.attended [rows, heads * value_dim].
void Model::Attend(const LayerPlan& plan, const Lease& core, const Batch& batch, const float* query) {
  Scratch& s = *scratch_;
  const HParams& h = hparams();
  const bool sinks = Has(plan.sinks);
  const bool borrowed = layout_.spec->block.attention == Attention::kBorrowed;
  if (sinks) DecodeFloats(VectorOf(plan.sinks, core), s.sinks);
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  const KvView any = batch.sequences.front()->View(plan.kv_index);
  const int64_t kv_heads = any.kv_heads;
  const int64_t group = h.heads / kv_heads;
  pool_.ParallelFor(rows * kv_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item / kv_heads;
      const int64_t kv_head = item % kv_heads;
      const Row& row = batch.rows[static_cast<size_t>(r)];
      // A drafter's row has no key of its own: it sees those before its position.
      const int64_t seen_end = int64_t{row.position} + (borrowed ? 0 : 1);
      const int64_t window = plan.shape.window;
      const int64_t seen_begin =
          window > 0 ? std::clamp<int64_t>(int64_t{row.position} + 1 - window, 0, seen_end - 1) : 0;
      const int64_t first_head = kv_head * group;
      const AttendParams params{.scale = static_cast<float>(h.attention_scale),
                                .softcap = static_cast<float>(h.attention_softcap),
                                .sinks = sinks ? s.sinks + first_head : nullptr};
      kernels_.attend(query + (r * h.heads + first_head) * any.key_dim, static_cast<int>(group),
                      batch.sequences[static_cast<size_t>(row.sequence)]->View(plan.kv_index),
                      static_cast<int>(kv_head), seen_begin, seen_end, params,
                      s.attended + (r * h.heads + first_head) * any.value_dim, s.thread(thread));
    }
  });
}

}  // namespace nunspark
