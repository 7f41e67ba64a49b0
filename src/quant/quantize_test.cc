// The encoders: recorded rows, error bounds, rows that are all alike, and values that have no encoding.
#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/rng.h"

namespace nunspark {
namespace {

const std::string kOwnRows = NUNSPARK_SOURCE_DIR "/tests/data/quantize/rows.safetensors";
const std::string kFullVectors = NUNSPARK_SOURCE_DIR "/../shared/goldens/quant/codec/";

// A safetensors file in memory.
class Tensors {
 public:
  explicit Tensors(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    if (bytes_.size() >= 8) std::memcpy(&header_bytes, bytes_.data(), 8);
    data_ = 8 + header_bytes;
    header_ = ParseJson(std::string_view(bytes_).substr(8, header_bytes), path).value();
  }
  int64_t Size(const std::string& name, size_t axis) const {
    return header_.Find(name)->Find("shape")->as_array()[axis].as_int();
  }
  const uint8_t* Data(const std::string& name) const {
    const int64_t offset = header_.Find(name)->Find("data_offsets")->as_array()[0].as_int();
    return reinterpret_cast<const uint8_t*>(bytes_.data()) + data_ + offset;
  }

 private:
  std::string bytes_;
  size_t data_ = 0;
  Json header_;
};

WeightFormat Affine(int bits, int group, FloatType type) {
  return {.encoding = Encoding::kAffine,
          .bits = static_cast<uint8_t>(bits),
          .group_size = static_cast<uint16_t>(group),
          .scale_type = type};
}

std::vector<WeightFormat> AllFormats() {
  std::vector<WeightFormat> formats = {FixedFormat(Encoding::kMxFp4), FixedFormat(Encoding::kMxFp8)};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) formats.push_back(Affine(bits, group, FloatType::kF32));
  }
  return formats;
}

struct Row {
  int64_t failed = -1;
  std::vector<uint8_t> data, scales, biases;
};

Row Encode(const WeightFormat& format, const std::vector<float>& values) {
  const auto cols = static_cast<int64_t>(values.size());
  Row row;
  row.data.resize(static_cast<size_t>(RowBytes(format, cols)));
  row.scales.resize(static_cast<size_t>(ScaleRowBytes(format, cols)));
  if (format.encoding == Encoding::kAffine) row.biases.resize(row.scales.size());
  row.failed = EncodeRow(format, values, {row.data.data(), row.scales.data(), row.biases.data()});
  return row;
}

std::vector<float> Decode(const WeightFormat& format, const Row& row, size_t cols) {
  std::vector<float> values(cols);
  DecodeRow({.format = format,
             .rows = 1,
             .cols = static_cast<int64_t>(cols),
             .data = row.data.data(),
             .scales = row.scales.data(),
             .biases = row.biases.data()},
            0, values.data());
  return values;
}

// Encodes `rows` rows of the tensor `source` and compares them with the recorded `name`.weight, .scales and .biases.
void ExpectRows(const Tensors& tensors, const std::string& source, FloatType type, int64_t rows,
                const WeightFormat& format, const std::string& name) {
  const int64_t cols = tensors.Size(source, 1);
  ASSERT_LE(rows, tensors.Size(source, 0));
  const auto same = [&](const std::vector<uint8_t>& made, const std::string& part, int64_t row) {
    const auto bytes = static_cast<int64_t>(made.size());
    EXPECT_EQ(std::memcmp(made.data(), tensors.Data(name + part) + row * bytes, made.size()), 0)
        << name << part << " row " << row;
  };
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<float> values(static_cast<size_t>(cols));
    DecodeFloats({.type = type, .size = cols, .data = tensors.Data(source) + i * cols * FloatBytes(type)},
                 values.data());
    const Row row = Encode(format, values);
    EXPECT_EQ(row.failed, -1);
    same(row.data, "weight", i);
    same(row.scales, "scales", i);
    if (format.encoding == Encoding::kAffine) same(row.biases, "biases", i);
  }
}

TEST(Quantize, ReproducesItsOwnRecordedRows) {
  const Tensors tensors(kOwnRows);
  for (const FloatType type : {FloatType::kBF16, FloatType::kF16, FloatType::kF32}) {
    const std::string source = fmt::format("{}.source", FloatName(type));
    const int64_t rows = tensors.Size(source, 0);
    const auto check = [&](const WeightFormat& format, const std::string& name) {
      ExpectRows(tensors, source, type, rows, format, fmt::format("{}.{}.", FloatName(type), name));
    };
    for (const int bits : {2, 3, 4, 5, 6, 8}) check(Affine(bits, 64, type), fmt::format("affine{}_g64", bits));
    check(Affine(4, 32, type), "affine4_g32");
    check(Affine(4, 128, type), "affine4_g128");
    check(Affine(8, 32, type), "affine8_g32");
    check(Affine(3, 128, type), "affine3_g128");
    check(FixedFormat(Encoding::kMxFp4), "mxfp4");
    check(FixedFormat(Encoding::kMxFp8), "mxfp8");
  }
}

TEST(Quantize, ReproducesTheFullReferenceSet) {
  if (!std::filesystem::exists(kFullVectors)) GTEST_SKIP() << "full reference set not present";
  constexpr int64_t kQuantisedRows = 12;  // the others are codes without a source
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const Tensors tensors(fmt::format("{}affine_b{}_g{}.safetensors", kFullVectors, bits, group));
      ExpectRows(tensors, "bf16.source", FloatType::kBF16, kQuantisedRows, Affine(bits, group, FloatType::kBF16),
                 "bf16.");
    }
  }
  ExpectRows(Tensors(kFullVectors + "mxfp4_g32.safetensors"), "source", FloatType::kF32, kQuantisedRows,
             FixedFormat(Encoding::kMxFp4), "");
  ExpectRows(Tensors(kFullVectors + "mxfp8_g32.safetensors"), "source", FloatType::kF32, kQuantisedRows,
             FixedFormat(Encoding::kMxFp8), "");
}

std::vector<float> RandomRow(uint32_t seed, size_t cols, float scale, float offset) {
  std::vector<float> values(cols);
  for (size_t i = 0; i < cols; ++i) {
    const auto block = Philox({static_cast<uint32_t>(i), seed, 0, 0}, {7, 11});
    values[i] = (static_cast<float>(block[0]) * 0x1p-31f - 1.0f) * scale + offset;
  }
  return values;
}

// How far a decoded value may be from its source. Affine: a step is (hi - lo) / top before the extreme of larger
// magnitude is made exact, which squeezes the codes by up to half a code at the extreme's distance from zero, at least
// half of the range; so the other end may lie up to 1.5 codes (of two bits) beyond the last code. Microscaling: half
// the distance of the two largest codes, times a scale of less than twice what the largest value needs.
float Bound(const WeightFormat& format, std::span<const float> group) {
  float lo = group[0], hi = group[0];
  for (const float value : group) {
    lo = std::min(lo, value);
    hi = std::max(hi, value);
  }
  const float largest = std::max(std::fabs(lo), std::fabs(hi));
  if (format.encoding == Encoding::kMxFp4) return 2 * largest / 6;
  if (format.encoding == Encoding::kMxFp8) return 2 * largest / 448 * 16;
  const auto top = static_cast<float>((1 << format.bits) - 1);
  return std::max((hi - lo) / top, 1e-7f) * 1.51f + largest * 1e-6f;
}

TEST(Quantize, DecodesCloseToItsSource) {
  for (const WeightFormat& format : AllFormats()) {
    uint32_t seed = 0;
    for (const float scale : {1.0f, 0.01f, 3000.0f, 1e-5f}) {
      for (const float offset : {0.0f, 0.7f, -2.0f, 5.0f}) {
        const std::vector<float> values = RandomRow(++seed, 512, scale, offset * scale);
        const Row row = Encode(format, values);
        ASSERT_EQ(row.failed, -1);
        const std::vector<float> decoded = Decode(format, row, values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t group = i / format.group_size * format.group_size;
          const float bound = Bound(format, std::span(values).subspan(group, format.group_size));
          ASSERT_LE(std::fabs(decoded[i] - values[i]), bound) << FormatName(format) << " seed " << seed << " at " << i;
        }
      }
    }
  }
}

TEST(Quantize, KeepsZerosAndEdgesExactly) {
  for (const WeightFormat& format : AllFormats()) {
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(Decode(format, Encode(format, zeros), zeros.size()), zeros) << FormatName(format);
    if (format.encoding != Encoding::kAffine) continue;
    for (const float value : {1.0f, -3.25f, 1e-3f, -1e-3f, 60000.0f}) {
      const std::vector<float> constant(128, value);
      EXPECT_EQ(Decode(format, Encode(format, constant), constant.size()), constant) << FormatName(format) << value;
    }
    // The extreme of larger magnitude is the bias.
    std::vector<float> negative = RandomRow(99, 128, 1.0f, -4.0f);
    for (size_t i = 5; i < negative.size(); i += 32) negative[i] = -7.0f;
    const std::vector<float> decoded = Decode(format, Encode(format, negative), negative.size());
    for (size_t i = 5; i < negative.size(); i += 32) EXPECT_EQ(decoded[i], -7.0f) << FormatName(format);
  }
}

TEST(Quantize, NamesTheFirstValueWithoutAnEncoding) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (const WeightFormat& format : AllFormats()) {
    for (const float bad : kBad) {
      for (const size_t at : {size_t{0}, size_t{31}, size_t{200}, size_t{255}}) {
        std::vector<float> values = RandomRow(3, 256, 1.0f, 0.0f);
        values[at] = bad;
        values[255] = bad;
        EXPECT_EQ(Encode(format, values).failed, static_cast<int64_t>(at)) << FormatName(format);
      }
    }
  }
}

TEST(Quantize, RefusesAGroupWiderThanFloatsReach) {
  std::vector<float> values(256, 0.0f);
  values[130] = 3e38f;
  values[131] = -3e38f;
  for (const WeightFormat& format : AllFormats()) {
    const bool affine = format.encoding == Encoding::kAffine;
    EXPECT_EQ(Encode(format, values).failed, affine ? 128 : -1) << FormatName(format);
  }
}

TEST(Quantize, WritesWhatItSaysItCan) {
  for (const WeightFormat& format : AllFormats()) EXPECT_TRUE(CanEncode(format)) << FormatName(format);
  EXPECT_FALSE(CanEncode(FloatFormat(FloatType::kBF16)));
  EXPECT_FALSE(CanEncode(FixedFormat(Encoding::kNvFp4)));
  EXPECT_FALSE(CanEncode(Affine(1, 64, FloatType::kBF16)));
  EXPECT_FALSE(CanEncode(Affine(7, 64, FloatType::kBF16)));
  EXPECT_FALSE(CanEncode(Affine(4, 16, FloatType::kBF16)));
}

}  // namespace
}  // namespace nunspark
