#include "quant/encoding.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace nunspark {
namespace {

struct FloatRow {
  FloatType type;
  Encoding encoding;
  int64_t bytes;
  std::string_view name;
};

// In the order of FloatType.
constexpr FloatRow kFloats[] = {
    {FloatType::kF32, Encoding::kF32, 4, "f32"},
    {FloatType::kF16, Encoding::kF16, 2, "f16"},
    {FloatType::kBF16, Encoding::kBF16, 2, "bf16"},
};

const FloatRow& RowOf(FloatType type) { return kFloats[static_cast<int>(type)]; }

const FloatRow& RowOf(Encoding encoding) {
  CHECK(encoding != Encoding::kAffine);
  return kFloats[static_cast<int>(encoding)];
}

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

// Codes of 4 and 8 bits never straddle a byte, and the first of two sits in the low bits.
uint32_t LoadCode(int bits, const uint8_t* row, int64_t index) {
  if (bits == 8) return row[index];
  return (row[index / 2] >> (4 * (index % 2))) & 0xfu;
}

}  // namespace

int64_t FloatBytes(FloatType type) { return RowOf(type).bytes; }

std::string_view FloatName(FloatType type) { return RowOf(type).name; }

WeightFormat FloatFormat(FloatType type) {
  const FloatRow& row = RowOf(type);
  return {.encoding = row.encoding, .bits = static_cast<uint8_t>(row.bytes * 8), .group_size = 0, .scale_type = type};
}

std::string FormatName(const WeightFormat& format) {
  if (format.encoding != Encoding::kAffine) return std::string(RowOf(format.encoding).name);
  return fmt::format("affine{}-g{}/{}", format.bits, format.group_size, FloatName(format.scale_type));
}

bool IsSupported(const WeightFormat& format) {
  if (format.encoding != Encoding::kAffine) return format == FloatFormat(RowOf(format.encoding).type);
  const bool bits = format.bits == 4 || format.bits == 8;
  return bits && (format.group_size == 32 || format.group_size == 64 || format.group_size == 128);
}

int64_t RowBytes(const WeightFormat& format, int64_t cols) { return cols * format.bits / 8; }

int64_t ScaleRowBytes(const WeightFormat& format, int64_t cols) {
  if (format.encoding != Encoding::kAffine) return 0;
  DCHECK(cols % format.group_size == 0);
  return cols / format.group_size * FloatBytes(format.scale_type);
}

void DecodeRow(const WeightMatrix& matrix, int64_t row, float* out) {
  const WeightFormat& format = matrix.format;
  CHECK(IsSupported(format));
  CHECK(row >= 0 && row < matrix.rows);
  const uint8_t* data = matrix.data + row * RowBytes(format, matrix.cols);
  if (format.encoding != Encoding::kAffine) {
    DecodeFloats({.type = RowOf(format.encoding).type, .size = matrix.cols, .data = data}, out);
    return;
  }
  const int64_t scale_offset = row * ScaleRowBytes(format, matrix.cols);
  for (int64_t group = 0; group < matrix.cols / format.group_size; ++group) {
    const float scale = LoadFloat(format.scale_type, matrix.scales + scale_offset, group);
    const float bias = LoadFloat(format.scale_type, matrix.biases + scale_offset, group);
    for (int64_t j = group * format.group_size; j < (group + 1) * format.group_size; ++j) {
      out[j] = std::fma(scale, static_cast<float>(LoadCode(format.bits, data, j)), bias);
    }
  }
}

void DecodeFloats(const FloatVector& vector, float* out) {
  for (int64_t i = 0; i < vector.size; ++i) out[i] = LoadFloat(vector.type, vector.data, i);
}

}  // namespace nunspark
