// Matrices with sixteen outputs side by side: the same bits as those of the matrix in rows that they were made from.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"
#include "quant/lanes.h"

namespace nunspark {
namespace {

std::vector<WeightFormat> FormatsWithLanes() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : AllFormats()) {
    if (HasLanes(format, kLaneOutputs, 128)) formats.push_back(format);
  }
  return formats;
}

// A stored matrix of whole tiles and its other order. Each array ends where its vector ends, and starts `misalignment`
// bytes behind an aligned address.
class LaneMatrix {
 public:
  LaneMatrix(const WeightMatrix& rows, int64_t misalignment) : pad_(misalignment), matrix_(rows) {
    const WeightFormat& format = rows.format;
    const int64_t tiles = rows.StoredRows() / kLaneOutputs, groups = rows.cols / format.group_size;
    const int64_t code_bytes = kLaneOutputs * RowBytes(format, rows.cols);
    const int64_t scale_bytes = kLaneOutputs * ScaleRowBytes(format, rows.cols);
    const auto make = [&](std::vector<uint8_t>& to, const uint8_t* from, int64_t bytes, const auto& tile) {
      to.resize(static_cast<size_t>(pad_ + tiles * bytes));
      for (int64_t t = 0; t < tiles; ++t) tile(from + t * bytes, to.data() + pad_ + t * bytes);
    };
    make(data_, rows.data, code_bytes,
         [&](const uint8_t* from, uint8_t* to) { CodesToLanes(format.bits, rows.cols, from, to); });
    const auto scales = [&](const uint8_t* from, uint8_t* to) {
      ScalesToLanes(groups, scale_bytes / groups / kLaneOutputs, from, to);
    };
    make(scales_, rows.scales, scale_bytes, scales);
    if (rows.biases != nullptr) make(biases_, rows.biases, scale_bytes, scales);
    matrix_.format = InOrder(format, MatrixOrder::kLanes16);
    matrix_.data = data_.data() + pad_;
    matrix_.scales = scales_.data() + pad_;
    if (rows.biases != nullptr) matrix_.biases = biases_.data() + pad_;
  }
  LaneMatrix(const LaneMatrix&) = delete;
  LaneMatrix& operator=(const LaneMatrix&) = delete;

  const WeightMatrix& matrix() const { return matrix_; }

 private:
  int64_t pad_;
  std::vector<uint8_t> data_, scales_, biases_;
  WeightMatrix matrix_;
};

struct Call {
  FloatVector bias;
  const std::vector<float>& x;
  int64_t rows;
  Numerics numerics;
  int64_t begin, end;
};

std::vector<float> Multiply(const KernelTable& table, const WeightMatrix& w, const Call& call) {
  std::vector<float> y(static_cast<size_t>(call.rows * w.rows), -1.0f);
  std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(w, call.rows)), std::nanf(""));
  if (call.numerics == Numerics::kF32) {
    table.matmul(w, call.bias, call.x.data(), w.cols, call.rows, call.begin, call.end, y.data(), w.rows,
                 scratch.data());
    return y;
  }
  const int64_t bytes = LayoutOfRoundedRow(w.cols, call.numerics).bytes;
  std::vector<uint8_t> rounded(static_cast<size_t>(call.rows * bytes), 0xff);
  for (int64_t r = 0; r < call.rows; ++r) {
    table.round_row(call.x.data() + r * w.cols, w.cols, call.numerics, rounded.data() + r * bytes);
  }
  table.matmul_codes(w, call.bias, call.numerics, rounded.data(), call.rows, call.begin, call.end, y.data(), w.rows,
                     scratch.data());
  return y;
}

TEST(MatMulLanes, HasTheBitsOfTheMatrixInRows) {
  for (const WeightFormat& format : FormatsWithLanes()) {
    for (const int64_t groups : {1, 2, 3, 5, 9}) {
      const int64_t cols = groups * format.group_size, outs = groups % 2 == 0 ? 48 : 80;
      const RandomMatrix rows_matrix(format, outs, cols, static_cast<uint32_t>(cols));
      const LaneMatrix lanes(rows_matrix.matrix(), groups % 4);
      const std::vector<float> bias_values = RandomFloats(outs, 8);
      const FloatVector bias{.type = FloatType::kF32,
                             .size = outs,
                             .data = reinterpret_cast<const uint8_t*>(bias_values.data()),
                             .step = 1};
      for (const int64_t rows : {1, 2, 4, 7, 33}) {
        const std::vector<float> x = RandomFloats(rows * cols, 7);
        for (const Numerics numerics : {Numerics::kF32, Numerics::kI16, Numerics::kI8}) {
          for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, outs}, {16, 32}, {5, 6}, {3, 37}}) {
            if (begin != 0 && rows != 7) continue;
            const Call call{.bias = groups % 2 == 0 ? bias : FloatVector{},
                            .x = x,
                            .rows = rows,
                            .numerics = numerics,
                            .begin = begin,
                            .end = end};
            const std::vector<float> expected = Multiply(*FindKernels("scalar"), rows_matrix.matrix(), call);
            for (const KernelTable* table : AvailableKernels()) {
              ASSERT_TRUE(SameBits(Multiply(*table, lanes.matrix(), call), expected))
                  << table->name << " " << FormatName(lanes.matrix().format) << " rows " << rows << " cols " << cols
                  << " outputs " << begin << " to " << end << " " << NumericsName(numerics);
            }
          }
        }
      }
    }
  }
}

TEST(MatMulLanes, PartsOfStoredTensorsBeginAtATile) {
  for (const WeightFormat& format : FormatsWithLanes()) {
    const int64_t cols = 3 * format.group_size, stored = 96, outs = 37, rows = 5;
    const RandomMatrix rows_matrix(format, stored, cols, 4);
    const LaneMatrix lanes(rows_matrix.matrix(), 1);
    const auto part = [&](WeightMatrix w) {
      w.rows = outs;
      w.row_begin = 32;
      w.stored_rows = stored;
      return w;
    };
    const std::vector<float> x = RandomFloats(rows * cols, 7);
    std::vector<float> expected_row(static_cast<size_t>(cols)), row(expected_row.size());
    for (const KernelTable* table : AvailableKernels()) {
      for (const Numerics numerics : {Numerics::kF32, Numerics::kI16}) {
        const Call call{.bias = {}, .x = x, .rows = rows, .numerics = numerics, .begin = 0, .end = outs};
        ASSERT_TRUE(
            SameBits(Multiply(*table, part(lanes.matrix()), call), Multiply(*table, part(rows_matrix.matrix()), call)))
            << table->name << " " << FormatName(format) << " " << NumericsName(numerics);
      }
      table->decode_row(part(rows_matrix.matrix()), 21, expected_row.data());
      table->decode_row(part(lanes.matrix()), 21, row.data());
      ASSERT_TRUE(SameBits(row, expected_row)) << table->name << " " << FormatName(format);
    }
  }
}

}  // namespace
}  // namespace nunspark
