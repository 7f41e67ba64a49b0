#include "quant/lanes.h"

#include <cstring>

#include "base/check.h"

namespace nunspark {
namespace {

constexpr int64_t kBlock = 32;

uint32_t LoadWord(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}
void StoreWord(uint32_t word, uint8_t* p) { std::memcpy(p, &word, sizeof word); }

// Where in a plane's word the bits of its element e are.
constexpr int ShiftOf(int width, int64_t e) { return static_cast<int>(8 * (e % 4) + width * (e / 4)); }

// The bits of a word of consecutive elements, moved to where a plane has them. Elements 4j + i: the four of one j are
// spread to the bytes i.
template <int kWidth>
uint32_t Spread(uint32_t word) {
  constexpr uint32_t kMask = (1u << kWidth) - 1;
  uint32_t out = 0;
  for (int e = 0; e < 32 / kWidth; ++e) out |= ((word >> (kWidth * e)) & kMask) << ShiftOf(kWidth, e);
  return out;
}
template <>
uint32_t Spread<4>(uint32_t word) {
  const auto four = [](uint32_t nibbles) {
    nibbles = (nibbles | nibbles << 8) & 0x00ff00ffu;
    return (nibbles | nibbles << 4) & 0x0f0f0f0fu;
  };
  return four(word & 0xffffu) | four(word >> 16) << 4;
}
template <>
uint32_t Spread<8>(uint32_t word) {
  return word;
}

template <int kWidth>
uint32_t Collect(uint32_t word) {
  constexpr uint32_t kMask = (1u << kWidth) - 1;
  uint32_t out = 0;
  for (int e = 0; e < 32 / kWidth; ++e) out |= ((word >> ShiftOf(kWidth, e)) & kMask) << (kWidth * e);
  return out;
}
template <>
uint32_t Collect<4>(uint32_t word) {
  const auto four = [](uint32_t bytes) {
    bytes = (bytes | bytes >> 4) & 0x00ff00ffu;
    return (bytes | bytes >> 8) & 0xffffu;
  };
  return four(word & 0x0f0f0f0fu) | four(word >> 4 & 0x0f0f0f0fu) << 16;
}
template <>
uint32_t Collect<8>(uint32_t word) {
  return word;
}

// Codes of one plane: its words are those of the rows.
template <int kWidth>
void ToOnePlane(int64_t cols, const uint8_t* rows, uint8_t* out) {
  const int64_t row_bytes = cols * kWidth / 8;
  for (int64_t at = 0; at < row_bytes; at += 4) {
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      StoreWord(Spread<kWidth>(LoadWord(rows + lane * row_bytes + at)), out + (at / 4 * kLaneOutputs + lane) * 4);
    }
  }
}
template <int kWidth>
void FromOnePlane(int64_t cols, const uint8_t* tile, uint8_t* out) {
  const int64_t row_bytes = cols * kWidth / 8;
  for (int64_t at = 0; at < row_bytes; at += 4) {
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      StoreWord(Collect<kWidth>(LoadWord(tile + (at / 4 * kLaneOutputs + lane) * 4)), out + lane * row_bytes + at);
    }
  }
}

// The place of the word that holds element e of a block's plane, of one output.
int64_t WordPlace(int width, int64_t lane, int64_t e) { return (e / (32 / width) * kLaneOutputs + lane) * 4; }

// Codes of two planes go four at a time: as 4 * bits bits of the row's stream, or a byte each.
struct Fours {
  explicit Fours(int code_bits) : bits(code_bits), code((1u << code_bits) - 1) {}
  uint32_t ToBytes(uint32_t stream) const {
    return (stream & code) | (stream >> bits & code) << 8 | (stream >> 2 * bits & code) << 16 |
           (stream >> 3 * bits & code) << 24;
  }
  uint32_t FromBytes(uint32_t bytes) const {
    return (bytes & code) | (bytes >> 8 & code) << bits | (bytes >> 16 & code) << 2 * bits |
           (bytes >> 24 & code) << 3 * bits;
  }
  int bits;
  uint32_t code;
};

constexpr uint32_t PlaneMask(int width) { return ((1u << width) - 1) * 0x01010101u; }

void ToTwoPlanes(int bits, int64_t cols, const uint8_t* rows, uint8_t* out) {
  const LanePlanes planes = LanePlanesOf(bits);
  const Fours fours(bits);
  const int64_t row_bytes = cols * bits / 8, block_bytes = kBlock * bits / 8;
  for (int64_t block = 0; block < cols / kBlock; ++block) {
    uint8_t* const words = out + block * block_bytes * kLaneOutputs;
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      uint8_t stream[40] = {};
      std::memcpy(stream, rows + lane * row_bytes + block * block_bytes, static_cast<size_t>(block_bytes));
      uint32_t plane[6] = {};  // the words of the low plane, then those of the high one
      for (int v = 0; v < 8; ++v) {
        const int bit = v * 4 * bits;
        const uint32_t codes = fours.ToBytes(LoadWord(stream + bit / 8) >> (bit % 8));
        const int low_each = 8 / planes.low, high_each = 8 / planes.high;
        plane[v / low_each] |= (codes & PlaneMask(planes.low)) << (planes.low * (v % low_each));
        plane[planes.low + v / high_each] |= (codes >> planes.low & PlaneMask(planes.high))
                                             << (planes.high * (v % high_each));
      }
      for (int w = 0; w < bits; ++w) StoreWord(plane[w], words + (w * kLaneOutputs + lane) * 4);
    }
  }
}

void FromTwoPlanes(int bits, int64_t cols, const uint8_t* tile, uint8_t* out) {
  const LanePlanes planes = LanePlanesOf(bits);
  const Fours fours(bits);
  const int64_t row_bytes = cols * bits / 8, block_bytes = kBlock * bits / 8;
  for (int64_t block = 0; block < cols / kBlock; ++block) {
    const uint8_t* const words = tile + block * block_bytes * kLaneOutputs;
    for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
      uint32_t plane[6] = {};
      for (int w = 0; w < bits; ++w) plane[w] = LoadWord(words + (w * kLaneOutputs + lane) * 4);
      uint8_t stream[40] = {};
      for (int v = 0; v < 8; ++v) {
        const int low_each = 8 / planes.low, high_each = 8 / planes.high;
        const uint32_t low = plane[v / low_each] >> (planes.low * (v % low_each)) & PlaneMask(planes.low);
        const uint32_t high =
            plane[planes.low + v / high_each] >> (planes.high * (v % high_each)) & PlaneMask(planes.high);
        const int bit = v * 4 * bits;
        uint8_t* const at = stream + bit / 8;
        StoreWord(LoadWord(at) | fours.FromBytes(low | high << planes.low) << (bit % 8), at);
      }
      std::memcpy(out + lane * row_bytes + block * block_bytes, stream, static_cast<size_t>(block_bytes));
    }
  }
}

template <bool kToLanes>
void TransposeScales(int64_t groups, int64_t bytes, const uint8_t* in, uint8_t* out) {
  for (int64_t lane = 0; lane < kLaneOutputs; ++lane) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = (lane * groups + g) * bytes, tile = (g * kLaneOutputs + lane) * bytes;
      std::memcpy(out + (kToLanes ? tile : row), in + (kToLanes ? row : tile), static_cast<size_t>(bytes));
    }
  }
}

}  // namespace

bool HasLanes(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (format.encoding != Encoding::kAffine && format.encoding != Encoding::kMxFp4) return false;
  return format.order == MatrixOrder::kRowMajor && rows > 0 && rows % kLaneOutputs == 0 && cols % kBlock == 0;
}

WeightFormat InOrder(WeightFormat format, MatrixOrder order) {
  format.order = order;
  CHECK(IsSupported(format));
  return format;
}

void CodesToLanes(int bits, int64_t cols, const uint8_t* rows, uint8_t* out) {
  switch (bits) {
    case 1: return ToOnePlane<1>(cols, rows, out);
    case 2: return ToOnePlane<2>(cols, rows, out);
    case 4: return ToOnePlane<4>(cols, rows, out);
    case 8: return ToOnePlane<8>(cols, rows, out);
    default: return ToTwoPlanes(bits, cols, rows, out);
  }
}

void CodesFromLanes(int bits, int64_t cols, const uint8_t* tile, uint8_t* out) {
  switch (bits) {
    case 1: return FromOnePlane<1>(cols, tile, out);
    case 2: return FromOnePlane<2>(cols, tile, out);
    case 4: return FromOnePlane<4>(cols, tile, out);
    case 8: return FromOnePlane<8>(cols, tile, out);
    default: return FromTwoPlanes(bits, cols, tile, out);
  }
}

void ScalesToLanes(int64_t groups, int64_t bytes, const uint8_t* rows, uint8_t* out) {
  TransposeScales<true>(groups, bytes, rows, out);
}

void ScalesFromLanes(int64_t groups, int64_t bytes, const uint8_t* tile, uint8_t* out) {
  TransposeScales<false>(groups, bytes, tile, out);
}

uint32_t LaneCode(int bits, const uint8_t* tile, int64_t lane, int64_t k) {
  const LanePlanes planes = LanePlanesOf(bits);
  const int64_t e = k % kBlock;
  const auto bits_of = [&](const uint8_t* plane, int width) {
    const uint32_t word = LoadWord(plane + WordPlace(width, lane, e));
    return (word >> ShiftOf(width, e % (32 / width))) & ((1u << width) - 1);
  };
  const uint8_t* const low = tile + k / kBlock * bits * 4 * kLaneOutputs;
  const uint32_t code = bits_of(low, planes.low);
  if (planes.high == 0) return code;
  return code | bits_of(low + planes.low * 4 * kLaneOutputs, planes.high) << planes.low;
}

}  // namespace nunspark
