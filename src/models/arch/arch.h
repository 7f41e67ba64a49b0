// What the files of this folder share.
#ifndef NUNSPARK_MODELS_ARCH_ARCH_H_
#define NUNSPARK_MODELS_ARCH_ARCH_H_

#include <array>

#include "models/arch_spec.h"

// Defines the spec that the generated table refers to.
#define NUNSPARK_ARCH(type)           \
  extern const ArchSpec kArch_##type; \
  constexpr ArchSpec kArch_##type

namespace nunspark::arch {

// Tensors of the plain pre-norm block, as most dense decoders publish them.
inline constexpr TensorSpec kEmbed{Role::kEmbed,   Place::kModel, TensorKind::kLinear,
                                   "embed_tokens", Dim::kVocab,   Dim::kModel};
inline constexpr TensorSpec kFinalNorm{Role::kFinalNorm, Place::kModel, TensorKind::kVector,
                                       "norm",           Dim::kModel,   Dim::kModel};
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

// Tables are put together from shared and own parts.
template <typename T, size_t kA, size_t kB>
constexpr std::array<T, kA + kB> Join(const std::array<T, kA>& a, const std::array<T, kB>& b) {
  std::array<T, kA + kB> joined{};
  for (size_t i = 0; i < kA; ++i) joined[i] = a[i];
  for (size_t i = 0; i < kB; ++i) joined[kA + i] = b[i];
  return joined;
}

// What every decoder's config.json says.
inline constexpr std::array kDecoderConfig{
    ConfigKey{"vocab_size", HParamField::kVocabSize, ConfigRule::kRequired},
    ConfigKey{"hidden_size", HParamField::kModelDim, ConfigRule::kRequired},
    ConfigKey{"num_hidden_layers", HParamField::kLayers, ConfigRule::kRequired},
    ConfigKey{"num_attention_heads", HParamField::kHeads, ConfigRule::kRequired},
    ConfigKey{"num_key_value_heads", HParamField::kKvHeads, ConfigRule::kDefault},  // absent: as many as heads
    ConfigKey{"intermediate_size", HParamField::kFfnDim, ConfigRule::kRequired},
    ConfigKey{"rms_norm_eps", HParamField::kRmsEpsilon, ConfigRule::kRequired},
    ConfigKey{"tie_word_embeddings", HParamField::kTied, ConfigRule::kDefault},
};

// Old exports carry RoPE's frequencies as a buffer.
inline constexpr std::string_view kIgnoredBuffers[] = {"self_attn.rotary_emb.inv_freq"};

}  // namespace nunspark::arch

#endif  // NUNSPARK_MODELS_ARCH_ARCH_H_
