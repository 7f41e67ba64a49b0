// 16-bit floats in scalar code: the definition that every kernel's conversion must match bit for bit.
//
// Widening is exact. Narrowing rounds to nearest, ties to even, with subnormals; overflow gives infinity. A NaN stays a
// NaN: its sign and upper payload bits are kept and it becomes quiet, as the processors' own instructions do it.
#ifndef NUNSPARK_BASE_HALF_H_
#define NUNSPARK_BASE_HALF_H_

#include <bit>
#include <cstdint>

namespace nunspark {

constexpr float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  // Half of the last kept bit, less one when that bit is even: the carry then rounds to nearest even.
  const uint32_t rounded = nan ? (bits | 0x00400000u) : bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(rounded >> 16);
}

constexpr float F16ToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // Subnormals: mantissa * 2^-24, exact in float32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

constexpr uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half. Adding 0.5 puts the half's last bit (2^-24) at the float's last bit, so the
    // addition itself rounds to nearest even; the low bits of the sum are the half.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

// The largest half that is not above `value`, and the smallest that is not below it; infinite where no finite one is.
// REQUIRES: not NaN.
constexpr uint16_t F16AtMost(float value) {
  const uint16_t nearest = FloatToF16(value);
  if (F16ToFloat(nearest) <= value) return nearest;
  return static_cast<uint16_t>((nearest & 0x8000u) != 0 ? nearest + 1 : nearest - 1);
}
constexpr uint16_t F16AtLeast(float value) { return static_cast<uint16_t>(F16AtMost(-value) ^ 0x8000u); }

}  // namespace nunspark

#endif  // NUNSPARK_BASE_HALF_H_
