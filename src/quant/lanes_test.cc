#include "quant/lanes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nunspark {
namespace {

std::vector<uint8_t> RandomBytes(int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Lanes, CodesReturnToTheRowsTheyCameFrom) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const int64_t cols : {32, 64, 96, 576}) {
      const std::vector<uint8_t> rows = RandomBytes(kLaneOutputs * cols * bits / 8);
      std::vector<uint8_t> tile(rows.size()), back(rows.size());
      CodesToLanes(bits, cols, rows.data(), tile.data());
      CodesFromLanes(bits, cols, tile.data(), back.data());
      EXPECT_EQ(back, rows) << bits << " bits, " << cols << " inputs";
      EXPECT_NE(tile, rows);
    }
  }
}

TEST(Lanes, ACodeIsThatOfItsRowsStream) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    const int64_t cols = 96, row_bytes = cols * bits / 8;
    const std::vector<uint8_t> rows = RandomBytes(kLaneOutputs * row_bytes);
    std::vector<uint8_t> tile(rows.size());
    CodesToLanes(bits, cols, rows.data(), tile.data());
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      for (int64_t k = 0; k < cols; ++k) {
        uint32_t code = 0;
        for (int bit = 0; bit < bits; ++bit) {
          const int64_t at = k * bits + bit;
          code |= static_cast<uint32_t>(rows[static_cast<size_t>(lane * row_bytes + at / 8)] >> (at % 8) & 1) << bit;
        }
        ASSERT_EQ(LaneCode(bits, tile.data(), lane, k), code) << bits << " bits, output " << lane << ", input " << k;
      }
    }
  }
}

// The bytes of one word, written down.
TEST(Lanes, FourBitsOfAnOutputsFirstInputsAreItsFirstWord) {
  std::vector<uint8_t> rows(kLaneOutputs * 16), tile(rows.size());
  const size_t lane = 3;
  for (size_t i = 0; i < 4; ++i) rows[lane * 16 + i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);  // codes 0 .. 7
  CodesToLanes(4, 32, rows.data(), tile.data());
  const std::vector<uint8_t> word(tile.begin() + lane * 4, tile.begin() + lane * 4 + 4);
  EXPECT_EQ(word, (std::vector<uint8_t>{0x40, 0x51, 0x62, 0x73}));
}

TEST(Lanes, ScalesStandByGroups) {
  for (const int64_t bytes : {1, 2, 4}) {
    const int64_t groups = 5;
    const std::vector<uint8_t> rows = RandomBytes(kLaneOutputs * groups * bytes);
    std::vector<uint8_t> tile(rows.size()), back(rows.size());
    ScalesToLanes(groups, bytes, rows.data(), tile.data());
    ScalesFromLanes(groups, bytes, tile.data(), back.data());
    EXPECT_EQ(back, rows);
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      for (int64_t group = 0; group < groups; ++group) {
        EXPECT_EQ(tile[static_cast<size_t>((group * kLaneOutputs + lane) * bytes)],
                  rows[static_cast<size_t>((lane * groups + group) * bytes)]);
      }
    }
  }
}

TEST(Lanes, OnlyWholeTilesOfCodesHaveThem) {
  const WeightFormat affine{.encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16};
  EXPECT_TRUE(HasLanes(affine, 32, 64));
  EXPECT_FALSE(HasLanes(affine, 40, 64));
  EXPECT_FALSE(HasLanes(InOrder(affine, MatrixOrder::kLanes16), 32, 64));
  EXPECT_TRUE(HasLanes(FixedFormat(Encoding::kMxFp4), 16, 64));
  EXPECT_FALSE(HasLanes(FixedFormat(Encoding::kQ4_0), 16, 64));
  EXPECT_FALSE(HasLanes(FloatFormat(FloatType::kBF16), 16, 64));
  EXPECT_EQ(FormatName(InOrder(affine, MatrixOrder::kLanes16)), "affine4-g64/bf16-lanes16");
}

}  // namespace
}  // namespace nunspark
