// Matrix products of every table: the same bits as the scalar table, whatever is computed together; close to double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"
#include "quant/codec_vectors.h"

namespace nunspark {
namespace {

struct Inputs {
  FloatVector bias;
  const float* x;
  int64_t rows;
};

std::vector<float> Multiply(const KernelTable& table, const WeightMatrix& w, const Inputs& in) {
  std::vector<float> y(static_cast<size_t>(in.rows * w.rows), -1.0f);
  std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(w, in.rows)), std::nanf(""));
  table.matmul(w, in.bias, in.x, w.cols, in.rows, 0, w.rows, y.data(), w.rows, scratch.data());
  return y;
}

std::vector<int64_t> TestCols(const WeightFormat& format) {
  const int64_t g = BlockElements(format);
  if (g == 1) return {1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 64, 100, 192, 576, 1100};
  if (g == 256) return {g, 3 * g, 5 * g};
  return {g, 2 * g, 3 * g, 5 * g, 9 * g, 17 * g, 33 * g};
}

TEST(MatMul, EveryTableEqualsScalarForEverySizeAndAlignment) {
  const std::vector<WeightFormat> natives = NativeFormats();
  const auto native = [&](const WeightFormat& f) { return std::count(natives.begin(), natives.end(), f) > 0; };
  for (const WeightFormat& format : AllFormats()) {
    for (int64_t cols : TestCols(format)) {
      for (int64_t misalignment : {0, 1, 3}) {
        for (int64_t outs : {1, 3, 4, 9}) {
          // Decoding reads one row after the other: one misalignment for each number of outputs is enough.
          if (outs != 9 && misalignment != outs % 4 && !native(format)) continue;
          const auto seed = static_cast<uint32_t>(cols * 31 + outs);
          const RandomMatrix w(format, outs, cols, seed, misalignment);
          for (int64_t rows : {1, 2, 3, 4, 5, 7, 33}) {
            if (rows > 7 && outs != 9) continue;
            const std::vector<float> x = RandomFloats(rows * cols, seed + 9);
            const Inputs in{.bias = {}, .x = x.data(), .rows = rows};
            const std::vector<float> expected = Multiply(*FindKernels("scalar"), w.matrix(), in);
            for (const KernelTable* table : AvailableKernels()) {
              ASSERT_TRUE(SameBits(Multiply(*table, w.matrix(), in), expected))
                  << table->name << " " << FormatName(format) << " rows " << rows << " cols " << cols << " outs "
                  << outs;
            }
          }
        }
      }
    }
  }
}

// The matrix as plain float32, decoded by the reference.
std::vector<uint8_t> Decoded(const WeightMatrix& w) {
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  for (int64_t row = 0; row < w.rows; ++row) DecodeRow(w, row, values.data() + row * w.cols);
  std::vector<uint8_t> bytes;
  AppendFloats(values, FloatType::kF32, bytes);
  return bytes;
}

TEST(MatMul, PartsOfStoredTensorsEqualTheirCopies) {
  for (const WeightFormat& format : AllFormats()) {
    const int64_t cols = std::lcm(BlockElements(format), int64_t{96});
    for (const PartRows part : {PartRows{0, 1}, {5, 1}, {16, 1}, {0, 2}, {1, 2}, {3, 5}}) {
      for (int64_t outs : {1, 4, 13, 37}) {
        const RandomMatrix w(format, outs, cols, static_cast<uint32_t>(outs), 1, part);
        // The same weights in a tensor of their own: for native formats the copy must keep the encoding.
        std::vector<uint8_t> data, scales, biases;
        WeightMatrix copy = w.matrix();
        copy.row_begin = copy.stored_rows = 0;
        copy.row_step = 1;
        if (format.encoding == Encoding::kAffine && (format.bits == 4 || format.bits == 8)) {
          for (int64_t n = 0; n < outs; ++n) {
            const int64_t row = w.matrix().StoredRow(n), bytes = RowBytes(format, cols);
            const int64_t scale_bytes = ScaleRowBytes(format, cols);
            data.insert(data.end(), w.matrix().data + row * bytes, w.matrix().data + (row + 1) * bytes);
            const uint8_t *s = w.matrix().scales + row * scale_bytes, *b = w.matrix().biases + row * scale_bytes;
            scales.insert(scales.end(), s, s + scale_bytes);
            biases.insert(biases.end(), b, b + scale_bytes);
          }
        } else {
          data = Decoded(w.matrix());
          copy.format = FloatFormat(FloatType::kF32);
        }
        copy.data = data.data();
        copy.scales = scales.data();
        copy.biases = biases.data();
        for (int64_t rows : {1, 2, 7, 33}) {
          const std::vector<float> x = RandomFloats(rows * cols, 7);
          const Inputs in{.bias = {}, .x = x.data(), .rows = rows};
          for (const KernelTable* table : AvailableKernels()) {
            // bf16's order of sums is its own; there the scalar table is the measure.
            const bool own_order = format == FloatFormat(FloatType::kBF16);
            const std::vector<float> expected =
                own_order ? Multiply(*FindKernels("scalar"), w.matrix(), in) : Multiply(*table, copy, in);
            ASSERT_TRUE(SameBits(Multiply(*table, w.matrix(), in), expected))
                << table->name << " " << FormatName(format) << " rows " << rows << " outs " << outs << " from "
                << part.begin << " by " << part.step;
          }
        }
      }
    }
  }
}

TEST(MatMul, DecodesRowsToTheBitsOfTheReference) {
  for (const WeightFormat& format : AllFormats()) {
    for (int64_t cols : TestCols(format)) {
      for (const PartRows part : {PartRows{0, 1}, {1, 2}, {9, 1}}) {
        const int64_t outs = 19;
        const RandomMatrix w(format, outs, cols, static_cast<uint32_t>(cols), cols % 4, part);
        std::vector<float> expected(static_cast<size_t>(cols)), found(expected.size());
        for (int64_t row = 0; row < outs; ++row) {
          DecodeRow(w.matrix(), row, expected.data());
          for (const KernelTable* table : AvailableKernels()) {
            table->decode_row(w.matrix(), row, found.data());
            ASSERT_TRUE(SameBits(found, expected)) << table->name << " " << FormatName(format) << " row " << row;
          }
        }
      }
    }
  }
}

TEST(MatMul, DecodesTheCodecVectors) {
  std::vector<CodecCase> cases = OwnCodecCases();
  if (HaveFullCodecVectors()) {
    for (const CodecCase& c : FullCodecCases()) cases.push_back(c);
  }
  for (const CodecCase& c : cases) {
    std::vector<float> expected(static_cast<size_t>(c.matrix.cols)), found(expected.size());
    for (int64_t row = 0; row < c.matrix.rows; ++row) {
      DecodeRow(c.matrix, row, expected.data());
      for (const KernelTable* table : AvailableKernels()) {
        table->decode_row(c.matrix, row, found.data());
        ASSERT_TRUE(SameBits(found, expected)) << table->name << " " << c.name << " row " << row;
      }
    }
  }
}

TEST(MatMul, EveryCodeOfEightBitsDecodesAsTheReference) {
  std::vector<uint8_t> codes(256), scales(8, 127);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (int scale : {0, 1, 2, 127, 254, 255}) {
    std::fill(scales.begin(), scales.end(), static_cast<uint8_t>(scale));
    const WeightMatrix w{
        .format = FixedFormat(Encoding::kMxFp8), .rows = 1, .cols = 256, .data = codes.data(), .scales = scales.data()};
    std::vector<float> expected(256), found(256);
    DecodeRow(w, 0, expected.data());
    for (const KernelTable* table : AvailableKernels()) {
      table->decode_row(w, 0, found.data());
      EXPECT_TRUE(SameBits(found, expected)) << table->name << " " << scale;
    }
  }
}

TEST(MatMul, ValuesDoNotDependOnWhatIsComputedTogether) {
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat& format : AllFormats()) {
      const int64_t cols = 1280, outs = 45, rows = 37;
      const RandomMatrix w(format, outs, cols, 5);
      const std::vector<float> x = RandomFloats(rows * cols, 6);
      const std::vector<float> together = Multiply(*table, w.matrix(), {.bias = {}, .x = x.data(), .rows = rows});
      std::vector<float> apart(together.size());
      for (int64_t row = 0; row < rows; ++row) {
        // Different cuts of the outputs for different rows.
        std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(w.matrix(), 1)), std::nanf(""));
        const int64_t step = 1 + row % 19;
        for (int64_t begin = 0; begin < outs; begin += step) {
          table->matmul(w.matrix(), {}, x.data() + row * cols, cols, 1, begin, std::min(begin + step, outs),
                        apart.data() + row * outs, outs, scratch.data());
        }
      }
      ASSERT_TRUE(SameBits(apart, together)) << table->name << " " << FormatName(format);
    }
  }
}

TEST(MatMul, HonoursStridesAndWritesOnlyItsOutputs) {
  for (const KernelTable* table : AvailableKernels()) {
    const int64_t cols = 64, outs = 10, rows = 6, x_stride = 70, y_stride = 13;
    const RandomMatrix w(FloatFormat(FloatType::kBF16), outs, cols, 5);
    const std::vector<float> x = RandomFloats(rows * x_stride, 6);
    std::vector<float> y(static_cast<size_t>(rows * y_stride), 777.0f);
    std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(w.matrix(), rows)));
    table->matmul(w.matrix(), {}, x.data(), x_stride, rows, 2, 9, y.data(), y_stride, scratch.data());
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> one(x.begin() + row * x_stride, x.begin() + row * x_stride + cols);
      const std::vector<float> expected = Multiply(*table, w.matrix(), {.bias = {}, .x = one.data(), .rows = 1});
      for (int64_t n = 0; n < y_stride; ++n) {
        const float value = y[static_cast<size_t>(row * y_stride + n)];
        ASSERT_EQ(value, n >= 2 && n < 9 ? expected[static_cast<size_t>(n)] : 777.0f) << table->name;
      }
    }
  }
}

TEST(MatMul, AddsTheBiasOfEveryTypeLast) {
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat& format :
         {FloatFormat(FloatType::kF16), NativeFormats().back(), FixedFormat(Encoding::kMxFp4)}) {
      for (int variant = 0; variant < 6; ++variant) {
        const FloatType type = kAllFloatTypes[variant / 2];
        const int64_t cols = 256, outs = 7, rows = 3, step = 1 + variant % 2;
        const RandomMatrix w(format, outs, cols, 5);
        const std::vector<float> x = RandomFloats(rows * cols, 6);
        std::vector<uint8_t> bytes(1);  // misaligned
        AppendFloats(RandomFloats((outs - 1) * step + 1, 8), type, bytes);
        const FloatVector bias{.type = type, .size = outs, .data = bytes.data() + 1, .step = step};
        std::vector<float> offsets(outs);
        DecodeFloats(bias, offsets.data());
        const std::vector<float> plain = Multiply(*table, w.matrix(), {.bias = {}, .x = x.data(), .rows = rows});
        const std::vector<float> biased = Multiply(*table, w.matrix(), {.bias = bias, .x = x.data(), .rows = rows});
        for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(biased[i], plain[i] + offsets[i % offsets.size()]);
      }
    }
  }
}

TEST(MatMul, IsCloseToTheProductInDouble) {
  for (const WeightFormat& format : AllFormats()) {
    const int64_t cols = 2048, outs = 16, rows = 3;
    const RandomMatrix w(format, outs, cols, 5);
    std::vector<float> x = RandomFloats(rows * cols, 6);
    x[17] = 300.0f;  // an outlier, as activations have them
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<float> y = Multiply(*table, w.matrix(), {.bias = {}, .x = x.data(), .rows = rows});
      std::vector<float> decoded(cols);
      for (int64_t n = 0; n < outs; ++n) {
        DecodeRow(w.matrix(), n, decoded.data());
        for (int64_t m = 0; m < rows; ++m) {
          double exact = 0, magnitude = 0;
          for (int64_t k = 0; k < cols; ++k) {
            const double product =
                static_cast<double>(decoded[static_cast<size_t>(k)]) * x[static_cast<size_t>(m * cols + k)];
            exact += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(y[static_cast<size_t>(m * outs + n)], exact, 1e-6 * magnitude)
              << table->name << " " << FormatName(format);
        }
      }
    }
  }
}

// y = x . dequantized^T in double for chosen rows; 1e-5 of the sum of magnitudes is the vectors' own tolerance.
void ExpectMultiplies(const CodecCase& c) {
  const WeightMatrix& w = c.matrix;
  const auto x = c.file->Values<float>("x"), decoded = c.file->Values<float>(c.prefix + "dequantized"),
             expected = c.file->Values<float>(c.prefix + "y");
  const auto chosen = c.file->Values<int32_t>(c.prefix + "y_rows");
  const int64_t rows = c.file->Shape("x")[0];
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> y = Multiply(*table, w, {.bias = {}, .x = x.data(), .rows = rows});
    for (int64_t m = 0; m < rows; ++m) {
      for (size_t i = 0; i < chosen.size(); ++i) {
        double magnitude = 0;
        for (int64_t k = 0; k < w.cols; ++k) {
          magnitude += std::abs(static_cast<double>(x[static_cast<size_t>(m * w.cols + k)]) *
                                decoded[static_cast<size_t>(chosen[i] * w.cols + k)]);
        }
        ASSERT_NEAR(y[static_cast<size_t>(m * w.rows + chosen[i])],
                    expected[static_cast<size_t>(m) * chosen.size() + i], 1e-5 * magnitude)
            << table->name << " " << c.name << " row " << chosen[i];
      }
    }
  }
}

TEST(MatMul, MultipliesTheOwnCodecVectors) {
  int products = 0;
  for (const CodecCase& c : OwnCodecCases()) {
    if (!c.product) continue;
    ExpectMultiplies(c);
    ++products;
  }
  EXPECT_EQ(products, 72);
}

TEST(MatMul, MultipliesTheFullCodecVectors) {
  if (!HaveFullCodecVectors()) GTEST_SKIP() << "full reference set not present";
  for (const CodecCase& c : FullCodecCases()) {
    if (c.product) ExpectMultiplies(c);
  }
}

TEST(MatMul, AnInfiniteOrMissingNumberReachesOnlyItsOwnRow) {
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat& format : AllFormats()) {
      const int64_t cols = 256, outs = 5, rows = 4;
      const RandomMatrix w(format, outs, cols, 5);
      std::vector<float> x = RandomFloats(rows * cols, 6);
      const std::vector<float> finite = Multiply(*table, w.matrix(), {.bias = {}, .x = x.data(), .rows = rows});
      x[static_cast<size_t>(cols + 3)] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> y = Multiply(*table, w.matrix(), {.bias = {}, .x = x.data(), .rows = rows});
      for (size_t i = 0; i < y.size(); ++i) {
        const bool touched = i / static_cast<size_t>(outs) == 1;
        if (touched) {
          ASSERT_TRUE(std::isnan(y[i]));
        } else {
          ASSERT_EQ(y[i], finite[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
