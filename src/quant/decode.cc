// The reference decoders of every encoding but GGML's blocks.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "quant/encoding.h"

namespace nunspark {
namespace {

float LoadFloat(FloatType type, const uint8_t* data, int64_t index) {
  if (type == FloatType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, sizeof bits);
  return type == FloatType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
}

// Code `index` of a little-endian bit stream.
uint32_t LoadCode(int bits, const uint8_t* stream, int64_t index) {
  const int64_t first = index * bits;
  uint32_t pair = stream[first / 8];
  if (first % 8 + bits > 8) pair |= static_cast<uint32_t>(stream[first / 8 + 1]) << 8;
  return (pair >> (first % 8)) & ((1u << bits) - 1);
}

void DecodeAffine(const WeightMatrix& matrix, int64_t stored_row, float* out) {
  const WeightFormat& format = matrix.format;
  const uint8_t* data = matrix.data + stored_row * RowBytes(format, matrix.cols);
  const int64_t scale_offset = stored_row * ScaleRowBytes(format, matrix.cols);
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const float scale = LoadFloat(format.scale_type, matrix.scales + scale_offset, k / format.group_size);
    const float bias = LoadFloat(format.scale_type, matrix.biases + scale_offset, k / format.group_size);
    out[k] = std::fma(scale, static_cast<float>(LoadCode(format.bits, data, k)), bias);
  }
}

}  // namespace

void DecodeRow(const WeightMatrix& matrix, int64_t row, float* out) {
  const WeightFormat& format = matrix.format;
  CHECK(IsSupported(format));
  CHECK(row >= 0 && row < matrix.rows);
  const int64_t stored_row = matrix.StoredRow(row);
  if (format.encoding == Encoding::kAffine) return DecodeAffine(matrix, stored_row, out);
  DecodeFloats({.type = static_cast<FloatType>(format.encoding),
                .size = matrix.cols,
                .data = matrix.data + stored_row * RowBytes(format, matrix.cols)},
               out);
}

void DecodeFloats(const FloatVector& vector, float* out) {
  for (int64_t i = 0; i < vector.size; ++i) out[i] = LoadFloat(vector.type, vector.data, i * vector.step);
}

}  // namespace nunspark
