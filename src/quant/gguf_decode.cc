// Layouts of GGML's block types. d, m: f16. Blocks of 32 elements, then super-blocks of 256; j is the element.
//
//   q4_0    d, qs[16]              d * (q - 8), q the low nibble of qs[j] for j < 16, the high one of qs[j - 16] else
//   q4_1    d, m, qs[16]           d * q + m
//   q5_0    d, qh[4], qs[16]       d * (q - 16), bit 4 of q is bit j of qh
//   q5_1    d, m, qh[4], qs[16]    d * q + m
//   q8_0    d, qs[32]              d * q, signed bytes
//   iq4_nl  d, qs[16]              d * table[q], nibbles as in q4_0
//   mxfp4   e, qs[16]              e2m1(q) * 2^(e - 127), nibbles as in q4_0
//   q2_k    sc[16], qs[64], d, m   d * lo(sc) * q - m * hi(sc) with sc[j / 16]; q: bits 2s of qs[32 * (j / 128) + j %
//   32],
//                                  s = j % 128 / 32
//   q3_k    hm[32], qs[64], sc[12], d   d * (sc - 32) * (q - 4), sc of 6 bits for j / 16; q as in q2_k, bit 2 is bit
//                                  j / 32 of hm[j % 32]
//   q4_k    d, m, sc[12], qs[128]  d * sc * q - m * mn, sc and mn of 6 bits for j / 32; q: a nibble of
//                                  qs[32 * (j / 64) + j % 32], the high one for odd j / 32
//   q5_k    d, m, sc[12], qh[32], qs[128]  as q4_k, bit 4 of q is bit j / 32 of qh[j % 32]
//   q6_k    ql[128], qh[64], sc[16], d     d * sc * (q - 32), sc signed bytes for j / 16; with r = j % 128: low nibble
//                                  of ql[64 * (j / 128) + r % 64] for r < 64, else the high one; bits 4 and 5:
//                                  bits 2 * (r / 32) of qh[32 * (j / 128) + j % 32]
//   iq4_xs  d, sh[2], sl[4], qs[128]       d * (sc - 32) * table[q], sc of 6 bits for j / 32: nibbles of sl below pairs
//                                  of bits of sh; q: nibbles of qs[16 * (j / 32) + j % 16], the high ones for
//                                  j % 32 >= 16
//
// Products are exact (a half's 11 bits, at most 7 of a scale, at most 6 of a code), so each element is rounded once at
// most, in the final sum, whatever the order.
#include "quant/gguf_decode.h"

#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "quant/small_floats.h"

namespace nunspark::internal {
namespace {

float Half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return F16ToFloat(bits);
}

int Bits(const uint8_t* p, int byte, int shift, int count) { return (p[byte] >> shift) & ((1 << count) - 1); }

// Nibble `index` of 32 whose first half lies in the low nibbles.
int SplitNibble(const uint8_t* qs, int index) { return Bits(qs, index % 16, index / 16 * 4, 4); }

int FifthBit(const uint8_t* qh, int index) { return Bits(qh, index / 8, index % 8, 1) << 4; }

struct ScaleAndMin {
  int scale, min;
};

// The eight pairs of 6 bits of q4_k and q5_k: the first four in the low bits of bytes 0-3 and 4-7, the rest as nibbles
// of bytes 8-11 below the two top bits of those.
ScaleAndMin ScaleAndMinOf(const uint8_t* scales, int index) {
  if (index < 4) return {Bits(scales, index, 0, 6), Bits(scales, index + 4, 0, 6)};
  return {Bits(scales, index + 4, 0, 4) | Bits(scales, index - 4, 6, 2) << 4,
          Bits(scales, index + 4, 4, 4) | Bits(scales, index, 6, 2) << 4};
}

// The sixteen scales of q3_k: nibbles of bytes 0-7 below pairs of bits of bytes 8-11.
int Q3Scale(const uint8_t* scales, int index) {
  return (Bits(scales, index % 8, index / 8 * 4, 4) | Bits(scales, 8 + index % 4, index / 4 * 2, 2) << 4) - 32;
}

int TwoBits(const uint8_t* qs, int index) { return Bits(qs, index / 128 * 32 + index % 32, index % 128 / 32 * 2, 2); }

int PairedNibble(const uint8_t* qs, int index) { return Bits(qs, index / 64 * 32 + index % 32, index / 32 % 2 * 4, 4); }

float MinusMin(float d, float m, ScaleAndMin pair, int q) {
  return d * static_cast<float>(pair.scale) * static_cast<float>(q) - m * static_cast<float>(pair.min);
}

float Scaled(float d, int scale, int q) { return d * static_cast<float>(scale) * static_cast<float>(q); }

int Q6Code(const uint8_t* ql, const uint8_t* qh, int index) {
  const int half = index / 128, within = index % 128;
  const int low = Bits(ql, half * 64 + within % 64, within / 64 * 4, 4);
  return (low | Bits(qh, half * 32 + index % 32, within / 32 * 2, 2) << 4) - 32;
}

}  // namespace

float BlockElement(Encoding encoding, const uint8_t* block, int j) {
  switch (encoding) {
    case Encoding::kQ4_0: return Scaled(Half(block), 1, SplitNibble(block + 2, j) - 8);
    case Encoding::kQ4_1: return Scaled(Half(block), 1, SplitNibble(block + 4, j)) + Half(block + 2);
    case Encoding::kQ5_0: return Scaled(Half(block), 1, (SplitNibble(block + 6, j) | FifthBit(block + 2, j)) - 16);
    case Encoding::kQ5_1:
      return Scaled(Half(block), 1, SplitNibble(block + 8, j) | FifthBit(block + 4, j)) + Half(block + 2);
    case Encoding::kQ8_0: return Scaled(Half(block), 1, static_cast<int8_t>(block[2 + j]));
    case Encoding::kIq4Nl: return Scaled(Half(block), 1, kIq4Values[SplitNibble(block + 2, j)]);
    case Encoding::kGgufMxFp4:
      return 2.0f * E2m1ToFloat(static_cast<uint32_t>(SplitNibble(block + 1, j))) * HalfE8m0ToFloat(block[0]);
    case Encoding::kQ2K: {
      const ScaleAndMin pair = {block[j / 16] & 15, block[j / 16] >> 4};
      return MinusMin(Half(block + 80), Half(block + 82), pair, TwoBits(block + 16, j));
    }
    case Encoding::kQ3K:
      return Scaled(Half(block + 108), Q3Scale(block + 96, j / 16),
                    (TwoBits(block + 32, j) | Bits(block, j % 32, j / 32, 1) << 2) - 4);
    case Encoding::kQ4K:
      return MinusMin(Half(block), Half(block + 2), ScaleAndMinOf(block + 4, j / 32), PairedNibble(block + 16, j));
    case Encoding::kQ5K:
      return MinusMin(Half(block), Half(block + 2), ScaleAndMinOf(block + 4, j / 32),
                      PairedNibble(block + 48, j) | Bits(block + 16, j % 32, j / 32, 1) << 4);
    case Encoding::kQ6K:
      return Scaled(Half(block + 208), static_cast<int8_t>(block[192 + j / 16]), Q6Code(block, block + 128, j));
    case Encoding::kIq4Xs: {
      const int low = Bits(block + 4, j / 64, j / 32 % 2 * 4, 4), high = Bits(block + 2, j / 128, j / 32 % 4 * 2, 2);
      return Scaled(Half(block), (low | high << 4) - 32, kIq4Values[SplitNibble(block + 8 + j / 32 * 16, j % 32)]);
    }
    default: break;
  }
  CHECK(false && "not a block type");
  return 0;
}

}  // namespace nunspark::internal
