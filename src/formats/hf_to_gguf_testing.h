// Turns a small Hugging Face checkpoint into a GGUF file the way llama.cpp's converter does. For tests only.
#ifndef NUNSPARK_FORMATS_HF_TO_GGUF_TESTING_H_
#define NUNSPARK_FORMATS_HF_TO_GGUF_TESTING_H_

#include <string>

#include "formats/gguf_testing.h"

namespace nunspark {

struct HfToGgufOptions {
  bool fuse_qkv = false;  // attn_qkv instead of attn_q, attn_k and attn_v, as newer converters can
};

// `folder` holds config.json and one model.safetensors with float tensors under Hugging Face's names. Matrices become
// BF16, which is exact for BF16 checkpoints, all else F32. No vocabulary is written. REQUIRES: a type that is listed in
// hf_to_gguf_testing.cc; anything unexpected is a CHECK.
GgufBuilder GgufOfHf(const std::string& folder, const HfToGgufOptions& options = {});

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_HF_TO_GGUF_TESTING_H_
