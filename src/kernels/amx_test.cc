// Products on tiles: the bits of the scalar table for every encoding with codes, in rows and in lanes. A model does
// what AMX's instructions do; where there is AMX, the other tests of products run the table on it.
#include "kernels/amx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "kernels/amx_model.h"
#include "kernels/amx_testing.h"
#include "kernels/test_matrices.h"
#include "quant/lanes.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

constexpr Numerics kRounded[] = {Numerics::kI16, Numerics::kI8};

struct Call {
  FloatVector bias;
  int64_t rows;
  Numerics numerics;
  int64_t begin, end;
};

std::vector<uint8_t> Round(const std::vector<float>& x, int64_t cols, Numerics numerics) {
  const int64_t bytes = LayoutOfRoundedRow(cols, numerics).bytes, rows = static_cast<int64_t>(x.size()) / cols;
  std::vector<uint8_t> rounded(static_cast<size_t>(rows * bytes), 0xff);
  for (int64_t r = 0; r < rows; ++r) {
    Kernels().round_row(x.data() + r * cols, cols, numerics, rounded.data() + r * bytes);
  }
  return rounded;
}

// The scratch ends where its vector ends.
std::vector<float> Multiply(const KernelTable& table, const WeightMatrix& w, const std::vector<uint8_t>& x,
                            const Call& call) {
  std::vector<float> y(static_cast<size_t>(call.rows * w.rows), -1.0f);
  const int64_t floats = internal::VectorScratchFloats(w, call.rows) + internal::AmxScratchFloats(w, call.rows);
  std::vector<float> scratch(static_cast<size_t>(floats), std::nanf(""));
  table.matmul_codes(w, call.bias, call.numerics, x.data(), call.rows, call.begin, call.end, y.data(), w.rows,
                     scratch.data());
  return y;
}

void ExpectScalarBits(const WeightMatrix& w, const std::vector<uint8_t>& x, const Call& call) {
  const std::vector<float> expected = Multiply(*FindKernels("scalar"), w, x, call);
  for (const KernelTable* table : internal::TilesTables()) {
    ASSERT_TRUE(SameBits(Multiply(*table, w, x, call), expected))
        << table->name << " " << FormatName(w.format) << " rows " << call.rows << " cols " << w.cols << " outputs "
        << call.begin << " to " << call.end << " of " << w.rows << " " << NumericsName(call.numerics);
  }
}

// A matrix of whole tiles with its outputs side by side.
class Lanes {
 public:
  explicit Lanes(const WeightMatrix& rows) : matrix_(rows) {
    const WeightFormat& format = rows.format;
    const int64_t groups = rows.cols / format.group_size;
    const int64_t code_bytes = kLaneOutputs * RowBytes(format, rows.cols);
    const int64_t scale_bytes = kLaneOutputs * ScaleRowBytes(format, rows.cols);
    data_.resize(static_cast<size_t>(rows.rows * RowBytes(format, rows.cols)));
    scales_.resize(static_cast<size_t>(rows.rows * ScaleRowBytes(format, rows.cols)));
    biases_.resize(rows.biases == nullptr ? 0 : scales_.size());
    for (int64_t t = 0; t < rows.rows / kLaneOutputs; ++t) {
      CodesToLanes(format.bits, rows.cols, rows.data + t * code_bytes, data_.data() + t * code_bytes);
      const int64_t value_bytes = scale_bytes / groups / kLaneOutputs, at = t * scale_bytes;
      ScalesToLanes(groups, value_bytes, rows.scales + at, scales_.data() + at);
      if (rows.biases != nullptr) ScalesToLanes(groups, value_bytes, rows.biases + at, biases_.data() + at);
    }
    matrix_.format = InOrder(format, MatrixOrder::kLanes16);
    matrix_.data = data_.data();
    matrix_.scales = scales_.data();
    if (rows.biases != nullptr) matrix_.biases = biases_.data();
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  const WeightMatrix& matrix() const { return matrix_; }

 private:
  std::vector<uint8_t> data_, scales_, biases_;
  WeightMatrix matrix_;
};

// Every width of each encoding with codes, types of scales in turn.
std::vector<WeightFormat> CodeFormats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : AllFormats()) {
    const bool one_of_three = format.encoding != Encoding::kAffine ||
                              format.scale_type == kAllFloatTypes[(format.bits + format.group_size / 32) % 3];
    if (HasCodes(format) && one_of_three) formats.push_back(format);
  }
  return formats;
}

TEST(Amx, EveryEncodingHasTheBitsOfTheScalarTable) {
  for (const WeightFormat& format : CodeFormats()) {
    const int64_t g = std::max<int64_t>(BlockElements(format), 16);
    for (const int64_t blocks : {1, 3, 9}) {
      if (blocks == 9 && g == 256) continue;
      const int64_t cols = blocks * g;
      for (const int64_t outs : {int64_t{5}, int64_t{37}}) {
        const RandomMatrix w(format, outs, cols, static_cast<uint32_t>(cols + outs), blocks % 4, {outs % 3, 1});
        const std::vector<float> bias_values = RandomFloats(outs, 8);
        const FloatVector bias{.type = FloatType::kF32,
                               .size = outs,
                               .data = reinterpret_cast<const uint8_t*>(bias_values.data()),
                               .step = 1};
        for (const int64_t rows : {16, 17, 47}) {
          if ((rows == 17) != (outs == 37)) continue;
          const std::vector<float> x = RandomFloats(rows * cols, 7);
          for (const Numerics numerics : kRounded) {
            const std::vector<uint8_t> rounded = Round(x, cols, numerics);
            const auto expect = [&](int64_t begin, int64_t end) {
              ExpectScalarBits(w.matrix(), rounded,
                               {.bias = rows == 17 ? bias : FloatVector{},
                                .rows = rows,
                                .numerics = numerics,
                                .begin = begin,
                                .end = end});
            };
            ASSERT_NO_FATAL_FAILURE(expect(0, outs));
            if (outs == 37 && blocks == 3) {
              ASSERT_NO_FATAL_FAILURE(expect(3, 20));
            }
          }
        }
      }
    }
  }
}

TEST(Amx, EveryEncodingInLanesHasTheBitsOfTheScalarTable) {
  for (const WeightFormat& format : CodeFormats()) {
    if (!HasLanes(format, kLaneOutputs, 128)) continue;
    for (const int64_t groups : {1, 5}) {
      const int64_t cols = groups * format.group_size, outs = 48;
      const RandomMatrix in_rows(format, outs, cols, static_cast<uint32_t>(cols));
      const Lanes w(in_rows.matrix());
      for (const int64_t rows : {16, 23}) {
        const std::vector<float> x = RandomFloats(rows * cols, 7);
        for (const Numerics numerics : kRounded) {
          const std::vector<uint8_t> rounded = Round(x, cols, numerics);
          for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, outs}, {5, 6}, {3, 37}}) {
            if (begin != 0 && rows != 23) continue;
            ASSERT_NO_FATAL_FAILURE(ExpectScalarBits(
                w.matrix(), rounded, {.bias = {}, .rows = rows, .numerics = numerics, .begin = begin, .end = end}));
          }
        }
      }
    }
  }
}

TEST(Amx, EveryNumberOfRowsHasTheBitsOfTheScalarTable) {
  const WeightFormat nibbles{
      .encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16};
  for (const WeightFormat& format : {nibbles, FixedFormat(Encoding::kQ6K)}) {
    const int64_t cols = 256, outs = 16;
    const RandomMatrix in_rows(format, outs, cols, 3);
    for (int64_t rows = 1; rows <= 70; ++rows) {
      const std::vector<uint8_t> x = Round(RandomFloats(rows * cols, 7), cols, Numerics::kI16);
      const Call call{.bias = {}, .rows = rows, .numerics = Numerics::kI16, .begin = 0, .end = outs};
      ASSERT_NO_FATAL_FAILURE(ExpectScalarBits(in_rows.matrix(), x, call));
      if (format == nibbles) {
        ASSERT_NO_FATAL_FAILURE(ExpectScalarBits(Lanes(in_rows.matrix()).matrix(), x, call));
      }
    }
  }
}

TEST(Amx, RowsBeyondABlockOfThemHaveTheBitsOfTheScalarTable) {
  const WeightFormat format{.encoding = Encoding::kAffine, .bits = 4, .group_size = 128, .scale_type = FloatType::kF16};
  // Many short rows, and rows so long that sixteen are more than a block of other tables.
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{512, 256}, {37, 11264}}) {
    const RandomMatrix in_rows(format, 16, cols, 3);
    for (const Numerics numerics : kRounded) {
      const std::vector<uint8_t> x = Round(RandomFloats(rows * cols, 7), cols, numerics);
      ASSERT_NO_FATAL_FAILURE(ExpectScalarBits(
          in_rows.matrix(), x, {.bias = {}, .rows = rows, .numerics = numerics, .begin = 0, .end = 16}));
    }
  }
}

TEST(Amx, ReleasesItsTiles) {
  const RandomMatrix w(FixedFormat(Encoding::kQ8_0), 16, 64, 3);
  const std::vector<uint8_t> x = Round(RandomFloats(16 * 64, 7), 64, Numerics::kI8);
  ExpectScalarBits(w.matrix(), x, {.bias = {}, .rows = 16, .numerics = Numerics::kI8, .begin = 0, .end = 16});
  EXPECT_FALSE(internal::ThisThreadsTiles().IsConfigured());
}

TEST(Amx, IsComparedWithAnotherTableBeforeItIsUsed) {
  const KernelTable& scalar = *FindKernels("scalar");
  for (const KernelTable* table : internal::TilesTables()) EXPECT_EQ(internal::DifferenceOfCodes(*table, scalar), "");
  KernelTable wrong = scalar;
  wrong.name = "wrong";
  wrong.matmul_codes = [](const WeightMatrix& w, const FloatVector& bias, Numerics numerics, const uint8_t* x,
                          int64_t rows, int64_t begin, int64_t end, float* y, int64_t y_stride, float* scratch) {
    FindKernels("scalar")->matmul_codes(w, bias, numerics, x, rows, begin, end, y, y_stride, scratch);
    if (numerics == Numerics::kI8 && w.format.bits == 8) y[(rows - 1) * y_stride] += 1.0f;
  };
  EXPECT_THAT(internal::DifferenceOfCodes(wrong, scalar), HasSubstr("wrong gives other products than scalar (affine8"));
}

TEST(Amx, IsAmongTheTablesOrSaysWhyNot) {
  const KernelTable* const table = FindKernels("avx512amx");
  if (table != nullptr) {
    EXPECT_EQ(AvailableKernels().front(), table);
    EXPECT_EQ(KernelTrouble(), "");
    EXPECT_EQ(internal::DifferenceOfCodes(*table, *FindKernels("scalar")), "");
  } else if (!KernelTrouble().empty()) {
    EXPECT_THAT(KernelTrouble(), HasSubstr("AMX is not used: "));
  }
  EXPECT_EQ(internal::ChooseAmx(nullptr).table, nullptr);
}

}  // namespace
}  // namespace nunspark
