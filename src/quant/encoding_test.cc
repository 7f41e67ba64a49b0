// The reference decoder: layouts, names and sizes, and the published codec vectors.
#include "quant/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "quant/codec_vectors.h"

namespace nunspark {
namespace {

WeightFormat Affine(uint8_t bits, uint16_t group, FloatType type) {
  return {.encoding = Encoding::kAffine, .bits = bits, .group_size = group, .scale_type = type};
}

void Append(float value, FloatType type, std::vector<uint8_t>& out) {
  uint8_t bytes[4];
  const uint16_t half = type == FloatType::kF16 ? FloatToF16(value) : FloatToBf16(value);
  if (type == FloatType::kF32) {
    std::memcpy(bytes, &value, 4);
  } else {
    std::memcpy(bytes, &half, 2);
  }
  out.insert(out.end(), bytes, bytes + FloatBytes(type));
}

TEST(Encoding, NamesSayEverythingThatDecodingNeeds) {
  EXPECT_EQ(FormatName(FloatFormat(FloatType::kF32)), "f32");
  EXPECT_EQ(FormatName(FloatFormat(FloatType::kF16)), "f16");
  EXPECT_EQ(FormatName(FloatFormat(FloatType::kBF16)), "bf16");
  EXPECT_EQ(FormatName(Affine(4, 64, FloatType::kBF16)), "affine4-g64/bf16");
  EXPECT_EQ(FormatName(Affine(8, 32, FloatType::kF32)), "affine8-g32/f32");
}

TEST(Encoding, SupportsFourAndEightBitsAtThreeGroupSizes) {
  for (int bits = 0; bits <= 32; ++bits) {
    for (int group : {0, 16, 32, 48, 64, 96, 128, 256}) {
      const bool expected = (bits == 4 || bits == 8) && (group == 32 || group == 64 || group == 128);
      EXPECT_EQ(IsSupported(Affine(static_cast<uint8_t>(bits), static_cast<uint16_t>(group), FloatType::kF16)),
                expected)
          << bits << " " << group;
    }
  }
  for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16})
    EXPECT_TRUE(IsSupported(FloatFormat(type)));
  WeightFormat contradictory = FloatFormat(FloatType::kF16);
  contradictory.bits = 32;
  EXPECT_FALSE(IsSupported(contradictory));
}

TEST(Encoding, RowsHaveTheirSizes) {
  EXPECT_EQ(RowBytes(FloatFormat(FloatType::kF32), 5), 20);
  EXPECT_EQ(RowBytes(FloatFormat(FloatType::kBF16), 5), 10);
  EXPECT_EQ(ScaleRowBytes(FloatFormat(FloatType::kBF16), 5), 0);
  EXPECT_EQ(RowBytes(Affine(4, 64, FloatType::kBF16), 192), 96);
  EXPECT_EQ(RowBytes(Affine(8, 64, FloatType::kBF16), 192), 192);
  EXPECT_EQ(ScaleRowBytes(Affine(4, 64, FloatType::kBF16), 192), 6);
  EXPECT_EQ(ScaleRowBytes(Affine(4, 32, FloatType::kF32), 192), 24);
}

TEST(Encoding, FourBitCodesRunFromTheLowNibbleUp) {
  // Codes 0, 1, 2, ... of 16 and, in the second row, backwards.
  std::vector<uint8_t> data, scales, biases;
  for (int row = 0; row < 2; ++row) {
    for (int j = 0; j < 64; j += 2) {
      const int low = j % 16, high = (j + 1) % 16;
      data.push_back(static_cast<uint8_t>(row == 0 ? low | (high << 4) : (15 - low) | ((15 - high) << 4)));
    }
    for (float scale : {0.5f, -2.0f}) Append(scale, FloatType::kF16, scales);
    for (float bias : {1.0f, 0.25f}) Append(bias, FloatType::kF16, biases);
  }
  const WeightMatrix matrix{.format = Affine(4, 32, FloatType::kF16),
                            .rows = 2,
                            .cols = 64,
                            .data = data.data(),
                            .scales = scales.data(),
                            .biases = biases.data()};
  for (int row = 0; row < 2; ++row) {
    std::vector<float> out(64);
    DecodeRow(matrix, row, out.data());
    for (int j = 0; j < 64; ++j) {
      const float code = static_cast<float>(row == 0 ? j % 16 : 15 - j % 16);
      EXPECT_EQ(out[static_cast<size_t>(j)], j < 32 ? 0.5f * code + 1.0f : -2.0f * code + 0.25f) << row << " " << j;
    }
  }
}

TEST(Encoding, EightBitCodesAreBytesWithOneRoundingPerElement) {
  std::vector<uint8_t> data, scales, biases;
  const float scale = 0.1f, bias = -12.7f;
  for (int j = 0; j < 128; ++j) data.push_back(static_cast<uint8_t>(j * 2 + 1));
  Append(scale, FloatType::kF32, scales);
  Append(bias, FloatType::kF32, biases);
  const WeightMatrix matrix{.format = Affine(8, 128, FloatType::kF32),
                            .rows = 1,
                            .cols = 128,
                            .data = data.data(),
                            .scales = scales.data(),
                            .biases = biases.data()};
  std::vector<float> out(128);
  DecodeRow(matrix, 0, out.data());
  for (int j = 0; j < 128; ++j) {
    // Exact in double: 24 x 8 bits for the product, and the sum fits as well.
    const double exact = static_cast<double>(scale) * (j * 2 + 1) + static_cast<double>(bias);
    EXPECT_EQ(out[static_cast<size_t>(j)], static_cast<float>(exact)) << j;
  }
}

TEST(Encoding, FloatVectorsOfEveryTypeDecodeAtAnyAddress) {
  for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    std::vector<uint8_t> bytes(3);
    const std::vector<float> values = {0.0f, -1.5f, 240.0f, -0x1p-14f};
    for (float value : values) Append(value, type, bytes);
    std::vector<float> out(4);
    DecodeFloats({.type = type, .size = 4, .data = bytes.data() + 3}, out.data());
    EXPECT_EQ(out, values) << FloatName(type);
    EXPECT_EQ(FloatFormat(type).bits, FloatBytes(type) * 8);
  }
}

// The vectors' own rounding: exact for f16 and bf16 scales, whose products with codes are exact in float32. With f32
// scales the product may have been rounded before the sum.
void ExpectDecodesVectors(const std::string& folder) {
  for (int bits : {4, 8}) {
    for (int group_size : {32, 64, 128}) {
      const CodecVectors vectors(folder, bits, group_size);
      for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
        const WeightMatrix matrix = vectors.Matrix(type);
        const auto expected = vectors.Values<float>(std::string(FloatName(type)) + ".dequantized");
        const int64_t groups = matrix.cols / group_size;
        std::vector<float> biases(static_cast<size_t>(matrix.rows * groups));
        DecodeFloats({.type = type, .size = matrix.rows * groups, .data = matrix.biases}, biases.data());
        for (int64_t row = 0; row < matrix.rows; ++row) {
          std::vector<float> out(static_cast<size_t>(matrix.cols));
          DecodeRow(matrix, row, out.data());
          for (int64_t j = 0; j < matrix.cols; ++j) {
            const float found = out[static_cast<size_t>(j)],
                        want = expected[static_cast<size_t>(row * matrix.cols + j)];
            const float bias = biases[static_cast<size_t>(row * groups + j / group_size)];
            const double tolerance = type == FloatType::kF32 ? 0x1p-23 * (std::abs(want - bias) + std::abs(bias)) : 0.0;
            ASSERT_NEAR(found, want, tolerance) << FormatName(matrix.format) << " row " << row << " column " << j;
          }
        }
      }
    }
  }
}

TEST(CodecVectors, OwnSetDecodesExactly) { ExpectDecodesVectors(kOwnCodecVectors); }

TEST(CodecVectors, FullSetDecodesExactly) {
  if (!HaveFullCodecVectors()) GTEST_SKIP() << "full reference set not present";
  ExpectDecodesVectors(kFullCodecVectors);
}

}  // namespace
}  // namespace nunspark
