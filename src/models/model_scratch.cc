#include "models/model_scratch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"

namespace nunspark {
namespace {

int64_t Padded(int64_t floats) { return AlignUp(floats, 16); }

}  // namespace

template <typename Carve>
void Model::Scratch::ForEachArray(const ModelLayout& layout, int64_t rows, const Carve& carve) {
  const HParams& h = layout.hparams;
  const bool moe = h.experts > 0;
  const int64_t query = h.heads * std::max(h.max_head_dim(), h.value_dim);
  const int64_t latent = h.kv_rank + h.qk_rope_dim;
  const int64_t ffn = std::max({h.max_ffn_dim(), h.expert_ffn_dim, h.per_layer_dim});
  const int64_t stream = rows * h.model_dim;
  carve(&Scratch::x, stream);
  carve(&Scratch::normed, stream);
  carve(&Scratch::branch, stream);
  carve(&Scratch::query, rows * query);
  carve(&Scratch::key, rows * std::max(h.max_kv_out(), latent));
  carve(&Scratch::value, rows * std::max(h.max_kv_out(), h.query_rank));
  carve(&Scratch::absorbed, rows * h.heads * latent);
  carve(&Scratch::attended, rows * std::max(query, h.heads * h.kv_rank));
  carve(&Scratch::gate, rows * ffn);
  carve(&Scratch::up, rows * ffn);
  carve(&Scratch::routed, layout.spec->block.ffn == Ffn::kDenseAndMoe && moe ? stream : 0);
  carve(&Scratch::gathered, moe ? stream : 0);
  carve(&Scratch::parts, moe ? stream * h.experts_per_token : 0);
  carve(&Scratch::router, moe ? rows * h.experts : 0);
  carve(&Scratch::per_layer, rows * h.layers * h.per_layer_dim);
  carve(&Scratch::projected, rows * h.layers * h.per_layer_dim);
  carve(&Scratch::logits, IsDrafter(*layout.spec) ? 0 : std::min<int64_t>(rows, kHeadRows) * h.vocab_size);
  carve(&Scratch::sinks, h.heads);
}

int64_t Model::Scratch::PerThreadFloats(const ModelLayout& layout, int64_t rows) {
  int64_t floats = layout.hparams.kv_rank;
  for (const KvLayerShape& shape : KvShapes(layout.hparams)) {
    floats = std::max(floats, AttentionScratchFloats(shape.key_dim, shape.value_dim));
  }
  if (layout.spec->block.attention == Attention::kBorrowed) {
    for (const LayerShape& layer : layout.hparams.layer) {
      const int dim = static_cast<int>(layer.head_dim);
      floats = std::max(floats, AttentionScratchFloats(dim, dim));
    }
  }
  for (const PieceLayout& piece : layout.pieces) {
    // The experts of a layer are alike.
    if (piece.kind == PieceKind::kExpert && piece.expert > 0) continue;
    for (const WeightUse& use : piece.weights) {
      const WeightMatrix shape{.format = use.format,
                               .rows = use.rows,
                               .cols = use.cols,
                               .row_begin = use.row_begin,
                               .row_step = use.row_step,
                               .stored_rows = use.stored_rows};
      floats = std::max(floats, MatMulScratchFloats(shape, rows));
    }
  }
  return Padded(floats);
}

// Of the widest input of a product with codes.
int64_t Model::Scratch::RoundedRowFloats(const ModelLayout& layout, Numerics numerics) {
  if (numerics == Numerics::kF32) return 0;
  int64_t cols = 0;
  for (const PieceLayout& piece : layout.pieces) {
    for (const WeightUse& use : piece.weights) {
      if (HasCodes(use.format)) cols = std::max(cols, use.cols);
    }
  }
  return LayoutOfRoundedRow(cols, numerics).bytes / 4;
}

int64_t Model::Scratch::TotalFloats(const ModelLayout& layout, int threads, int64_t rows, Numerics numerics) {
  int64_t total = PerThreadFloats(layout, rows) * threads;
  ForEachArray(layout, rows, [&](float* Scratch::*, int64_t floats) { total += Padded(floats); });
  for (const RopeParams& rope : layout.hparams.ropes) total += 2 * Padded(rows * rope.rotary_dim / 2);
  const int64_t rounded = Padded(rows * RoundedRowFloats(layout, numerics));
  return total + (layout.hparams.experts > 0 ? 2 : 1) * rounded;
}

int64_t Model::Scratch::RoutingBytes(const HParams& h, int64_t rows) {
  return rows * h.experts_per_token * 16 + (h.experts + 1) * 32 + h.experts * static_cast<int64_t>(sizeof(Lease));
}

PageUse Model::page_use() const { return scratch_->memory.page_use(); }

Status Model::Scratch::Allocate(const ModelLayout& layout, int thread_count, int64_t rows, Numerics numerics) {
  ASSIGN_OR_RETURN(
      memory, MappedMemory::Create(TotalFloats(layout, thread_count, rows, numerics) * 4,
                                   fmt::format("the activations of {} rows", rows), "use a smaller --prefill-chunk"));
  float* next = reinterpret_cast<float*>(memory.data());
  const auto take = [&next](int64_t floats) { return std::exchange(next, next + Padded(floats)); };
  ForEachArray(layout, rows, [&](float* Scratch::*member, int64_t floats) { this->*member = take(floats); });
  for (const RopeParams& rope : layout.hparams.ropes) {
    cos.push_back(take(rows * rope.rotary_dim / 2));
    sin.push_back(take(rows * rope.rotary_dim / 2));
  }
  const int64_t rounded_floats = rows * RoundedRowFloats(layout, numerics);
  rounded = reinterpret_cast<uint8_t*>(take(rounded_floats));
  if (layout.hparams.experts > 0) gathered_rounded = reinterpret_cast<uint8_t*>(take(rounded_floats));
  per_thread = PerThreadFloats(layout, rows);
  threads = take(per_thread * thread_count);

  const HParams& h = layout.hparams;
  routing.experts.resize(static_cast<size_t>(rows * h.experts_per_token));
  routing.weights.resize(routing.experts.size());
  routing.slots.resize(routing.experts.size());
  routing.places.resize(routing.experts.size());
  routing.starts.resize(static_cast<size_t>(h.experts) + 1);
  routing.wanted.reserve(static_cast<size_t>(h.experts));
  routing.last_rows.reserve(static_cast<size_t>(h.experts));
  routing.row_counts.reserve(static_cast<size_t>(h.experts));
  routing.predicted.resize(static_cast<size_t>(h.experts));
  routing.scores.resize(static_cast<size_t>(h.experts));
  routing.ready.reserve(static_cast<size_t>(h.experts));
  routing.first_rows.reserve(static_cast<size_t>(h.experts) + 1);
  return Status();
}

}  // namespace nunspark
