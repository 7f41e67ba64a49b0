// Numerics by name, and the rows of rounded activations.
#ifndef NUNSPARK_KERNELS_NUMERICS_H_
#define NUNSPARK_KERNELS_NUMERICS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "nunspark/numerics.h"
#include "quant/encoding.h"

namespace nunspark {

std::string_view NumericsName(Numerics numerics);  // "f32"
std::optional<Numerics> FindNumerics(std::string_view name);

// Whether the weights are integer codes times scales. Those of other encodings (floats, fp8) always enter as kF32.
bool HasCodes(const WeightFormat& format);

// A rounded row of n activations. Blocks of 32 consecutive values; block b has the step d = (largest magnitude) / Q
// with Q = 32512 (kI16) or 127 (kI8), and integers q = round(x / d), to even. Blocks whose largest magnitude is below
// 2^-100 count as zeros; one that holds an infinity or NaN has the step NaN. n is filled up to whole units of four
// blocks with zeros. kI16 is stored as two planes of signed bytes: q = 256 * high + low.
//
// A row is an array of units, each of which has, 64 bytes aligned if the row is:
//
//   codes      [planes, high before low][half of a block: 0, 1][block: 4][16] signed bytes
//   pairs      the same bytes as [planes][parity of the element: even, odd][block: 4][16]
//   steps      [block: 4][4] f32    d, four times over, as what it is multiplied with has it
//   sums       [block: 4][4] f32    d * (sum of q)
//   half_sums  [block: 4][4] f32    d * (sum of q over the first sixteen)
struct RoundedRowLayout {
  int64_t units;
  int64_t unit_bytes;
  int64_t pairs, steps, sums, half_sums;  // within a unit
  int64_t bytes;                          // of the row, a multiple of 64
};

// REQUIRES: numerics is not kF32.
RoundedRowLayout LayoutOfRoundedRow(int64_t n, Numerics numerics);

}  // namespace nunspark

#endif  // NUNSPARK_KERNELS_NUMERICS_H_
