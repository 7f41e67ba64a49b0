#include "quant/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace nunspark {
namespace {

constexpr size_t kMaxGroup = 128;  // of affine
constexpr size_t kMxGroup = 32;

using Codes = std::array<uint8_t, kMaxGroup>;

int64_t FirstNotFinite(std::span<const float> group) {
  for (size_t i = 0; i < group.size(); ++i) {
    if (!std::isfinite(group[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

// The largest magnitude's bits: for floats of one sign, order of bits is order of values, with NaN above infinity above
// all others. Integers, so that the loop needs no thought about NaN and becomes vector code.
uint32_t LargestMagnitude(std::span<const float> group) {
  uint32_t largest = 0;
  for (const float value : group) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return largest;
}

constexpr uint32_t kInfinity = 0x7f800000u;

// Codes of `bits` each as a little-endian stream of bits: eight of them fill `bits` bytes, whatever their width.
void PackCodes(int bits, const Codes& codes, size_t count, uint8_t* out) {
  if (bits == 8) {
    std::memcpy(out, codes.data(), count);
    return;
  }
  for (size_t i = 0; i < count; i += 8) {
    uint64_t word = 0;
    for (size_t j = 0; j < 8; ++j) word |= uint64_t{codes[i + j]} << (j * static_cast<size_t>(bits));
    for (int byte = 0; byte < bits; ++byte) *out++ = static_cast<uint8_t>(word >> (8 * byte));
  }
}

void StoreFloat(FloatType type, float value, uint8_t* out, int64_t index) {
  if (type == FloatType::kF32) {
    std::memcpy(out + index * 4, &value, sizeof value);
    return;
  }
  const uint16_t half = type == FloatType::kF16 ? FloatToF16(value) : FloatToBf16(value);
  std::memcpy(out + index * 2, &half, sizeof half);
}

struct AffineGroup {
  float scale = 0;
  float bias = 0;
};

// REQUIRES: finite values.
AffineGroup FitAffine(int bits, std::span<const float> group) {
  float lo = group[0];
  float hi = group[0];
  for (const float value : group) {
    lo = value < lo ? value : lo;
    hi = value > hi ? value : hi;
  }
  const auto top = static_cast<float>((1 << bits) - 1);
  const bool low_edge = std::fabs(lo) > std::fabs(hi);
  const float step = std::max((hi - lo) / top, 1e-7f);
  AffineGroup fit{.scale = low_edge ? step : -step, .bias = 0};
  const float edge = low_edge ? lo : hi;
  const float zero_code = std::nearbyint(edge / fit.scale);
  if (zero_code != 0) fit = {.scale = edge / zero_code, .bias = edge};
  return fit;
}

void EncodeAffine(int bits, std::span<const float> group, const AffineGroup& fit, Codes& codes) {
  const auto top = static_cast<float>((1 << bits) - 1);
  // Adding 2^23 leaves the integer nearest to the value (ties to even) in the low bits of the sum. The limits are
  // integers, so that limiting before rounding gives the same as after.
  constexpr float kMagic = 0x1p23f;
  for (size_t i = 0; i < group.size(); ++i) {
    float code = (group[i] - fit.bias) / fit.scale;
    code = code > 0.0f ? code : 0.0f;
    code = code < top ? code : top;
    codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(code + kMagic));
  }
}

int64_t EncodeAffineRow(const WeightFormat& format, std::span<const float> values, const EncodedRow& out) {
  const size_t group_size = format.group_size;
  const size_t group_bytes = group_size * format.bits / 8;
  Codes codes;
  for (size_t start = 0; start < values.size(); start += group_size) {
    const std::span<const float> group = values.subspan(start, group_size);
    const size_t index = start / group_size;
    if (LargestMagnitude(group) >= kInfinity) return static_cast<int64_t>(start) + FirstNotFinite(group);
    const AffineGroup fit = FitAffine(format.bits, group);
    if (!std::isfinite(fit.scale)) return static_cast<int64_t>(start);
    EncodeAffine(format.bits, group, fit, codes);
    PackCodes(format.bits, codes, group_size, out.data + index * group_bytes);
    StoreFloat(format.scale_type, fit.scale, out.scales, static_cast<int64_t>(index));
    StoreFloat(format.scale_type, fit.bias, out.biases, static_cast<int64_t>(index));
  }
  return -1;
}

// The smallest power of two that is not below x > 0, as its exponent + 127 from 0 on. 127, a scale of one, for zero.
uint8_t EncodeE8M0(float x) {
  if (x == 0) return 127;
  if (x <= 0x1p-126f) return x > 0x1p-127f ? 1 : 0;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x007fffffu) != 0 ? 1 : 0));
}

// 2^(127 - scale): multiplying by it is dividing by the scale, both being powers of two.
float InverseE8M0(uint8_t scale) {
  return scale == 254 ? 0x1p-127f : std::bit_cast<float>(static_cast<uint32_t>(254 - scale) << 23);
}

// Sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. A value halfway between two becomes the
// smaller one, and what becomes zero loses its sign.
uint32_t EncodeE2M1(float value) {
  const float x = std::fabs(value);
  uint32_t code = 0;
  for (const float limit : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) code += x > limit ? 1 : 0;
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 28 & 8u;
  return code | (code != 0 ? sign : 0u);
}

// Sign, four bits of exponent (bias 7), three of mantissa; no infinity, 448 is the largest.
uint32_t EncodeE4M3(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 24 & 0x80u;
  const float magnitude = std::fabs(value);
  const float x = magnitude < 448.0f ? magnitude : 448.0f;
  // A subnormal code counts 2^-9: added to 2^14 they are the last bits of the sum. Otherwise the mantissa is cut to
  // three bits, with a carry for what is above the middle, or on it beside an odd code.
  const uint32_t small = std::bit_cast<uint32_t>(x + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t large = ((bits + 0x7ffffu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
  return sign | (x < 0x1p-6f ? small : large);
}

int64_t EncodeMxRow(int bits, std::span<const float> values, const EncodedRow& out) {
  const size_t group_bytes = kMxGroup * static_cast<size_t>(bits) / 8;
  const float largest_code = bits == 4 ? 6.0f : 448.0f;
  Codes codes;
  for (size_t start = 0; start < values.size(); start += kMxGroup) {
    const std::span<const float> group = values.subspan(start, kMxGroup);
    const uint32_t largest = LargestMagnitude(group);
    if (largest >= kInfinity) return static_cast<int64_t>(start) + FirstNotFinite(group);
    const uint8_t scale_code = EncodeE8M0(std::bit_cast<float>(largest) / largest_code);
    const float inverse = InverseE8M0(scale_code);
    if (bits == 4) {
      for (size_t i = 0; i < kMxGroup; ++i) codes[i] = static_cast<uint8_t>(EncodeE2M1(group[i] * inverse));
    } else {
      for (size_t i = 0; i < kMxGroup; ++i) codes[i] = static_cast<uint8_t>(EncodeE4M3(group[i] * inverse));
    }
    PackCodes(bits, codes, kMxGroup, out.data + start / kMxGroup * group_bytes);
    out.scales[start / kMxGroup] = scale_code;
  }
  return -1;
}

}  // namespace

bool CanEncode(const WeightFormat& format) {
  const Encoding encoding = format.encoding;
  if (encoding == Encoding::kMxFp4 || encoding == Encoding::kMxFp8) return format == FixedFormat(encoding);
  if (encoding != Encoding::kAffine || format.order != MatrixOrder::kRowMajor) return false;
  const bool bits = (format.bits >= 2 && format.bits <= 6) || format.bits == 8;
  return bits && (format.group_size == 32 || format.group_size == 64 || format.group_size == 128);
}

int64_t EncodeRow(const WeightFormat& format, std::span<const float> values, const EncodedRow& out) {
  CHECK(CanEncode(format));
  CHECK(values.size() % format.group_size == 0);
  return format.encoding == Encoding::kAffine ? EncodeAffineRow(format, values, out)
                                              : EncodeMxRow(format.bits, values, out);
}

}  // namespace nunspark
