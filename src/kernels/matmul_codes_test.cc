// Products of codes with rounded activations: every table gives the bits of the scalar one, whatever is computed
// together, and those of the order that matmul.h documents; close to double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr Numerics kRounded[] = {Numerics::kI16, Numerics::kI8};

std::vector<WeightFormat> CodeFormats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : AllFormats()) {
    if (HasCodes(format)) formats.push_back(format);
  }
  return formats;
}

std::vector<uint8_t> Round(const KernelTable& table, const std::vector<float>& x, int64_t cols, Numerics numerics) {
  const int64_t bytes = LayoutOfRoundedRow(cols, numerics).bytes, rows = static_cast<int64_t>(x.size()) / cols;
  // What is not written must not be read.
  std::vector<uint8_t> rounded(static_cast<size_t>(rows * bytes), 0xff);
  for (int64_t r = 0; r < rows; ++r) table.round_row(x.data() + r * cols, cols, numerics, rounded.data() + r * bytes);
  return rounded;
}

struct Inputs {
  FloatVector bias;
  const std::vector<uint8_t>& x;
  int64_t rows;
  Numerics numerics;
};

std::vector<float> Multiply(const KernelTable& table, const WeightMatrix& w, const Inputs& in, int64_t begin,
                            int64_t end) {
  std::vector<float> y(static_cast<size_t>(in.rows * w.rows), -1.0f);
  std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(w, in.rows)), std::nanf(""));
  table.matmul_codes(w, in.bias, in.numerics, in.x.data(), in.rows, begin, end, y.data(), w.rows, scratch.data());
  return y;
}

std::vector<float> Multiply(const KernelTable& table, const WeightMatrix& w, const Inputs& in) {
  return Multiply(table, w, in, 0, w.rows);
}

TEST(RoundRow, EveryTableEqualsScalar) {
  for (Numerics numerics : kRounded) {
    for (int64_t n : {1, 5, 16, 17, 31, 32, 33, 100, 128, 129, 576, 2048}) {
      for (float deviation : {1.0f, 1e-38f, 1e30f}) {
        std::vector<float> x = RandomFloats(n, static_cast<uint32_t>(n), deviation);
        if (n > 100) x[static_cast<size_t>(n) / 2] = std::numeric_limits<float>::infinity();
        if (n > 500) x[3] = std::nanf("");
        const std::vector<uint8_t> expected = Round(*FindKernels("scalar"), x, n, numerics);
        for (const KernelTable* table : AvailableKernels()) {
          const RoundedRowLayout layout = LayoutOfRoundedRow(n, numerics);
          const std::vector<uint8_t> rounded = Round(*table, x, n, numerics);
          for (int64_t unit = 0; unit < layout.units; ++unit) {
            const auto at = static_cast<size_t>(unit * layout.unit_bytes), codes = static_cast<size_t>(layout.steps);
            EXPECT_EQ(std::memcmp(rounded.data() + at, expected.data() + at, codes), 0) << table->name;
            const auto floats = [&](const std::vector<uint8_t>& row) {
              std::vector<float> values(static_cast<size_t>(layout.unit_bytes - layout.steps) / sizeof(float));
              std::memcpy(values.data(), row.data() + at + codes, values.size() * sizeof(float));
              return values;
            };
            EXPECT_TRUE(SameBits(floats(rounded), floats(expected))) << table->name << " n " << n;
          }
        }
      }
    }
  }
}

TEST(RoundRow, GivesStepsTimesIntegersCloseToWhatItIsGiven) {
  constexpr int64_t kN = 200;
  const std::vector<float> x = RandomFloats(kN, 5);
  for (Numerics numerics : kRounded) {
    const RoundedRowLayout layout = LayoutOfRoundedRow(kN, numerics);
    const std::vector<uint8_t> row = Round(*FindKernels("scalar"), x, kN, numerics);
    const auto code = [&](int64_t i, int64_t plane) {
      const int64_t unit = i / 128 * layout.unit_bytes + plane * 128 + i % 128 / 32 * 16;
      const int8_t half = static_cast<int8_t>(row[static_cast<size_t>(unit + i % 32 / 16 * 64 + i % 16)]);
      const int8_t pair = static_cast<int8_t>(row[static_cast<size_t>(unit + layout.pairs + i % 2 * 64 + i % 32 / 2)]);
      EXPECT_EQ(half, pair);
      return half;
    };
    const auto number = [&](int64_t array, int64_t block) {
      float values[4];
      std::memcpy(values, row.data() + block / 4 * layout.unit_bytes + array + block % 4 * 16, sizeof values);
      for (const float value : values) EXPECT_EQ(value, values[0]);
      return values[0];
    };
    for (int64_t block = 0; block < layout.units * 4; ++block) {
      int64_t sum = 0, half_sum = 0;
      const float step = number(layout.steps, block);
      for (int64_t i = block * 32; i < block * 32 + 32; ++i) {
        const int q = numerics == Numerics::kI16 ? code(i, 0) * 256 + code(i, 1) : code(i, 0);
        sum += q;
        if (i % 32 < 16) half_sum += q;
        const float value = i < kN ? x[static_cast<size_t>(i)] : 0.0f;
        EXPECT_NEAR(static_cast<float>(q) * step, value, step * 0.501f) << i;
      }
      EXPECT_EQ(number(layout.sums, block), step * static_cast<float>(sum));
      EXPECT_EQ(number(layout.half_sums, block), step * static_cast<float>(half_sum));
    }
  }
}

std::vector<int64_t> TestCols(const WeightFormat& format) {
  const int64_t g = std::max<int64_t>(BlockElements(format), 16);
  if (g == 256) return {g, 3 * g, 5 * g};
  return {g, 2 * g, 3 * g, 5 * g, 9 * g, 17 * g, 33 * g};
}

TEST(MatMulCodes, EveryTableEqualsScalarForEverySizeAndAlignment) {
  for (const WeightFormat& format : CodeFormats()) {
    for (int64_t cols : TestCols(format)) {
      for (int64_t misalignment : {0, 1, 3}) {
        for (int64_t outs : {1, 3, 4, 9}) {
          if (outs != 9 && misalignment != outs % 4) continue;
          const auto seed = static_cast<uint32_t>(cols * 31 + outs);
          const RandomMatrix w(format, outs, cols, seed, misalignment);
          for (int64_t rows : {1, 2, 4, 7, 33}) {
            if (rows > 7 && outs != 9) continue;
            for (Numerics numerics : kRounded) {
              const std::vector<uint8_t> x =
                  Round(*FindKernels("scalar"), RandomFloats(rows * cols, seed + 9), cols, numerics);
              const Inputs in{.bias = {}, .x = x, .rows = rows, .numerics = numerics};
              const std::vector<float> expected = Multiply(*FindKernels("scalar"), w.matrix(), in);
              for (const KernelTable* table : AvailableKernels()) {
                ASSERT_TRUE(SameBits(Multiply(*table, w.matrix(), in), expected))
                    << table->name << " " << FormatName(format) << " rows " << rows << " cols " << cols << " outs "
                    << outs << " " << NumericsName(numerics);
              }
            }
          }
        }
      }
    }
  }
}

TEST(MatMulCodes, ValuesDoNotDependOnWhatIsComputedTogether) {
  for (const WeightFormat& format : CodeFormats()) {
    const int64_t cols = 3 * std::max<int64_t>(BlockElements(format), 64), outs = 21, rows = 11;
    const RandomMatrix w(format, outs, cols, 3, 1, {2, 3});
    const std::vector<float> bias_values = RandomFloats(outs, 8);
    const FloatVector bias{
        .type = FloatType::kF32, .size = outs, .data = reinterpret_cast<const uint8_t*>(bias_values.data()), .step = 1};
    const std::vector<float> values = RandomFloats(rows * cols, 4);
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<uint8_t> x = Round(*table, values, cols, Numerics::kI16);
      const std::vector<float> whole =
          Multiply(*table, w.matrix(), {.bias = bias, .x = x, .rows = rows, .numerics = Numerics::kI16});
      for (int64_t r : {int64_t{0}, int64_t{5}, rows - 1}) {
        const std::vector<uint8_t> one(
            x.begin() + static_cast<std::ptrdiff_t>(r * static_cast<int64_t>(x.size()) / rows),
            x.begin() + static_cast<std::ptrdiff_t>((r + 1) * static_cast<int64_t>(x.size()) / rows));
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 21}, {1, 2}, {16, 21}, {3, 8}}) {
          const std::vector<float> part =
              Multiply(*table, w.matrix(), {.bias = bias, .x = one, .rows = 1, .numerics = Numerics::kI16}, begin, end);
          for (int64_t n = 0; n < outs; ++n) {
            const float expected = n >= begin && n < end ? whole[static_cast<size_t>(r * outs + n)] : -1.0f;
            ASSERT_EQ(part[static_cast<size_t>(n)], expected) << table->name << " " << FormatName(format) << " " << n;
          }
        }
      }
    }
  }
}

// The relative error of a product that activations of the given precision must reach, against doubles.
double Tolerance(Numerics numerics) { return numerics == Numerics::kI16 ? 1.5e-4 : 4e-2; }

TEST(MatMulCodes, IsCloseToDouble) {
  for (const WeightFormat& format : CodeFormats()) {
    const int64_t cols = 4 * std::max<int64_t>(BlockElements(format), 256), outs = 6, rows = 5;
    const RandomMatrix w(format, outs, cols, 77);
    const std::vector<float> x = RandomFloats(rows * cols, 78);
    std::vector<float> weights(static_cast<size_t>(cols));
    for (Numerics numerics : kRounded) {
      const std::vector<uint8_t> rounded = Round(Kernels(), x, cols, numerics);
      const std::vector<float> y =
          Multiply(Kernels(), w.matrix(), {.bias = {}, .x = rounded, .rows = rows, .numerics = numerics});
      for (int64_t n = 0; n < outs; ++n) {
        DecodeRow(w.matrix(), n, weights.data());
        for (int64_t r = 0; r < rows; ++r) {
          double sum = 0, squares = 0;
          for (int64_t k = 0; k < cols; ++k) {
            const double product = double{weights[static_cast<size_t>(k)]} * x[static_cast<size_t>(r * cols + k)];
            sum += product;
            squares += product * product;
          }
          ASSERT_NEAR(y[static_cast<size_t>(r * outs + n)], sum, Tolerance(numerics) * std::sqrt(squares) + 1e-30)
              << FormatName(format) << " " << NumericsName(numerics);
        }
      }
    }
  }
}

// The order of sums, written down once more, one element at a time, for the encodings whose codes are plain.
TEST(MatMulCodes, SumsInTheDocumentedOrder) {
  for (uint8_t bits : {uint8_t{2}, uint8_t{4}, uint8_t{6}, uint8_t{8}}) {
    const WeightFormat format{
        .encoding = Encoding::kAffine, .bits = bits, .group_size = 64, .scale_type = FloatType::kF32};
    constexpr int64_t kCols = 448;
    const RandomMatrix matrix(format, 3, kCols, 5);
    const WeightMatrix& w = matrix.matrix();
    const std::vector<float> x = RandomFloats(kCols, 6);
    const RoundedRowLayout layout = LayoutOfRoundedRow(kCols, Numerics::kI16);
    const std::vector<uint8_t> row = Round(*FindKernels("scalar"), x, kCols, Numerics::kI16);
    const std::vector<float> y = Multiply(Kernels(), w, {.bias = {}, .x = row, .rows = 1, .numerics = Numerics::kI16});
    const auto number = [](const uint8_t* floats, int64_t i) {
      float value;
      std::memcpy(&value, floats + i * 4, sizeof value);
      return value;
    };
    for (int64_t n = 0; n < 3; ++n) {
      float lanes[4] = {};
      for (int64_t block = 0; block < kCols / 32; ++block) {
        int64_t sum = 0;
        for (int64_t k = block * 32; k < block * 32 + 32; ++k) {
          const int64_t at = k / 128 * layout.unit_bytes + k % 32 / 16 * 64 + k % 128 / 32 * 16 + k % 16;
          const int q = static_cast<int8_t>(row[static_cast<size_t>(at)]) * 256 +
                        static_cast<int8_t>(row[static_cast<size_t>(at + 128)]);
          const int64_t bit = k * bits;
          const uint8_t* const code = w.data + n * RowBytes(format, kCols) + bit / 8;
          const int pair = code[0] | (bit % 8 + bits > 8 ? code[1] << 8 : 0);
          sum += int64_t{(pair >> (bit % 8)) & ((1 << bits) - 1)} * q;
        }
        const int64_t group = n * kCols / 64 + block / 2;
        const uint8_t* const x_unit = row.data() + block / 4 * layout.unit_bytes;
        float& lane = lanes[block % 4];
        lane = std::fma(number(w.scales, group), number(x_unit + layout.steps, block % 4 * 4) * static_cast<float>(sum),
                        lane);
        lane = std::fma(number(w.biases, group), number(x_unit + layout.sums, block % 4 * 4), lane);
      }
      EXPECT_EQ(y[static_cast<size_t>(n)], (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])) << int{bits} << " " << n;
    }
  }
}

TEST(MatMulCodes, AnInputThatIsNotFiniteReachesTheOutput) {
  const WeightFormat format{.encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16};
  const RandomMatrix w(format, 4, 256, 5);
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = RandomFloats(256, 6);
    x[130] = bad;
    for (const KernelTable* table : AvailableKernels()) {
      for (Numerics numerics : kRounded) {
        const std::vector<uint8_t> rounded = Round(*table, x, 256, numerics);
        for (float y : Multiply(*table, w.matrix(), {.bias = {}, .x = rounded, .rows = 1, .numerics = numerics})) {
          EXPECT_TRUE(std::isnan(y));
        }
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
