// Matrix products: the canonical order of each encoding, and the scratch that carries it out.
//
// Native are the row-major floats and affine with 4 or 8 bits. All other weights are first decoded exactly, tiles of
// them at a time, and take the order of f32.
//
// A row of weights is cut into units of 64 bytes (32 for f16), seen as 16 lanes of one 32-bit word (one half for f16).
// A word holds kPlanes consecutive elements, so lane l of unit u covers elements u * kUnit + l * kPlanes + i, plane
// i = 0 in the low bits. The last unit may be short; what is missing counts as zero.
//
//   f32, f16   1 plane,  unit 16
//   bf16       2 planes, unit 32
//   affine 8   4 planes, unit 64
//   affine 4   8 planes, unit 128
//
// Floats: each lane adds w * x with fused multiply-adds over units, planes within a unit, in increasing order.
//
// Affine: sum(w x) = sum over groups of scale * sum(code x) + bias * sum(x), which spares decoding every element.
// Within a unit each lane forms dot = sum over planes of code * x (its elements are always of one group), then acc =
// fma(scale, dot, acc). After the last unit the biases follow: group g falls into lane g % 16, acc = fma(bias,
// sum_g(x), acc). sum_g(x) itself is taken over 16 lanes (element i of the group in lane i % 16) and the tree; it
// depends on x alone and is computed once a call. To avoid shifting codes down, plane i is masked in place, which
// multiplies codes by 2^(bits * i), and x is stored with the inverse factor; both are exact (unless x is below 2^-98,
// where the lost bits are below the smallest float that matters). The top plane is shifted instead, since the
// conversion from integers is signed.
//
// All: lanes are combined in the tree of kernels.h, then the additive bias is added.
//
// Integer codes with rounded activations (numerics.h): weight = scale * code + offset, with codes without sign (signed
// ones are raised by a constant z, the offset then being -z * scale). The sum over a block of 32 of code * q is exact;
// there are four lanes, block b falls into lane b % 4, and in increasing order of b a lane takes
//   acc = fma(scale, step * float(sum), acc);  acc = fma(offset, sum of x, acc)
// where encodings with scales for sixteen do so for the first and then for the second sixteen of the block, whose sum
// of x is the block's less the first's. Lanes are combined as (0 + 2) + (1 + 3), then the additive bias is added.
#ifndef NUNSPARK_KERNELS_MATMUL_H_
#define NUNSPARK_KERNELS_MATMUL_H_

#include <algorithm>
#include <cstdint>

#include "base/align.h"
#include "quant/encoding.h"

namespace nunspark::internal {

// Rows of x packed at once; more are done in blocks, each streaming the weights again (which then is cheap beside the
// arithmetic).
inline constexpr int64_t kRowBlock = 32;

// Outputs computed together: each packed x is loaded once for them.
inline constexpr int kOutBlock = 4;

// Query heads attended together (attention.inc).
inline constexpr int kAttentionHeads = 4;

// Its queries and outputs are padded to multiples of this.
inline constexpr int64_t kAttentionWidth = 32;

// Where a call keeps what in its scratch, in floats.
struct MatMulLayout {
  int64_t x_row;       // floats between packed rows of x
  int64_t groups_row;  // floats between rows of group sums, of decoded scales and of decoded biases
  int64_t x;           // [min(rows, kRowBlock), x_row]
  int64_t sums;        // [min(rows, kRowBlock), groups_row]
  int64_t scales;      // [kOutBlock, groups_row]
  int64_t biases;      // [kOutBlock, groups_row]
  int64_t total;
};

// Rows of x, not rounded, that a kLanes16 matrix multiplies as it is; for more it is put back into rows, so many
// outputs at once.
inline constexpr int64_t kLaneFewRows = 8;
inline constexpr int64_t kLaneRows = 64;

constexpr bool IsNative(const WeightFormat& format) {
  const bool affine = format.encoding == Encoding::kAffine && (format.bits == 4 || format.bits == 8);
  return format.order == MatrixOrder::kRowMajor && (format.encoding <= Encoding::kBF16 || affine);
}

// Native formats only.
constexpr int64_t UnitElements(const WeightFormat& format) {
  switch (format.encoding) {
    case Encoding::kF32:
    case Encoding::kF16: return 16;
    case Encoding::kBF16: return 32;
    case Encoding::kAffine: return 512 / format.bits;
    default: break;
  }
  return 0;
}

constexpr MatMulLayout LayoutOf(const WeightFormat& format, int64_t cols, int64_t rows) {
  MatMulLayout layout{};
  const int64_t block = std::min(rows, kRowBlock);
  // One cache line more than the data, so that rows of 4096 elements do not all meet in the same sets of the cache.
  layout.x_row = AlignUp(cols, UnitElements(format)) + 16;
  // Scales are read sixteen at a time from any group of the last unit.
  layout.groups_row = format.encoding == Encoding::kAffine ? AlignUp(cols / format.group_size, 16) + 16 : 0;
  layout.x = 0;
  layout.sums = layout.x + block * layout.x_row;
  layout.scales = layout.sums + block * layout.groups_row;
  layout.biases = layout.scales + kOutBlock * layout.groups_row;
  layout.total = layout.biases + kOutBlock * layout.groups_row;
  return layout;
}

// Decoded weights: tiles of `outs` outputs by `chunk` inputs. For few rows of x a tile stays in the first-level cache
// and the sums of its lanes are kept between chunks; for many it has all inputs and is reused for all rows, whose cost
// then hides the decoding.
inline constexpr int64_t kFewRows = 4;

// Outputs of a tile of a column-major matrix at most: AWQ has 128 in a cache line.
inline constexpr int64_t kColumnTile = 128;

struct DecodedLayout {
  int64_t outs;
  int64_t chunk;
  int64_t tile_row;  // floats between rows of the tile
  int64_t tile;      // [outs, tile_row]
  int64_t lanes;     // [outs, rows, 16] for few rows
  int64_t tails;     // [rows, 16]: the last cols % 16 inputs and zeros
  int64_t total;
};

constexpr DecodedLayout DecodedLayoutOf(const WeightMatrix& w, int64_t rows) {
  const bool few = rows <= kFewRows;
  DecodedLayout layout{};
  layout.outs = few ? 8 : 16;
  layout.chunk = few ? 1024 : w.cols;
  if (w.format.order == MatrixOrder::kColumnMajor) {
    // As many outputs as share a cache line; AWQ's many rows are worth fetching lines again from further caches.
    const bool awq = w.format.encoding == Encoding::kAwq;
    layout.outs = awq ? (few ? kColumnTile : 32) : 512 / w.format.bits;
    layout.outs = std::max<int64_t>(1, layout.outs / w.row_step);
    if (few) layout.chunk = awq ? 128 : 256;
  }
  layout.chunk = std::min(layout.chunk, w.cols);
  // One cache line more than the data, as above.
  layout.tile_row = AlignUp(layout.chunk, 16) + 16;
  layout.tile = 0;
  layout.lanes = layout.tile + layout.outs * layout.tile_row;
  layout.tails = layout.lanes + (few ? layout.outs * rows * 16 : 0);
  layout.total = layout.tails + rows * 16;
  return layout;
}

// Products of codes with rounded activations: the scratch, in floats, of 4 outputs (matmul_codes.inc) or 16
// (matmul_wide.inc).
struct CodeLayout {
  int64_t blocks;           // of 32 inputs, whole units
  int64_t scales, offsets;  // [sixteens, outputs]
  int64_t row;              // floats of a row of `rows`
  int64_t rows;             // [outputs, scales and offsets, sixteens], before they are arranged
  int64_t made;             // [outputs, inputs] bytes in their order
  int64_t codes;            // the same as matmul_wide.inc arranges them; nothing for 4 outputs
  int64_t total;
};

constexpr CodeLayout CodeLayoutOf(int64_t units, int64_t outs) {
  CodeLayout layout{};
  layout.blocks = units * 4;
  // Vectors of sixteen may go beyond the last one.
  layout.row = units * 8 + 16;
  layout.offsets = layout.row * outs;
  layout.rows = 2 * layout.row * outs;
  layout.made = layout.rows + 2 * layout.row * outs;
  layout.codes = layout.made + units * 32 * outs;
  layout.total = layout.codes + (outs == 16 ? units * 32 * outs : 0);
  return layout;
}

// Rows of x that pass the same weights before the next ones are read: as many as stay in the second-level cache.
constexpr int64_t CodeRowBlock(int64_t row_bytes) {
  return std::clamp<int64_t>((int64_t{768} << 10) / row_bytes / 4 * 4, 4, 256);
}

// Rows of x that a tile of AMX has. So many are worth tiles, fewer are not: by count of cycles they are from about six
// on, never measured (docs/decisions/0022-amx.md).
inline constexpr int64_t kAmxRows = 16;

// As CodeRowBlock, in whole tiles.
constexpr int64_t AmxRowBlock(int64_t row_bytes) {
  return std::max(CodeRowBlock(row_bytes) / kAmxRows * kAmxRows, kAmxRows);
}

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_MATMUL_H_
