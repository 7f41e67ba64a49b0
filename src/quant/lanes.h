// Sixteen outputs side by side: the order of storage MatrixOrder::kLanes16, and the way there and back.
//
// Rows are taken sixteen at a time; these tiles follow each other. A tile holds, for every 32 inputs, one or two planes
// of code bits: of P = 1, 2, 4 or 8 bits, with [word: P][output: 16] little-endian words of 32 bits. Byte i of word w
// has in its bits [P j, P j + P) the bits of input 32 / P * w + 4 j + i. Codes of 3, 5 and 6 bits are a plane of 2, 4
// and 4 low bits and then one of 1, 1 and 2 high bits. Scales (and biases) are [group][output: 16] in their own type.
//
// A vector of sixteen words so holds four consecutive inputs of every output, once the bits are masked, which is what
// instructions for products of four bytes take: no lanes have to be added up (docs/decisions/0006-packs-hold-lanes.md).
#ifndef NUNSPARK_QUANT_LANES_H_
#define NUNSPARK_QUANT_LANES_H_

#include <cstdint>

#include "quant/encoding.h"

namespace nunspark {

inline constexpr int64_t kLaneOutputs = 16;

// Widths of the planes of codes of `bits`; high is 0 when there is one plane.
struct LanePlanes {
  int low = 0;
  int high = 0;
};
constexpr LanePlanes LanePlanesOf(int bits) {
  switch (bits) {
    case 3: return {2, 1};
    case 5: return {4, 1};
    case 6: return {4, 2};
    default: return {bits, 0};
  }
}

// Whether a matrix of this row-major format can be stored so: affine and mxfp4, in whole tiles.
bool HasLanes(const WeightFormat& format, int64_t rows, int64_t cols);

// `format` in the other order. REQUIRES: an encoding that HasLanes takes.
WeightFormat InOrder(WeightFormat format, MatrixOrder order);

// One tile of codes, kLaneOutputs rows of RowBytes each, there and back; `out` as large and not the same.
void CodesToLanes(int bits, int64_t cols, const uint8_t* rows, uint8_t* out);
void CodesFromLanes(int bits, int64_t cols, const uint8_t* tile, uint8_t* out);

// One tile of scales: kLaneOutputs rows of `groups` values of `bytes` each (1, 2 or 4), there and back.
void ScalesToLanes(int64_t groups, int64_t bytes, const uint8_t* rows, uint8_t* out);
void ScalesFromLanes(int64_t groups, int64_t bytes, const uint8_t* tile, uint8_t* out);

// The code of input k of output `lane` of a tile.
uint32_t LaneCode(int bits, const uint8_t* tile, int64_t lane, int64_t k);

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_LANES_H_
