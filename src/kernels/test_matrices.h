// Random matrices in every encoding, for tests and benchmarks of the kernels.
#ifndef NUNSPARK_KERNELS_TEST_MATRICES_H_
#define NUNSPARK_KERNELS_TEST_MATRICES_H_

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"

namespace nunspark {

inline constexpr FloatType kAllFloatTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBF16};

inline std::vector<WeightFormat> AllFormats() {
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

// Owns a matrix with independent weights around [-0.1, 0.1]; each of its parts starts `misalignment` bytes behind an
// aligned address and ends where its vector ends, so that a sanitizer sees a read beyond it.
class RandomMatrix {
 public:
  RandomMatrix(WeightFormat format, int64_t rows, int64_t cols, uint32_t seed, int64_t misalignment = 0) {
    const auto pad = static_cast<size_t>(misalignment);
    data_.assign(pad, 0);
    scales_.assign(pad, 0);
    biases_.assign(pad, 0);
    if (format.encoding == Encoding::kAffine) {
      std::mt19937 random(seed);
      for (int64_t i = 0; i < rows * RowBytes(format, cols); ++i) data_.push_back(static_cast<uint8_t>(random() >> 11));
      const float half_range = format.bits == 4 ? 7.5f : 127.5f;
      std::vector<float> scales = RandomFloats(rows * cols / format.group_size, seed + 1, 0.1f / half_range);
      std::vector<float> biases = RandomFloats(rows * cols / format.group_size, seed + 2, 0.02f);
      for (size_t i = 0; i < scales.size(); ++i) biases[i] -= half_range * scales[i];
      AppendFloats(scales, format.scale_type, scales_);
      AppendFloats(biases, format.scale_type, biases_);
    } else {
      AppendFloats(RandomFloats(rows * cols, seed, 0.1f), format.scale_type, data_);
    }
    data_.shrink_to_fit();
    matrix_ = {.format = format,
               .rows = rows,
               .cols = cols,
               .data = data_.data() + pad,
               .scales = scales_.data() + pad,
               .biases = biases_.data() + pad};
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const WeightMatrix& matrix() const { return matrix_; }

 private:
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
