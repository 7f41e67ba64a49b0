// GGML's block types, one element at a time: the reference for gguf_decode.cc's layouts. See encoding.h.
#ifndef NUNSPARK_QUANT_GGUF_DECODE_H_
#define NUNSPARK_QUANT_GGUF_DECODE_H_

#include "quant/encoding.h"

namespace nunspark::internal {

// Element `index` of one block. REQUIRES: a block encoding (kQ4_0 and after).
float BlockElement(Encoding encoding, const uint8_t* block, int index);

// The signed codes of iq4_nl and iq4_xs.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace nunspark::internal

#endif  // NUNSPARK_QUANT_GGUF_DECODE_H_
