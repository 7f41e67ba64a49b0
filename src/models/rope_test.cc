#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nunspark {
namespace {

// Angle of pair `pair` at `position`, read back from cos and sin at a position where it is small.
double InverseFrequency(const RopeParams& params, int64_t dim, int64_t pair, int64_t length = 1) {
  RopeParams rotated = params;
  rotated.rotary_dim = dim;
  RopeTable table(rotated);
  std::vector<float> cos(static_cast<size_t>(dim / 2)), sin(static_cast<size_t>(dim / 2));
  table.Fill(1, length, cos.data(), sin.data());
  return std::atan2(double{sin[static_cast<size_t>(pair)]}, double{cos[static_cast<size_t>(pair)]});
}

TEST(RopeTable, DefaultFrequenciesFollowTheFormula) {
  for (int64_t pair = 0; pair < 32; ++pair) {
    EXPECT_NEAR(InverseFrequency({.theta = 10000}, 64, pair), std::pow(10000, -static_cast<double>(pair) / 32), 1e-7);
  }
}

TEST(RopeTable, AnglesAreAccurateAtLongPositions) {
  RopeTable table({.theta = 1e6, .rotary_dim = 128});
  std::vector<float> cos(64), sin(64);
  for (const int64_t position : {0, 1, 1000, 131072, 1000000}) {
    table.Fill(position, position + 1, cos.data(), sin.data());
    for (size_t pair = 0; pair < 64; ++pair) {
      const float inverse = static_cast<float>(1 / std::pow(1e6, 2 * static_cast<double>(pair) / 128));
      const float angle = static_cast<float>(position) * inverse;
      EXPECT_NEAR(cos[pair], std::cos(static_cast<double>(angle)), 1e-7) << position << " " << pair;
      EXPECT_NEAR(sin[pair], std::sin(static_cast<double>(angle)), 1e-7);
    }
  }
}

TEST(RopeTable, LinearDividesEveryFrequency) {
  const RopeParams linear{.kind = RopeKind::kLinear, .theta = 10000, .factor = 4};
  EXPECT_NEAR(InverseFrequency(linear, 64, 0), 0.25, 1e-7);
  EXPECT_NEAR(InverseFrequency(linear, 64, 5), std::pow(10000, -5.0 / 32) / 4, 1e-7);
}

TEST(RopeTable, Llama3KeepsHighAndDividesLowFrequencies) {
  const RopeParams p{.kind = RopeKind::kLlama3, .theta = 500000, .factor = 8, .original_positions = 8192};
  EXPECT_NEAR(InverseFrequency(p, 128, 0), 1, 1e-6);
  const double slowest = std::pow(500000, -126.0 / 128);
  EXPECT_NEAR(InverseFrequency(p, 128, 63) / (slowest / 8), 1, 1e-4);
  for (int64_t pair = 0; pair < 64; ++pair) {
    const double plain = std::pow(500000, -static_cast<double>(pair) / 64);
    EXPECT_LE(InverseFrequency(p, 128, pair), plain * (1 + 1e-5));
    EXPECT_GE(InverseFrequency(p, 128, pair), plain / 8 * (1 - 1e-4));
  }
}

TEST(RopeTable, YarnScalesByItsAttentionFactor) {
  const RopeParams p{.kind = RopeKind::kYarn, .theta = 10000, .rotary_dim = 16, .factor = 4, .original_positions = 32};
  RopeTable table(p);
  std::vector<float> cos(8), sin(8);
  table.Fill(0, 1, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], 0.1 * std::log(4.0) + 1, 1e-6);
  RopeParams equal = p;
  equal.mscale = equal.mscale_all_dim = 1;
  RopeTable(equal).Fill(0, 1, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], 1, 1e-6);
  RopeParams given = p;
  given.attention_factor = 1.5;
  RopeTable(given).Fill(0, 1, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], 1.5, 1e-6);
}

TEST(RopeTable, DynamicStretchesOnlyBeyondTheTrainedLength) {
  const RopeParams p{.kind = RopeKind::kDynamic, .theta = 10000, .factor = 6, .original_positions = 32};
  EXPECT_EQ(InverseFrequency(p, 16, 3, 32), InverseFrequency({.theta = 10000}, 16, 3));
  const double theta = 10000 * std::pow(6.0 * 40 / 32 - 5, 16.0 / 14);
  EXPECT_NEAR(InverseFrequency(p, 16, 3, 40), std::pow(theta, -6.0 / 16), 1e-6);
}

TEST(RopeTable, LongRopeChangesItsFactorsBeyondTheTrainedLength) {
  const RopeParams p{.kind = RopeKind::kLongRope,
                     .theta = 10000,
                     .rotary_dim = 8,
                     .factor = 4,
                     .original_positions = 32,
                     .short_factor = {1, 1, 2, 2},
                     .long_factor = {3, 3, 5, 5}};
  const double plain = std::pow(10000, -4.0 / 8);
  EXPECT_NEAR(InverseFrequency(p, 8, 2, 32), plain / 2, 1e-7);
  EXPECT_NEAR(InverseFrequency(p, 8, 2, 33), plain / 5, 1e-7);
  RopeTable table(p);
  std::vector<float> cos(4), sin(4);
  table.Fill(0, 1, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], std::sqrt(1 + std::log(4.0) / std::log(32.0)), 1e-6);
}

TEST(RopeTable, ProportionalRotatesTheFirstPairsOnly) {
  const RopeParams p{.kind = RopeKind::kProportional, .theta = 10000, .rotated_share = 0.25};
  EXPECT_NEAR(InverseFrequency(p, 32, 3), std::pow(10000, -6.0 / 32), 1e-7);
  for (int64_t pair = 4; pair < 16; ++pair) EXPECT_EQ(InverseFrequency(p, 32, pair), 0);
}

}  // namespace
}  // namespace nunspark
