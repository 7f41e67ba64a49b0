// What the files of this folder share.
#ifndef NUNSPARK_MODELS_ARCH_ARCH_H_
#define NUNSPARK_MODELS_ARCH_ARCH_H_

#include "models/arch_spec.h"

// Defines the spec that the generated table refers to.
#define NUNSPARK_ARCH(type)           \
  extern const ArchSpec kArch_##type; \
  constexpr ArchSpec kArch_##type

namespace nunspark::arch {

// Tensors of the plain pre-norm block, as most dense decoders publish them.
inline constexpr TensorSpec kEmbed{Role::kEmbed, Place::kModel, TensorKind::kLinear, "embed_tokens", Dim::kVocab, Dim::kModel};
inline constexpr TensorSpec kFinalNorm{Role::kFinalNorm, Place::kModel, TensorKind::kVector, "norm", Dim::kModel, Dim::kModel};
inline constexpr TensorSpec kHead{Role::kHead, Place::kModel, TensorKind::kLinear, "lm_head", Dim::kVocab, Dim::kModel};

constexpr TensorSpec LayerNorm(Role role, std::string_view name) {
  return {role, Place::kLayer, TensorKind::kVector, name, Dim::kModel, Dim::kModel};
}
constexpr TensorSpec HeadNorm(Role role, std::string_view name) {
  return {role, Place::kLayer, TensorKind::kVector, name, Dim::kHeadDim, Dim::kHeadDim};
}
constexpr TensorSpec Linear(Role role, std::string_view name, Dim rows, Dim cols, Bias bias = Bias::kNever) {
  return {role, Place::kLayer, TensorKind::kLinear, name, rows, cols, bias};
}
constexpr TensorSpec DenseFfn(Role role, std::string_view name, Dim rows, Dim cols, Bias bias = Bias::kNever) {
  return {role, Place::kDenseFfn, TensorKind::kLinear, name, rows, cols, bias};
}

// Old exports carry RoPE's frequencies as a buffer.
inline constexpr std::string_view kIgnoredBuffers[] = {"self_attn.rotary_emb.inv_freq"};

}  // namespace nunspark::arch

#endif  // NUNSPARK_MODELS_ARCH_ARCH_H_
