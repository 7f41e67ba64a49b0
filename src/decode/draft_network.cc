#include "decode/draft_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"

namespace nunspark {
namespace {

// Rows whose logits are computed together: the head is read once for them.
constexpr int32_t kLogitRows = 8;

// Tokens of clusters that one thread scores at least.
constexpr int64_t kTokenGrain = 64;

int64_t Padded(int64_t floats) { return AlignUp(floats, 16); }

// A decoded row of the head as a matrix.
WeightMatrix OneRow(const HParams& h, const float* row) {
  return {.format = FloatFormat(FloatType::kF32),
          .rows = 1,
          .cols = h.model_dim,
          .data = reinterpret_cast<const uint8_t*>(row)};
}

// What a thread needs for one.
int64_t RowFloats(const HParams& h) { return Padded(h.model_dim) + Padded(MatMulScratchFloats(OneRow(h, nullptr), 1)); }

bool Slides(const LayerShape& layer) { return layer.window > 0; }

// The target's last layer with keys of its own that slides, or does not.
const LayerShape* LastOwner(const HParams& target, bool slides) {
  const LayerShape* last = nullptr;
  for (size_t i = 0; i < target.layer.size(); ++i) {
    const LayerShape& layer = target.layer[i];
    if (layer.kv_layer == static_cast<int32_t>(i) && Slides(layer) == slides) last = &layer;
  }
  return last;
}

Status Mismatch(std::string_view what, std::string_view name, int64_t expected, int64_t found) {
  return InvalidArgumentError(fmt::format(
      "{}: {}: expected {}, as in the model that it shall draft for, found {}; was it made for another model?", what,
      name, expected, found));
}

bool Borrows(const ArchSpec& spec) { return spec.block.attention == Attention::kBorrowed; }

// Whose keys each of the network's layers attends to, as indices into the target's KvShapes.
std::vector<int32_t> BorrowedKv(const ModelLayout& layout, const HParams& target) {
  std::vector<int32_t> borrowed;
  if (!Borrows(*layout.spec)) return borrowed;
  for (const LayerShape& layer : layout.hparams.layer) {
    const LayerShape* const owner = LastOwner(target, Slides(layer));
    int32_t index = 0;
    for (size_t i = 0; &target.layer[i] != owner; ++i) {
      index += target.layer[i].kv_layer == static_cast<int32_t>(i) ? 1 : 0;
    }
    borrowed.push_back(index);
  }
  return borrowed;
}

}  // namespace

Status DraftNetwork::CheckPair(const ArchSpec& spec, const HParams& h, const HParams& target, std::string_view what) {
  if (h.backbone_dim != target.model_dim) {
    return Mismatch(what, Borrows(spec) ? "backbone_hidden_size" : "hidden_size", target.model_dim, h.backbone_dim);
  }
  if (h.vocab_size != target.vocab_size) return Mismatch(what, "vocab_size", target.vocab_size, h.vocab_size);
  if (h.ordered_embeddings &&
      (h.centroids < 1 || h.vocab_size % h.centroids != 0 || h.centroid_top_k < 1 || h.centroid_top_k > h.centroids)) {
    return InvalidArgumentError(
        fmt::format("{}: expected num_centroids to divide vocab_size {} and centroid_intermediate_top_k from 1 to it, "
                    "found {} and {}",
                    what, h.vocab_size, h.centroids, h.centroid_top_k));
  }
  if (!Borrows(spec)) return Status();
  if (target.kv_rank > 0) {
    return InvalidArgumentError(
        fmt::format("{}: an assistant attends to its target's keys; this model keeps a latent instead", what));
  }
  for (const LayerShape& layer : h.layer) {
    const LayerShape* const owner = LastOwner(target, Slides(layer));
    if (owner == nullptr) {
      return InvalidArgumentError(
          fmt::format("{}: a layer attends to keys of a {} layer, and the model that it shall "
                      "draft for has none",
                      what, Slides(layer) ? "sliding" : "full-attention"));
    }
    if (layer.head_dim != owner->head_dim) return Mismatch(what, "head_dim", owner->head_dim, layer.head_dim);
    if (layer.window != owner->window) return Mismatch(what, "sliding_window", owner->window, layer.window);
    if (h.heads % owner->kv_heads != 0) {
      return InvalidArgumentError(
          fmt::format("{}: num_attention_heads: expected a multiple of {}, the key heads of the model that it shall "
                      "draft for, found {}",
                      what, owner->kv_heads, h.heads));
    }
  }
  return Status();
}

DraftNetwork::DraftNetwork(const ModelLayout& layout, WeightSource& weights, const ModelLayout& target,
                           WeightSource& target_weights, ThreadPool& pool)
    : layout_(layout),
      weights_(weights),
      target_(target),
      target_weights_(target_weights),
      pool_(pool),
      kernels_(Kernels()),
      hidden_dim_(layout.hparams.backbone_dim) {
  const PieceLayout& ends = layout.pieces[static_cast<size_t>(layout.norm_head)];
  const PieceLayout& embed = layout.pieces[static_cast<size_t>(layout.embed)];
  pre_projection_ = *FindWeight(ends, Role::kPreProjection);
  final_norm_ = *FindWeight(ends, Role::kFinalNorm);
  post_projection_ = *FindWeight(ends, Role::kPostProjection);
  embed_ = *FindWeight(embed, Role::kEmbed);
  if (layout.hparams.ordered_embeddings) centroids_ = *FindWeight(ends, Role::kCentroids);
}

template <typename Carve>
void DraftNetwork::ForEachArray(const ModelLayout& layout, int threads, int64_t rows, const Carve& carve) {
  const HParams& h = layout.hparams;
  carve(&Buffers::joined, rows * 2 * h.backbone_dim);
  carve(&Buffers::x, rows * h.model_dim);
  carve(&Buffers::logits, std::min<int64_t>(rows, kLogitRows) * h.vocab_size);
  carve(&Buffers::scores, h.ordered_embeddings ? h.centroids : 0);
  carve(&Buffers::token_scores, h.ordered_embeddings ? h.centroid_top_k * (h.vocab_size / h.centroids) : 0);
  carve(&Buffers::threads, h.ordered_embeddings ? threads * RowFloats(h) : 0);
}

int64_t DraftNetwork::PlanBytes(const ModelLayout& layout, int threads, int32_t max_rows, Numerics numerics) {
  int64_t floats = 0;
  ForEachArray(layout, threads, max_rows, [&](float* Buffers::*, int64_t count) { floats += Padded(count); });
  const HParams& h = layout.hparams;
  const int64_t order = h.ordered_embeddings ? h.vocab_size * 4 + h.centroid_top_k * 8 : 0;
  const int64_t batch = max_rows * static_cast<int64_t>(sizeof(Row) + sizeof(KvSequence*) + sizeof(int32_t));
  return floats * 4 + order + batch + Model::ScratchBytes(layout, threads, max_rows, numerics);
}

Result<std::unique_ptr<DraftNetwork>> DraftNetwork::Create(const ModelLayout& layout, WeightSource& weights,
                                                           const ModelLayout& target, WeightSource& target_weights,
                                                           ThreadPool& pool, int32_t max_rows, Numerics numerics) {
  std::unique_ptr<DraftNetwork> network(new DraftNetwork(layout, weights, target, target_weights, pool));
  ASSIGN_OR_RETURN(network->model_,
                   Model::Create(layout, pool, max_rows, numerics, BorrowedKv(layout, target.hparams)));
  ASSIGN_OR_RETURN(network->ends_, weights.Acquire(layout.norm_head));
  ASSIGN_OR_RETURN(network->embed_lease_, weights.Acquire(layout.embed));
  // Read now: the first draft shall not wait for the drive.
  for (const PieceId id : layout.core) {
    ASSIGN_OR_RETURN(const Lease core, weights.Acquire(id));
  }
  RETURN_IF_ERROR(network->Allocate(max_rows));
  if (layout.hparams.ordered_embeddings) RETURN_IF_ERROR(network->ReadTokenOrder());
  return network;
}

Status DraftNetwork::Allocate(int32_t max_rows) {
  int64_t floats = 0;
  ForEachArray(layout_, pool_.threads(), max_rows, [&](float* Buffers::*, int64_t count) { floats += Padded(count); });
  ASSIGN_OR_RETURN(memory_, MappedMemory::Create(floats * 4, "the drafter's activations", "draft less at once"));
  float* next = reinterpret_cast<float*>(memory_.data());
  ForEachArray(layout_, pool_.threads(), max_rows, [&](float* Buffers::*member, int64_t count) {
    buffers_.*member = std::exchange(next, next + Padded(count));
  });
  batch_.rows.reserve(static_cast<size_t>(max_rows));
  batch_.sequences.reserve(static_cast<size_t>(max_rows));
  tokens_.reserve(static_cast<size_t>(max_rows));
  return Status();
}

Status DraftNetwork::ReadTokenOrder() {
  const HParams& h = layout_.hparams;
  const PieceLayout& ends = layout_.pieces[static_cast<size_t>(layout_.norm_head)];
  const int32_t part = FindWeight(ends, Role::kTokenOrdering)->data;
  const uint8_t* const stored = ends_.part(part);
  for (int64_t i = 0; i < h.vocab_size; ++i) {
    int64_t token = 0;
    std::memcpy(&token, stored + i * 8, 8);
    if (token < 0 || token >= h.vocab_size) {
      return DataLossError(fmt::format("tensor {}: expected tokens from 0 to {}, found {}",
                                       ends.parts[static_cast<size_t>(part)].name, h.vocab_size - 1, token));
    }
    token_order_.push_back(static_cast<int32_t>(token));
  }
  buffers_.chosen.resize(static_cast<size_t>(h.centroid_top_k));
  buffers_.chosen_scores.resize(buffers_.chosen.size());
  return Status();
}

Status DraftNetwork::Step(std::span<const DraftRow> rows, float* hidden, const DraftSink& sink) {
  CHECK(!rows.empty() && static_cast<int64_t>(rows.size()) <= max_rows());
  const int64_t count = static_cast<int64_t>(rows.size());
  float* const x = buffers_.x;
  RETURN_IF_ERROR(Join(rows, hidden));
  model_->Multiply(pre_projection_, ends_, buffers_.joined, count, x);
  FillBatch(rows);
  RETURN_IF_ERROR(model_->Layers(0, static_cast<int32_t>(layout_.core.size()), batch_, weights_, x));
  weights_.EndPass();
  model_->Norm(final_norm_, ends_, x, count, x);
  model_->Multiply(post_projection_, ends_, x, count, hidden);
  if (Borrows(*layout_.spec)) {
    Head(x, count, sink);
  } else {
    kernels_.add(hidden, x, count * hidden_dim_);
    Head(hidden, count, sink);
  }
  return Status();
}

// EAGLE: [hidden state | own embedding]; an assistant: [target's embedding, scaled | hidden state].
Status DraftNetwork::Join(std::span<const DraftRow> rows, const float* hidden) {
  const bool borrows = Borrows(*layout_.spec);
  tokens_.clear();
  for (const DraftRow& row : rows) tokens_.push_back(row.token);
  float* const joined = buffers_.joined;
  RETURN_IF_ERROR(borrows ? target_weights_.ReadRows(target_.embed, tokens_, joined)
                          : weights_.ReadRows(layout_.embed, tokens_, joined));
  const int64_t count = static_cast<int64_t>(rows.size());
  if (borrows && target_.hparams.embed_scale != 1) {
    kernels_.scale(joined, static_cast<float>(target_.hparams.embed_scale), count * hidden_dim_);
  }
  // Embeddings move apart, the last one first, so that none is overwritten.
  for (int64_t r = count - 1; r >= 0; --r) {
    float* const row = joined + r * 2 * hidden_dim_;
    std::memmove(borrows ? row : row + hidden_dim_, joined + r * hidden_dim_, static_cast<size_t>(hidden_dim_) * 4);
    std::copy_n(hidden + r * hidden_dim_, hidden_dim_, borrows ? row + hidden_dim_ : row);
  }
  return Status();
}

void DraftNetwork::FillBatch(std::span<const DraftRow> rows) {
  batch_.rows.clear();
  batch_.sequences.clear();
  for (const DraftRow& row : rows) {
    batch_.rows.push_back({.token = row.token,
                           .position = row.position,
                           .sequence = static_cast<int32_t>(batch_.sequences.size()),
                           .rope_length = row.position + 1});
    batch_.sequences.push_back(row.kv);
  }
}

void DraftNetwork::Head(const float* state, int64_t rows, const DraftSink& sink) {
  const HParams& h = layout_.hparams;
  for (int64_t first = 0; first < rows; first += kLogitRows) {
    const int64_t count = std::min<int64_t>(kLogitRows, rows - first);
    const float* const in = state + first * h.model_dim;
    float* const logits = buffers_.logits;
    if (h.ordered_embeddings) {
      for (int64_t r = 0; r < count; ++r) ClusteredLogits(in + r * h.model_dim, logits + r * h.vocab_size);
    } else {
      model_->Multiply(embed_, embed_lease_, in, count, logits);
    }
    for (int64_t r = 0; r < count; ++r) sink(static_cast<int32_t>(first + r), logits + r * h.vocab_size);
  }
}

// Logits of the tokens of the clusters whose centroids fit best; all others get one below the smallest of them.
void DraftNetwork::ClusteredLogits(const float* state, float* logits) {
  const HParams& h = layout_.hparams;
  Buffers& b = buffers_;
  model_->Multiply(centroids_, ends_, state, 1, b.scores);
  TopK(b.scores, h.centroids, static_cast<int>(h.centroid_top_k), b.chosen.data(), b.chosen_scores.data());

  const WeightMatrix head = MatrixOf(embed_, embed_lease_);
  const int64_t size = h.vocab_size / h.centroids;
  const auto token_at = [&](int64_t i) {
    const int64_t cluster = b.chosen[static_cast<size_t>(i / size)];
    return token_order_[static_cast<size_t>(cluster * size + i % size)];
  };
  const int64_t scored = h.centroid_top_k * size;
  pool_.ParallelFor(scored, kTokenGrain, [&](int64_t begin, int64_t end, int thread) {
    float* const row = b.threads + thread * RowFloats(h);
    const WeightMatrix one = OneRow(h, row);
    for (int64_t i = begin; i < end; ++i) {
      kernels_.decode_row(head, token_at(i), row);
      kernels_.matmul(one, {}, state, h.model_dim, 1, 0, 1, b.token_scores + i, 1, row + Padded(h.model_dim));
    }
  });
  std::fill_n(logits, h.vocab_size, *std::min_element(b.token_scores, b.token_scores + scored) - 1);
  for (int64_t i = 0; i < scored; ++i) logits[token_at(i)] = b.token_scores[i];
}

}  // namespace nunspark
