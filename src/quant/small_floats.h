// Floats of 4 and 8 bits in scalar code, exact in float32.
#ifndef NUNSPARK_QUANT_SMALL_FLOATS_H_
#define NUNSPARK_QUANT_SMALL_FLOATS_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace nunspark {

// Twice the magnitude of the lower three bits of an e2m1 code; bit 3 is the sign.
inline constexpr uint8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 1, 2, 3, 4, 6, 8, 12};

constexpr float E2m1ToFloat(uint32_t code) {
  const float magnitude = 0.5f * static_cast<float>(kTwiceE2m1[code & 15]);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// Four exponent bits with bias 7, subnormals, no infinities; 0x7f and 0xff are NaN.
constexpr float E4m3ToFloat(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude < 8) {
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// 2^(code - 128), half of what an e8m0 scale stands for: unlike the whole, it is finite for every code, and codes of
// elements are doubled for it (exactly).
constexpr float HalfE8m0ToFloat(uint32_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1) << 23);
}

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_SMALL_FLOATS_H_
