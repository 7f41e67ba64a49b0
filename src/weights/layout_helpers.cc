#include "weights/layout_helpers.h"

#include <fmt/format.h>

#include "base/check.h"
#include "quant/encoding.h"

namespace nunspark {

std::string PieceName(const PieceLayout& piece) {
  switch (piece.kind) {
    case PieceKind::kEmbed: return "embedding";
    case PieceKind::kRowTable: return "per-layer embedding";
    case PieceKind::kNormHead: return "norm and head";
    case PieceKind::kCore: return fmt::format("layer {} core", piece.layer);
    case PieceKind::kExpert: return fmt::format("layer {} expert {}", piece.layer, piece.expert);
  }
  return piece.id;
}

void DecodeTableRows(const ModelLayout& layout, const PieceIndex& index, PieceId id, const uint8_t* base,
                     std::span<const int32_t> rows, float* out) {
  const WeightUse& use = layout.pieces[static_cast<size_t>(id)].weights.front();
  const std::vector<int64_t>& offsets = index.piece(id).part_offsets;
  const auto part = [&](int32_t i) { return i < 0 ? nullptr : base + offsets[static_cast<size_t>(i)]; };
  const WeightMatrix table{.format = use.format,
                           .rows = use.rows,
                           .cols = use.cols,
                           .data = part(use.data),
                           .scales = part(use.scales),
                           .biases = part(use.biases)};
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i] >= 0 && rows[i] < use.rows);
    DecodeRow(table, rows[i], out + static_cast<int64_t>(i) * use.cols);
  }
}

}  // namespace nunspark
