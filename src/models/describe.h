// Model types in words, from their specs: for `inspect` and docs/models.md.
#ifndef NUNSPARK_MODELS_DESCRIBE_H_
#define NUNSPARK_MODELS_DESCRIBE_H_

#include <string>

#include "models/arch_spec.h"

namespace nunspark {

struct ArchDescription {
  std::string name;       // "gemma4 (gemma4_unified)"
  std::string gguf;       // "qwen3moe", "-" when there is none
  std::string attention;  // "grouped queries, head norms, windows by pattern"
  std::string rope;       // "halves", "pairs, partial"
  std::string ffn;        // "dense SwiGLU", "experts, top-k then softmax"
  std::string norms;      // "before", "after", "before and after"
};

ArchDescription Describe(const ArchSpec& spec);

// docs/models.md: every supported type in one table, and every weight encoding.
std::string ModelsDocument();

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_DESCRIBE_H_
