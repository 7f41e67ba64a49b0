#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nunspark {
namespace {

bool IsNanHalf(uint32_t bits) { return (bits & 0x7c00u) == 0x7c00u && (bits & 0x3ffu) != 0; }

// The value of a half from its definition, without going through float32 bits.
double DefinedF16(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1fu);
  const double mantissa = bits & 0x3ffu;
  const double magnitude = exponent == 0      ? std::ldexp(mantissa, -24)
                           : exponent == 0x1f ? std::numeric_limits<double>::infinity()
                                              : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16WidensToItsDefinedValueAndBack) {
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (IsNanHalf(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(FloatToF16(value), bits | 0x200u);
    } else {
      ASSERT_EQ(static_cast<double>(value), DefinedF16(bits)) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
      ASSERT_EQ(FloatToF16(value), bits);
    }
  }
}

TEST(Half, NarrowingToF16RoundsToNearestEvenBetweenEveryTwoNeighbours) {
  for (uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const float low = F16ToFloat(static_cast<uint16_t>(bits));
    const float high = F16ToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact: one more bit than a half has
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToF16(middle), even) << bits;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 1e9f)), bits + 1) << bits;
    ASSERT_EQ(FloatToF16(-middle), even | 0x8000u) << bits;
  }
  EXPECT_EQ(FloatToF16(65519.996f), 0x7bffu);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00u);
  EXPECT_EQ(FloatToF16(-std::numeric_limits<float>::infinity()), 0xfc00u);
  EXPECT_EQ(FloatToF16(1e-30f), 0u);
}

TEST(Half, BoundsAreTheNeighboursOnEitherSide) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const auto half = static_cast<uint16_t>(bits), above = static_cast<uint16_t>(bits + 1);
    const float value = F16ToFloat(half), next = std::nextafter(value, 1e9f);
    ASSERT_EQ(F16ToFloat(F16AtMost(value)), value) << bits;
    ASSERT_EQ(F16ToFloat(F16AtLeast(value)), value) << bits;
    ASSERT_EQ(F16AtMost(next), half) << bits;
    ASSERT_EQ(F16AtLeast(next), above) << bits;
    ASSERT_EQ(F16AtMost(-next), above | 0x8000u) << bits;
    ASSERT_EQ(F16AtLeast(-next), half | 0x8000u) << bits;
  }
  EXPECT_EQ(F16AtMost(1e9f), 0x7bffu);
  EXPECT_EQ(F16AtMost(-1e9f), 0xfc00u);
  EXPECT_EQ(F16AtLeast(1e9f), 0x7c00u);
}

TEST(Half, EveryBf16WidensToItsUpperBitsAndBack) {
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    const bool nan = (bits & 0x7fffu) > 0x7f80u;
    ASSERT_EQ(FloatToBf16(value), nan ? (bits | 0x40u) : bits);
  }
}

TEST(Half, NarrowingToBf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80u; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000u;
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle)), even) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle - 1)), bits) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle + 1)), bits + 1) << bits;
  }
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0u);  // a NaN with only low bits stays a NaN
}

}  // namespace
}  // namespace nunspark
