// Random matrices in every encoding, for tests and benchmarks of the kernels.
#ifndef NUNSPARK_KERNELS_TEST_MATRICES_H_
#define NUNSPARK_KERNELS_TEST_MATRICES_H_

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"

namespace nunspark {

inline constexpr FloatType kAllFloatTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBF16};

// Those multiplied without decoding: the order of their sums is their own.
inline std::vector<WeightFormat> NativeFormats() {
  std::vector<WeightFormat> formats;
  for (FloatType type : kAllFloatTypes) formats.push_back(FloatFormat(type));
  for (uint8_t bits : {uint8_t{4}, uint8_t{8}}) {
    for (uint16_t group : {uint16_t{32}, uint16_t{64}, uint16_t{128}}) {
      for (FloatType type : kAllFloatTypes) {
        formats.push_back({.encoding = Encoding::kAffine, .bits = bits, .group_size = group, .scale_type = type});
      }
    }
  }
  return formats;
}

// Those decoded first, in the order of f32.
inline std::vector<WeightFormat> DecodedFormats() {
  std::vector<WeightFormat> formats;
  for (FloatType type : kAllFloatTypes) {
    formats.push_back(FloatFormat(type));
    formats.back().order = MatrixOrder::kColumnMajor;
  }
  for (uint8_t bits : {uint8_t{1}, uint8_t{2}, uint8_t{3}, uint8_t{5}, uint8_t{6}}) {
    for (uint16_t group : {uint16_t{32}, uint16_t{64}, uint16_t{128}}) {
      const FloatType type = kAllFloatTypes[(bits + group / 32) % 3];
      formats.push_back({.encoding = Encoding::kAffine, .bits = bits, .group_size = group, .scale_type = type});
    }
  }
  for (Encoding encoding : {Encoding::kMxFp4, Encoding::kMxFp8, Encoding::kNvFp4}) {
    formats.push_back(FixedFormat(encoding));
  }
  for (uint16_t group : {uint16_t{32}, uint16_t{64}, uint16_t{128}}) {
    formats.push_back({.encoding = Encoding::kAwq,
                       .bits = 4,
                       .group_size = group,
                       .scale_type = kAllFloatTypes[group / 32 % 3],
                       .order = MatrixOrder::kColumnMajor});
  }
  const struct {
    uint16_t rows, cols;
    FloatType type;
  } kBlocks[] = {
      {128, 128, FloatType::kF32}, {3, 50, FloatType::kBF16}, {1, 0, FloatType::kBF16}, {0, 0, FloatType::kF32}};
  for (const auto& block : kBlocks) {
    formats.push_back({.encoding = Encoding::kFp8Block,
                       .bits = 8,
                       .group_size = block.cols,
                       .scale_type = block.type,
                       .group_rows = block.rows});
  }
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    formats.push_back(FixedFormat(static_cast<Encoding>(e)));
  }
  return formats;
}

inline std::vector<WeightFormat> AllFormats() {
  std::vector<WeightFormat> formats = NativeFormats();
  for (const WeightFormat& format : DecodedFormats()) formats.push_back(format);
  return formats;
}

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Plain scalar conversion; appends to `out`.
inline void AppendFloats(const std::vector<float>& values, FloatType type, std::vector<uint8_t>& out) {
  for (float value : values) {
    uint8_t bytes[4];
    size_t size = 4;
    if (type == FloatType::kF32) {
      std::memcpy(bytes, &value, 4);
    } else {
      const uint16_t half = type == FloatType::kF16 ? FloatToF16(value) : FloatToBf16(value);
      std::memcpy(bytes, &half, 2);
      size = 2;
    }
    out.insert(out.end(), bytes, bytes + size);
  }
}

// Which rows of its stored tensor a matrix is.
struct PartRows {
  int64_t begin = 0;
  int64_t step = 1;
};

// Owns a matrix of random codes (independent weights around [-0.1, 0.1] for floats and affine); each of its parts
// starts `misalignment` bytes behind an aligned address and ends where its vector ends, so that a sanitizer sees a read
// beyond it. The stored tensor has rows before, between and behind those of the matrix as `part` says.
class RandomMatrix {
 public:
  RandomMatrix(WeightFormat format, int64_t rows, int64_t cols, uint32_t seed, int64_t misalignment = 0,
               PartRows part = {})
      : random_(seed), seed_(seed), pad_(static_cast<size_t>(misalignment)) {
    const bool whole = part.begin == 0 && part.step == 1;
    int64_t stored = part.begin + (rows - 1) * part.step + (whole ? 1 : 2);
    if (format.encoding == Encoding::kAwq) stored = (stored + 7) / 8 * 8;
    data_.assign(pad_, 0);
    scales_.assign(pad_, 0);
    biases_.assign(pad_, 0);
    if (format.encoding == Encoding::kAffine) {
      FillAffine(format, stored, cols);
    } else if (format.encoding <= Encoding::kBF16) {
      AppendFloats(RandomFloats(stored * cols, seed, 0.1f), format.scale_type, data_);
    } else {
      FillCodes(format, stored, cols);
    }
    for (auto* bytes : {&data_, &scales_, &biases_}) bytes->shrink_to_fit();
    matrix_ = {.format = format,
               .rows = rows,
               .cols = cols,
               .data = data_.data() + pad_,
               .scales = scales_.data() + pad_,
               .biases = biases_.size() == pad_ ? nullptr : biases_.data() + pad_,
               .row_begin = part.begin,
               .row_step = part.step,
               .stored_rows = whole && stored == rows ? 0 : stored};
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const WeightMatrix& matrix() const { return matrix_; }

 private:
  void FillAffine(const WeightFormat& format, int64_t rows, int64_t cols) {
    AppendBytes(rows * RowBytes(format, cols), data_);
    const float half_range = static_cast<float>((1 << format.bits) - 1) / 2;
    std::vector<float> scales = RandomFloats(rows * cols / format.group_size, seed_ + 1, 0.1f / half_range);
    std::vector<float> biases = RandomFloats(rows * cols / format.group_size, seed_ + 2, 0.02f);
    for (size_t i = 0; i < scales.size(); ++i) biases[i] -= half_range * scales[i];
    AppendFloats(scales, format.scale_type, scales_);
    AppendFloats(biases, format.scale_type, biases_);
  }

  void FillCodes(const WeightFormat& format, int64_t rows, int64_t cols) {
    AppendBytes(DataBytes(format, rows, cols), data_);
    if (format.encoding == Encoding::kFp8Block || format.encoding == Encoding::kMxFp8) RemoveNan(data_);
    const int64_t scale_bytes = ScaleBytes(format, rows, cols);
    switch (format.encoding) {
      case Encoding::kMxFp4:
      case Encoding::kMxFp8:
        for (int64_t i = 0; i < scale_bytes; ++i) scales_.push_back(static_cast<uint8_t>(random_() % 140));
        return;
      case Encoding::kNvFp4:
        AppendBytes(scale_bytes, scales_);
        RemoveNan(scales_);
        if (seed_ % 2 == 0) AppendFloats({0.37f}, FloatType::kF32, biases_);
        return;
      case Encoding::kAwq:
      case Encoding::kFp8Block:
        AppendFloats(RandomFloats(scale_bytes / FloatBytes(format.scale_type), seed_ + 1, 0.01f), format.scale_type,
                     scales_);
        AppendBytes(BiasBytes(format, rows, cols), biases_);
        return;
      default: return FillHalves(format);
    }
  }

  // Finite scales in blocks of random bytes.
  void FillHalves(const WeightFormat& format) {
    const auto block = static_cast<size_t>(RowBytes(format, format.group_size));
    std::vector<size_t> places = {0};
    switch (format.encoding) {
      case Encoding::kQ4_1:
      case Encoding::kQ5_1:
      case Encoding::kQ4K:
      case Encoding::kQ5K: places = {0, 2}; break;
      case Encoding::kQ2K: places = {80, 82}; break;
      case Encoding::kQ3K: places = {108}; break;
      case Encoding::kQ6K: places = {208}; break;
      case Encoding::kGgufMxFp4: places = {}; break;
      default: break;
    }
    for (size_t at = pad_; at < data_.size(); at += block) {
      if (places.empty()) data_[at] = static_cast<uint8_t>(random_() % 140);
      for (size_t place : places) {
        const uint16_t half = FloatToF16((static_cast<float>(random_() % 2001) - 1000.0f) * 1e-6f);
        std::memcpy(data_.data() + at + place, &half, sizeof half);
      }
    }
  }

  void AppendBytes(int64_t count, std::vector<uint8_t>& out) {
    const size_t begin = out.size();
    out.resize(begin + static_cast<size_t>(count));
    for (size_t i = begin; i < out.size(); i += 4) {
      const auto word = static_cast<uint32_t>(random_());
      std::memcpy(out.data() + i, &word, std::min<size_t>(4, out.size() - i));
    }
  }
  static void RemoveNan(std::vector<uint8_t>& codes) {
    for (uint8_t& code : codes) code = (code & 0x7f) == 0x7f ? 0 : code;
  }

  std::mt19937 random_;
  uint32_t seed_;
  size_t pad_;
  std::vector<uint8_t> data_, scales_, biases_;
  WeightMatrix matrix_;
};

// Equal bit for bit, except that any NaN equals any other.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != a[i] && b[i] != b[i]) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

}  // namespace nunspark

#endif  // NUNSPARK_KERNELS_TEST_MATRICES_H_
