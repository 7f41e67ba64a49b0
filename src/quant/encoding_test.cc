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

WeightFormat Awq(uint16_t group, FloatType type) {
  return {.encoding = Encoding::kAwq,
          .bits = 4,
          .group_size = group,
          .scale_type = type,
          .order = MatrixOrder::kColumnMajor};
}

WeightFormat Fp8(uint16_t rows, uint16_t cols, FloatType type) {
  return {.encoding = Encoding::kFp8Block, .bits = 8, .group_size = cols, .scale_type = type, .group_rows = rows};
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

TEST(Encoding, FormatsAreNamedForPeople) {
  WeightFormat columns = FloatFormat(FloatType::kF16);
  columns.order = MatrixOrder::kColumnMajor;
  EXPECT_EQ(FormatName(columns), "f16-columns");
  EXPECT_EQ(FormatName(Awq(128, FloatType::kF16)), "awq4-g128/f16");
  EXPECT_EQ(FormatName(Fp8(128, 128, FloatType::kF32)), "fp8-128x128/f32");
  EXPECT_EQ(FormatName(Fp8(1, 0, FloatType::kBF16)), "fp8-1xall/bf16");
  EXPECT_EQ(FormatName(FixedFormat(Encoding::kMxFp4)), "mxfp4");
  EXPECT_EQ(FormatName(FixedFormat(Encoding::kQ4K)), "q4_k");
  EXPECT_EQ(FormatName(FixedFormat(Encoding::kGgufMxFp4)), "gguf-mxfp4");
}

TEST(Encoding, BlockFormatsAreFoundByTheNamesInPacks) {
  const std::string_view names[] = {"q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",   "q2_k", "q3_k",
                                    "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"};
  int encoding = static_cast<int>(Encoding::kQ4_0);
  for (std::string_view name : names) {
    const auto format = FindBlockFormat(name);
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_EQ(format->encoding, static_cast<Encoding>(encoding++));
    EXPECT_EQ(BlockName(*format), name);
    EXPECT_NE(BlockFormatNames().find(name), std::string::npos);
  }
  for (std::string_view name : {"", "mxfp8", "q4_K", "q4_kk", "f16"}) EXPECT_FALSE(FindBlockFormat(name)) << name;
  EXPECT_EQ(BlockName(FixedFormat(Encoding::kMxFp4)), "");
  EXPECT_EQ(BlockName(FloatFormat(FloatType::kF16)), "");
}

TEST(Encoding, SupportsEveryPublishedAffineFormat) {
  for (int bits = 0; bits <= 32; ++bits) {
    for (int group : {0, 16, 32, 48, 64, 96, 128, 256}) {
      const bool group_fits = group == 32 || group == 64 || group == 128;
      const bool expected = ((bits >= 1 && bits <= 6) || bits == 8) && group_fits;
      WeightFormat format = Affine(static_cast<uint8_t>(bits), static_cast<uint16_t>(group), FloatType::kF16);
      EXPECT_EQ(IsSupported(format), expected) << bits << " " << group;
      format.order = MatrixOrder::kColumnMajor;
      EXPECT_FALSE(IsSupported(format));
      format.encoding = Encoding::kAwq;
      EXPECT_EQ(IsSupported(format), bits == 4 && group_fits) << bits << " " << group;
    }
  }
}

TEST(Encoding, ContradictoryFormatsAreNotSupported) {
  for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    WeightFormat format = FloatFormat(type);
    EXPECT_TRUE(IsSupported(format));
    format.order = MatrixOrder::kColumnMajor;
    EXPECT_TRUE(IsSupported(format));
  }
  WeightFormat format = FloatFormat(FloatType::kF16);
  format.bits = 32;
  EXPECT_FALSE(IsSupported(format));
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    format = FixedFormat(static_cast<Encoding>(e));
    EXPECT_TRUE(IsSupported(format));
    ++format.group_size;
    EXPECT_FALSE(IsSupported(format));
  }
  for (int size : {0, 1, 100, 128, 65535}) {
    EXPECT_TRUE(IsSupported(Fp8(static_cast<uint16_t>(size), static_cast<uint16_t>(size), FloatType::kF32)));
  }
  format = Fp8(128, 128, FloatType::kF32);
  format.bits = 4;
  EXPECT_FALSE(IsSupported(format));
  format = Awq(128, FloatType::kF16);
  format.order = MatrixOrder::kRowMajor;
  EXPECT_FALSE(IsSupported(format));
}

TEST(Encoding, RowsHaveTheirSizes) {
  EXPECT_EQ(RowBytes(FloatFormat(FloatType::kF32), 5), 20);
  EXPECT_EQ(RowBytes(FloatFormat(FloatType::kBF16), 5), 10);
  EXPECT_EQ(ScaleRowBytes(FloatFormat(FloatType::kBF16), 5), 0);
  EXPECT_EQ(RowBytes(Affine(4, 64, FloatType::kBF16), 192), 96);
  EXPECT_EQ(RowBytes(Affine(8, 64, FloatType::kBF16), 192), 192);
  EXPECT_EQ(RowBytes(Affine(3, 32, FloatType::kBF16), 32), 12);
  EXPECT_EQ(RowBytes(Affine(1, 64, FloatType::kBF16), 192), 24);
  EXPECT_EQ(ScaleRowBytes(Affine(4, 64, FloatType::kBF16), 192), 6);
  EXPECT_EQ(ScaleRowBytes(Affine(4, 32, FloatType::kF32), 192), 24);
  EXPECT_EQ(RowBytes(FixedFormat(Encoding::kNvFp4), 64), 32);
  EXPECT_EQ(ScaleRowBytes(FixedFormat(Encoding::kNvFp4), 64), 4);
  EXPECT_EQ(ScaleRowBytes(FixedFormat(Encoding::kMxFp8), 64), 2);
  EXPECT_EQ(RowBytes(FixedFormat(Encoding::kQ4K), 512), 288);
  EXPECT_EQ(RowBytes(FixedFormat(Encoding::kQ8_0), 64), 68);
  EXPECT_EQ(ScaleRowBytes(FixedFormat(Encoding::kQ8_0), 64), 0);
  EXPECT_EQ(ScaleRowBytes(Fp8(128, 128, FloatType::kF32), 300), 12);
  EXPECT_EQ(ScaleRowBytes(Fp8(1, 0, FloatType::kBF16), 300), 2);
  EXPECT_EQ(ScaleRow(Fp8(128, 128, FloatType::kF32), 300), 2);
  EXPECT_EQ(ScaleRow(Fp8(0, 0, FloatType::kF32), 300), 0);
  EXPECT_EQ(ScaleRow(Affine(4, 64, FloatType::kBF16), 300), 300);
}

TEST(Encoding, WholeTensorsHaveTheirSizes) {
  EXPECT_EQ(DataBytes(Affine(3, 64, FloatType::kBF16), 10, 128), 480);
  EXPECT_EQ(ScaleBytes(Affine(3, 64, FloatType::kBF16), 10, 128), 40);
  EXPECT_EQ(BiasBytes(Affine(3, 64, FloatType::kBF16), 10, 128), 40);
  EXPECT_EQ(DataBytes(Awq(128, FloatType::kF16), 64, 384), 384 * 8 * 4);
  EXPECT_EQ(ScaleBytes(Awq(128, FloatType::kF16), 64, 384), 3 * 64 * 2);
  EXPECT_EQ(BiasBytes(Awq(128, FloatType::kF16), 64, 384), 3 * 8 * 4);
  EXPECT_EQ(DataBytes(Fp8(128, 128, FloatType::kF32), 300, 200), 60000);
  EXPECT_EQ(ScaleBytes(Fp8(128, 128, FloatType::kF32), 300, 200), 3 * 2 * 4);
  EXPECT_EQ(ScaleBytes(FixedFormat(Encoding::kMxFp4), 4, 64), 8);
  EXPECT_EQ(BiasBytes(FixedFormat(Encoding::kMxFp4), 4, 64), 0);
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

TEST(Encoding, VectorsWithAStepSkipElements) {
  std::vector<uint8_t> bytes;
  for (float value : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}) Append(value, FloatType::kBF16, bytes);
  std::vector<float> out(3);
  DecodeFloats({.type = FloatType::kBF16, .size = 3, .data = bytes.data(), .step = 2}, out.data());
  EXPECT_EQ(out, (std::vector<float>{1.0f, 3.0f, 5.0f}));
}

TEST(Encoding, RowsOfAPartAreRowsOfTheStoredTensor) {
  for (const CodecCase& whole : OwnCodecCases()) {
    WeightMatrix part = whole.matrix;
    part.stored_rows = part.rows;
    part.row_begin = 1;
    part.row_step = 2;
    part.rows = (whole.matrix.rows - 1) / 2;
    std::vector<float> expected(static_cast<size_t>(part.cols)), found(expected.size());
    for (int64_t row = 0; row < part.rows; ++row) {
      DecodeRow(whole.matrix, 1 + 2 * row, expected.data());
      DecodeRow(part, row, found.data());
      EXPECT_EQ(found, expected) << whole.name << row;
    }
  }
}

TEST(Encoding, ColumnMajorFloatsAreTransposed) {
  for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    std::vector<uint8_t> bytes;
    for (int k = 0; k < 3; ++k) {
      for (int n = 0; n < 5; ++n) Append(static_cast<float>(10 * n + k), type, bytes);
    }
    WeightMatrix w{.format = FloatFormat(type),
                   .rows = 2,
                   .cols = 3,
                   .data = bytes.data(),
                   .row_begin = 1,
                   .row_step = 2,
                   .stored_rows = 5};
    w.format.order = MatrixOrder::kColumnMajor;
    std::vector<float> out(3);
    DecodeRow(w, 1, out.data());
    EXPECT_EQ(out, (std::vector<float>{30, 31, 32})) << FloatName(type);
  }
}

// Bit for bit. With float32 scales the affine vectors may have rounded the product before the sum.
void ExpectDecodes(const CodecCase& c) {
  const WeightMatrix& w = c.matrix;
  const auto expected = c.file->Values<float>(c.prefix + "dequantized");
  const bool rounded = w.format.encoding == Encoding::kAffine && w.format.scale_type == FloatType::kF32;
  std::vector<float> biases;
  if (rounded) biases = c.file->Values<float>(c.prefix + "biases");
  std::vector<float> out(static_cast<size_t>(w.cols));
  for (int64_t row = 0; row < w.rows; ++row) {
    DecodeRow(w, row, out.data());
    for (int64_t k = 0; k < w.cols; ++k) {
      const float found = out[static_cast<size_t>(k)], want = expected[static_cast<size_t>(row * w.cols + k)];
      if (!rounded) {
        ASSERT_EQ(found, want) << c.name << " row " << row << " column " << k;
        continue;
      }
      const float bias = biases[static_cast<size_t>((row * w.cols + k) / w.format.group_size)];
      ASSERT_NEAR(found, want, 0x1p-23 * (std::abs(want - bias) + std::abs(bias))) << c.name << " row " << row;
    }
  }
}

TEST(CodecVectors, OwnSetDecodesExactly) {
  const std::vector<CodecCase> cases = OwnCodecCases();
  EXPECT_EQ(cases.size(), 63u + 4u + 3u + 2u + 13u);
  for (const CodecCase& c : cases) ExpectDecodes(c);
}

TEST(CodecVectors, FullSetDecodesExactly) {
  if (!HaveFullCodecVectors()) GTEST_SKIP() << "full reference set not present";
  for (const CodecCase& c : FullCodecCases()) ExpectDecodes(c);
}

TEST(CodecVectors, EveryCodeUnderSpecialScales) {
  if (!HaveFullCodecVectors()) GTEST_SKIP() << "full reference set not present";
  std::vector<CodecCase> modes;
  codec_cases::AddMicroscaled(kFullCodecVectors, modes);
  for (const CodecCase& mode : modes) {
    const CodecCase edge = codec_cases::Case(mode.name, mode.file, "edge.", mode.matrix.format, "weight", "scales");
    const WeightMatrix& w = edge.matrix;
    const auto expected = edge.file->Values<float>("edge.dequantized");
    const int64_t groups = w.cols / w.format.group_size;
    std::vector<float> out(static_cast<size_t>(w.cols));
    for (int64_t row = 0; row < w.rows; ++row) {
      DecodeRow(w, row, out.data());
      for (int64_t k = 0; k < w.cols; ++k) {
        // Without a defined value.
        if (w.format.encoding != Encoding::kNvFp4 && w.scales[row * groups + k / w.format.group_size] == 255) continue;
        const float found = out[static_cast<size_t>(k)], want = expected[static_cast<size_t>(row * w.cols + k)];
        ASSERT_TRUE(found == want || (std::isnan(found) && std::isnan(want)))
            << edge.name << " row " << row << " column " << k << ": " << found << " instead of " << want;
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
