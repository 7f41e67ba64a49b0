// Rows of keys and values for tests: the formats, and what stored bytes stand for by definition.
#ifndef NUNSPARK_KERNELS_TEST_KV_H_
#define NUNSPARK_KERNELS_TEST_KV_H_

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"

namespace nunspark {

inline std::vector<KvFormat> CodeKvFormats() {
  std::vector<KvFormat> formats;
  for (const uint8_t bits : {uint8_t{8}, uint8_t{4}}) {
    for (const uint8_t group : {uint8_t{32}, uint8_t{64}, uint8_t{128}}) {
      formats.push_back({.bits = bits, .group_size = group});
    }
  }
  return formats;
}

inline std::vector<KvFormat> AllKvFormats() {
  std::vector<KvFormat> formats = CodeKvFormats();
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) formats.push_back({.type = type});
  return formats;
}

// Of a row's group.
struct KvPair {
  float scale;
  float bias;
};
inline KvPair StoredPair(const KvFormat& format, int dim, const uint8_t* head, int64_t t, int64_t group) {
  uint16_t scale, bias;
  const uint8_t* const scales = head + kKvBlockPositions * KvCodeWidth(dim) * format.bits / 8 + group * 256;
  std::memcpy(&scale, scales + 2 * t, sizeof scale);
  std::memcpy(&bias, scales + 128 + 2 * t, sizeof bias);
  return {.scale = F16ToFloat(scale), .bias = F16ToFloat(bias)};
}

// Of element d of row t of a head's part of a block.
inline int StoredCode(const KvFormat& format, int dim, KvSide side, const uint8_t* head, int64_t t, int64_t d) {
  const int64_t width = KvCodeWidth(dim), unit = 32 / format.bits;
  const bool keys = side == KvSide::kKeys;
  const int64_t at = keys ? d / unit * 256 + t * 4 + d % 4 : (t / unit * width + d) * 4 + t % 4;
  if (format.bits == 8) return head[at];
  return (keys ? d : t) % 8 < 4 ? head[at] & 15 : head[at] >> 4;
}

inline float StoredElement(const KvFormat& format, int dim, KvSide side, const uint8_t* head, int64_t t, int64_t d) {
  if (format.bits == 0) {
    float x;
    const int64_t at = (t * dim + d) * FloatBytes(format.type);
    FindKernels("scalar")->load_floats(head + at, format.type, 1, &x);
    return x;
  }
  const KvPair pair = StoredPair(format, dim, head, t, d / format.group_size);
  return std::fma(pair.scale, static_cast<float>(StoredCode(format, dim, side, head, t, d)), pair.bias);
}

}  // namespace nunspark

#endif  // NUNSPARK_KERNELS_TEST_KV_H_
