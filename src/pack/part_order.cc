#include "pack/part_order.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "quant/lanes.h"

namespace nunspark {
namespace {

// Rows of these are decoded one by one (multi-head latent attention), or are taken from their middle.
bool IsUsedByRows(Role role) { return role == Role::kKvB || role == Role::kKeyB || role == Role::kValueB; }

// The matrix that use `first` and those after it share may be turned to lanes.
bool MayTurn(const ModelLayout& layout, const PieceLayout& piece, size_t first, const WeightFormat& format) {
  const bool table = piece.kind == PieceKind::kRowTable || (piece.kind == PieceKind::kEmbed && !layout.hparams.tied);
  const WeightUse& use = piece.weights[first];
  const TensorSlice& part = piece.parts[static_cast<size_t>(use.data)];
  // The names are those of MLX; what publishers have under other names is left alone.
  if (table || part.shape.size() != 2 || !part.name.ends_with(".weight")) return false;
  if (!HasLanes(format, use.stored_rows, use.cols)) return false;
  return std::all_of(piece.weights.begin(), piece.weights.end(), [&](const WeightUse& other) {
    if (other.data != use.data) return true;
    return !IsUsedByRows(other.role) && other.row_step == 1 && other.row_begin % kLaneOutputs == 0;
  });
}

}  // namespace

OrderPlan PlanOrders(const ModelLayout& layout, const QuantizePlan& quantize, PackLayout wanted) {
  OrderPlan plan(layout.pieces.size());
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    const PieceLayout& piece = layout.pieces[i];
    plan[i].resize(piece.parts.size());
    for (size_t u = 0; u < piece.weights.size(); ++u) {
      const WeightUse& use = piece.weights[u];
      const auto data = static_cast<size_t>(use.data);
      if (plan[i][data].has_value()) continue;
      const std::optional<PartEncoding> encoding = quantize.EncodingOf(i, data);
      WeightFormat format = encoding.has_value() ? encoding->format : use.format;
      const bool in_lanes = format.order == MatrixOrder::kLanes16;
      if (wanted == PackLayout::kRows ? !in_lanes : !MayTurn(layout, piece, u, format)) continue;
      format.order = MatrixOrder::kRowMajor;
      const MatrixOrder to = in_lanes ? MatrixOrder::kRowMajor : MatrixOrder::kLanes16;
      plan[i][data] = {.format = format, .cols = use.cols, .scales = false, .to = to};
      for (const int32_t part : {use.scales, use.biases}) {
        if (part < 0) continue;
        plan[i][static_cast<size_t>(part)] = {.format = format, .cols = use.cols, .scales = true, .to = to};
      }
    }
  }
  return plan;
}

void TurnTensors(const PartOrder& order, std::vector<ManifestTensor>& tensors) {
  for (ManifestTensor& tensor : tensors) {
    if (order.to == MatrixOrder::kLanes16) {
      CHECK(tensor.shape.size() == 2);
      tensor.name += kLanesSuffix;
      tensor.shape = {tensor.shape[0] / kLaneOutputs, tensor.shape[1], kLaneOutputs};
    } else {
      CHECK(tensor.shape.size() == 3 && tensor.name.ends_with(kLanesSuffix));
      tensor.name.resize(tensor.name.size() - kLanesSuffix.size());
      tensor.shape = {tensor.shape[0] * kLaneOutputs, tensor.shape[1]};
    }
  }
}

TileTurner::TileTurner(const PartOrder& order, bool scales) : order_(order), scales_(scales) {
  const int64_t row = scales ? ScaleRowBytes(order.format, order.cols) : RowBytes(order.format, order.cols);
  turned_.resize(static_cast<size_t>(kLaneOutputs * row));
  tile_.reserve(turned_.size());
}

Status TileTurner::Append(std::span<const uint8_t> bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const uint8_t* tile = bytes.data();
    size_t taken = turned_.size();
    if (!tile_.empty() || bytes.size() < taken) {
      taken = std::min(taken - tile_.size(), bytes.size());
      tile_.insert(tile_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
      tile = tile_.data();
    }
    bytes = bytes.subspan(taken);
    if (tile == tile_.data() && tile_.size() < turned_.size()) return Status();
    Turn(tile);
    tile_.clear();
    RETURN_IF_ERROR(sink(turned_));
  }
  return Status();
}

void TileTurner::Turn(const uint8_t* tile) {
  const WeightFormat& format = order_.format;
  const bool to_lanes = order_.to == MatrixOrder::kLanes16;
  if (scales_) {
    const int64_t groups = order_.cols / format.group_size, bytes = ScaleRowBytes(format, order_.cols) / groups;
    (to_lanes ? ScalesToLanes : ScalesFromLanes)(groups, bytes, tile, turned_.data());
  } else {
    (to_lanes ? CodesToLanes : CodesFromLanes)(format.bits, order_.cols, tile, turned_.data());
  }
}

}  // namespace nunspark
