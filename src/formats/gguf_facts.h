// What llama.cpp's converter does to a model without writing it into the file, by general.architecture.
#ifndef NUNSPARK_FORMATS_GGUF_FACTS_H_
#define NUNSPARK_FORMATS_GGUF_FACTS_H_

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace nunspark {

struct GgufFacts {
  std::string_view architecture;
  // RoPE turns neighbouring elements (2i, 2i + 1): llama_model_rope_type's NORM. For llama the converter moved the rows
  // of q and k so that this fits, for the others the authors' code does it too.
  bool interleaved_rope = false;
  // Every how many layers one sees everything, given a sliding window and no pattern in the file; 0: no such rule.
  int64_t window_period = 0;
  // Sets what else cannot be seen in the file; called last, with all translated keys. May be null.
  void (*complete)(Json& config) = nullptr;
};

// An architecture without an entry has no such facts.
GgufFacts FindGgufFacts(std::string_view architecture);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_FACTS_H_
