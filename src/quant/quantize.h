// Encoders: rows of floats to codes and scales, as mlx.core.quantize makes them. The counterpart of DecodeRow.
//
// Affine (2, 3, 4, 5, 6, 8 bits; groups of 32, 64, 128), per group in float32: with extremes lo and hi and the largest
// code n = 2^bits - 1, s = max((hi - lo) / n, 1e-7), negative unless |lo| > |hi|. The extreme of larger magnitude, e,
// is then made exact: with q0 = round(e / s) != 0, s = e / q0 and the bias is e; otherwise the bias is 0. A code is
// round((w - bias) / s) within [0, n]. Rounding is to nearest even everywhere. Codes come from the float32 s and bias;
// those are stored in the format's scale type. (mlx's GPU kernels differ in two details; this is its CPU definition.)
//
// mxfp4, mxfp8: groups of 32 with one scale byte s, value 2^(s - 127): the smallest power of two that is not below
// max|w| / 6 (448), so that nothing saturates, and 1 for a group of zeros. A code is the nearest e2m1 (e4m3) number to
// w / scale; a tie goes to the smaller magnitude for e2m1, to the even code for e4m3, as mlx 0.32 has it.
#ifndef NUNSPARK_QUANT_QUANTIZE_H_
#define NUNSPARK_QUANT_QUANTIZE_H_

#include <cstdint>
#include <span>

#include "quant/encoding.h"

namespace nunspark {

// Whether EncodeRow writes this format.
bool CanEncode(const WeightFormat& format);

// Where a row goes, as DecodeRow reads it: RowBytes of codes, ScaleRowBytes of scales and as many of biases (affine
// only). Any alignment.
struct EncodedRow {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;
  uint8_t* biases = nullptr;
};

// Encodes one row; the result depends on nothing but its arguments. Returns -1, or the column of the first value that
// has no encoding: NaN, an infinity, or the first of an affine group whose extremes are further apart than float32 can
// say; the row is then unfinished. REQUIRES: CanEncode(format), values.size() a multiple of the group size.
int64_t EncodeRow(const WeightFormat& format, std::span<const float> values, const EncodedRow& out);

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_QUANTIZE_H_
