#include "base/rng.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

// Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32-10).
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedUniform, StaysInsideTheOpenIntervalWithTheRightMean) {
  double sum = 0;
  for (uint32_t i = 0; i < 100000; ++i) {
    const double u = KeyedUniform({.seed = 7, .choice = 0, .position = i}, i * 3);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

}  // namespace
}  // namespace nunspark
