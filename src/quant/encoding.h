// Weight encodings: how a matrix of numbers is stored, in one table, with a scalar reference decoder.
//
// Weights are decoded exactly: affine elements are scale * code + bias in float32 with one rounding for the product and
// one for the sum done as a fused multiply-add (a single rounding), as every kernel does it.
// Layouts: MLX affine quantisation (mlx.core.quantize documentation): each row is a little-endian bit stream, element j
// in bits [j * bits, (j + 1) * bits); groups run along the row; scales and biases are [rows, cols / group_size].
#ifndef NUNSPARK_QUANT_ENCODING_H_
#define NUNSPARK_QUANT_ENCODING_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark {

enum class Encoding : uint8_t { kF32, kF16, kBF16, kAffine };

// Plain floating-point storage, also of scales, norms and additive biases.
enum class FloatType : uint8_t { kF32, kF16, kBF16 };

int64_t FloatBytes(FloatType type);
std::string_view FloatName(FloatType type);  // "f32"

struct WeightFormat {
  Encoding encoding = Encoding::kF32;
  uint8_t bits = 32;        // of one code
  uint16_t group_size = 0;  // elements a scale covers; 0 for the float encodings
  FloatType scale_type = FloatType::kF32;

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

WeightFormat FloatFormat(FloatType type);

// Short name for people and manifests: "bf16", "affine4-g64/bf16".
std::string FormatName(const WeightFormat& format);

// Whether this build can decode it: affine with 4 or 8 bits at groups of 32, 64, 128; the three float types.
bool IsSupported(const WeightFormat& format);

// Bytes of one row of codes (or floats) and of one row of scales (= of biases; 0 for float encodings).
// REQUIRES: cols a multiple of group_size for affine.
int64_t RowBytes(const WeightFormat& format, int64_t cols);
int64_t ScaleRowBytes(const WeightFormat& format, int64_t cols);

// A matrix in memory, [rows, cols] row-major. Any alignment. Borrowed.
struct WeightMatrix {
  WeightFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;  // affine only
  const uint8_t* biases = nullptr;  // affine only: quantisation offsets, not the additive bias
};

// A vector of plain floats in memory. Any alignment. Borrowed; data == nullptr means "absent".
struct FloatVector {
  FloatType type = FloatType::kF32;
  int64_t size = 0;
  const uint8_t* data = nullptr;
};

// Reference decoders. out has room for cols (size) floats.
void DecodeRow(const WeightMatrix& matrix, int64_t row, float* out);
void DecodeFloats(const FloatVector& vector, float* out);

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_ENCODING_H_
