// Small helpers that the weight sources share.
#ifndef NUNSPARK_WEIGHTS_LAYOUT_HELPERS_H_
#define NUNSPARK_WEIGHTS_LAYOUT_HELPERS_H_

#include <cstdint>
#include <span>
#include <string>

#include "models/model_layout.h"
#include "weights/piece_index.h"

namespace nunspark {

// "layer 17 expert 93", "layer 17 core", "embedding", "norm and head": a piece in a message.
std::string PieceName(const PieceLayout& piece);

// Rows of a whole table in memory (an embedding, a row table), out [rows.size(), its width].
void DecodeTableRows(const ModelLayout& layout, const PieceIndex& index, PieceId id, const uint8_t* base,
                     std::span<const int32_t> rows, float* out);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_LAYOUT_HELPERS_H_
