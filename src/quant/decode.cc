// The reference decoders, one element at a time.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "quant/encoding.h"
#include "quant/gguf_decode.h"
#include "quant/lanes.h"
#include "quant/small_floats.h"

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

// Code of output n among the eight of an AWQ word.
int AwqNibble(const uint8_t* words, int64_t words_per_row, int64_t row, int64_t n) {
  constexpr int kShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  uint32_t word;
  std::memcpy(&word, words + (row * words_per_row + n / 8) * 4, sizeof word);
  return static_cast<int>((word >> kShift[n % 8]) & 15);
}

float AwqElement(const WeightMatrix& w, int64_t n, int64_t k) {
  const int64_t words = w.StoredRows() / 8, group = k / w.format.group_size;
  const int code = AwqNibble(w.data, words, k, n) - AwqNibble(w.biases, words, group, n);
  return static_cast<float>(code) * LoadFloat(w.format.scale_type, w.scales, group * w.StoredRows() + n);
}

// Element k of the stored row whose data and scales are given.
float Element(const WeightMatrix& w, const uint8_t* data, const uint8_t* scales, const uint8_t* biases, int64_t k) {
  const WeightFormat& format = w.format;
  switch (format.encoding) {
    case Encoding::kF32:
    case Encoding::kF16:
    case Encoding::kBF16: return LoadFloat(static_cast<FloatType>(format.encoding), data, k);
    case Encoding::kAffine: {
      const float scale = LoadFloat(format.scale_type, scales, k / format.group_size);
      const float bias = LoadFloat(format.scale_type, biases, k / format.group_size);
      return std::fma(scale, static_cast<float>(LoadCode(format.bits, data, k)), bias);
    }
    case Encoding::kMxFp4: return 2.0f * E2m1ToFloat(LoadCode(4, data, k)) * HalfE8m0ToFloat(scales[k / 32]);
    case Encoding::kMxFp8: return 2.0f * E4m3ToFloat(data[k]) * HalfE8m0ToFloat(scales[k / 32]);
    case Encoding::kNvFp4: {
      const float whole = w.biases == nullptr ? 1.0f : LoadFloat(FloatType::kF32, w.biases, 0);
      return E2m1ToFloat(LoadCode(4, data, k)) * (E4m3ToFloat(scales[k / 16]) * whole);
    }
    case Encoding::kFp8Block: {
      const int64_t block = format.group_size == 0 ? 0 : k / format.group_size;
      return E4m3ToFloat(data[k]) * LoadFloat(format.scale_type, scales, block);
    }
    default: {
      const int64_t elements = format.group_size;
      const uint8_t* block = data + k / elements * RowBytes(format, elements);
      return internal::BlockElement(format.encoding, block, static_cast<int>(k % elements));
    }
  }
}

void DecodeColumns(const WeightMatrix& w, int64_t stored_row, float* out) {
  for (int64_t k = 0; k < w.cols; ++k) {
    out[k] = w.format.encoding == Encoding::kAwq
                 ? AwqElement(w, stored_row, k)
                 : LoadFloat(static_cast<FloatType>(w.format.encoding), w.data, k * w.StoredRows() + stored_row);
  }
}

void DecodeLane(const WeightMatrix& w, int64_t stored_row, float* out) {
  const WeightFormat& format = w.format;
  const int64_t tile = stored_row / kLaneOutputs, lane = stored_row % kLaneOutputs;
  const uint8_t* const codes = w.data + tile * kLaneOutputs * RowBytes(format, w.cols);
  for (int64_t k = 0; k < w.cols; ++k) {
    const uint32_t code = LaneCode(format.bits, codes, lane, k);
    const int64_t group = (tile * (w.cols / format.group_size) + k / format.group_size) * kLaneOutputs + lane;
    if (format.encoding == Encoding::kMxFp4) {
      out[k] = 2.0f * E2m1ToFloat(code) * HalfE8m0ToFloat(w.scales[group]);
    } else {
      out[k] = std::fma(LoadFloat(format.scale_type, w.scales, group), static_cast<float>(code),
                        LoadFloat(format.scale_type, w.biases, group));
    }
  }
}

}  // namespace

void DecodeRow(const WeightMatrix& w, int64_t row, float* out) {
  CHECK(IsSupported(w.format));
  CHECK(row >= 0 && row < w.rows);
  const int64_t stored_row = w.StoredRow(row);
  if (w.format.order == MatrixOrder::kColumnMajor) return DecodeColumns(w, stored_row, out);
  if (w.format.order == MatrixOrder::kLanes16) return DecodeLane(w, stored_row, out);
  const uint8_t* data = w.data + stored_row * RowBytes(w.format, w.cols);
  const int64_t scale_row = ScaleRow(w.format, stored_row) * ScaleRowBytes(w.format, w.cols);
  const uint8_t* biases = w.format.encoding == Encoding::kAffine ? w.biases + scale_row : nullptr;
  const uint8_t* scales = w.scales == nullptr ? nullptr : w.scales + scale_row;
  for (int64_t k = 0; k < w.cols; ++k) out[k] = Element(w, data, scales, biases, k);
}

void DecodeFloats(const FloatVector& vector, float* out) {
  for (int64_t i = 0; i < vector.size; ++i) out[i] = LoadFloat(vector.type, vector.data, i * vector.step);
}

}  // namespace nunspark
