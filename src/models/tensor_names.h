// How the tensors of a role are called in GGUF files, and the names under which a matrix may be stored. Private to
// models.
#ifndef NUNSPARK_MODELS_TENSOR_NAMES_H_
#define NUNSPARK_MODELS_TENSOR_NAMES_H_

#include <string_view>

#include "models/arch_spec.h"

namespace nunspark::internal {

// Module path of the role in GGUF, behind "blk.N." for those of a layer; "" for roles that no GGUF file has.
// Source: gguf-py's constants.py (MODEL_TENSOR names).
std::string_view GgufName(Role role);

// The spec's own GGUF name, else its role's.
inline std::string_view GgufName(const TensorSpec& spec) { return spec.gguf.empty() ? GgufName(spec.role) : spec.gguf; }

// Names of one matrix with the rows of query, key and value, which any type may be stored with.
std::string_view FusedQkvName(Naming naming);

// Prefixes of the base model in use; the first whose embedding exists is taken. Packs always use the first.
inline constexpr std::string_view kModelPrefixes[] = {"model.", "language_model.model.", "model.language_model.", ""};

// What stands in front of tensors beside the base model, such as the head.
std::string_view OutsidePrefix(std::string_view model_prefix);

}  // namespace nunspark::internal

#endif  // NUNSPARK_MODELS_TENSOR_NAMES_H_
