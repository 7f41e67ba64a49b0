// What the files of this folder share: rows of the tables that most decoders have in common.
#ifndef NUNSPARK_MODELS_ARCH_ARCH_H_
#define NUNSPARK_MODELS_ARCH_ARCH_H_

#include <array>

#include "models/arch_spec.h"

// Defines the spec that the generated table refers to.
#define NUNSPARK_ARCH(type)           \
  extern const ArchSpec kArch_##type; \
  constexpr ArchSpec kArch_##type

namespace nunspark::arch {

// ---- tensors, in the order of the forward pass

constexpr TensorSpec Vector(Role role, std::string_view name, Dim dim, When when = When::kAlways,
                            std::string_view gguf = "") {
  return {role, Place::kLayer, TensorKind::kVector, name, dim, dim, Bias::kNever, when, gguf};
}
constexpr TensorSpec Linear(Role role, std::string_view name, Dim rows, Dim cols, Bias bias = Bias::kNever,
                            When when = When::kAlways, std::string_view gguf = "") {
  return {role, Place::kLayer, TensorKind::kLinear, name, rows, cols, bias, when, gguf};
}
constexpr TensorSpec LayerNorm(Role role, std::string_view name, std::string_view gguf = "") {
  return Vector(role, name, Dim::kModel, When::kAlways, gguf);
}
constexpr TensorSpec HeadNorm(Role role, std::string_view name, When when = When::kAlways) {
  return Vector(role, name, Dim::kHeadDim, when);
}
// The same row in another place: a dense FFN that layers with experts lack.
constexpr TensorSpec In(Place place, TensorSpec spec) {
  spec.place = place;
  return spec;
}

inline constexpr std::array kEmbed{
    TensorSpec{Role::kEmbed, Place::kModel, TensorKind::kLinear, "embed_tokens", Dim::kVocab, Dim::kModel}};
inline constexpr std::array kEnds{
    TensorSpec{Role::kFinalNorm, Place::kModel, TensorKind::kVector, "norm", Dim::kModel, Dim::kModel},
    TensorSpec{Role::kHead, Place::kOutside, TensorKind::kLinear, "lm_head", Dim::kVocab, Dim::kModel}};

constexpr std::array<TensorSpec, 3> Projections(Bias bias = Bias::kNever) {
  return {Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, bias),
          Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, bias),
          Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel, bias)};
}
constexpr std::array<TensorSpec, 1> AttentionOut(Bias bias = Bias::kNever) {
  return {Linear(Role::kAttentionOut, "self_attn.o_proj", Dim::kModel, Dim::kAttentionOut, bias)};
}
constexpr std::array<TensorSpec, 2> HeadNorms(std::string_view query = "self_attn.q_norm",
                                              std::string_view key = "self_attn.k_norm", When when = When::kAlways) {
  return {HeadNorm(Role::kQueryNorm, query, when), HeadNorm(Role::kKeyNorm, key, when)};
}
constexpr std::array<TensorSpec, 3> GatedFfn(Bias bias = Bias::kNever, Place place = Place::kDenseFfn) {
  return {In(place, Linear(Role::kGate, "mlp.gate_proj", Dim::kFfn, Dim::kModel, bias)),
          In(place, Linear(Role::kUp, "mlp.up_proj", Dim::kFfn, Dim::kModel, bias)),
          In(place, Linear(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn, bias))};
}
// Gate and up in one matrix, gate first. GGUF calls it ffn_up.
inline constexpr std::array kFusedFfn{
    In(Place::kDenseFfn,
       Linear(Role::kGate, "mlp.gate_up_proj", Dim::kFfn, Dim::kModel, Bias::kNever, When::kAlways, "ffn_up")),
    In(Place::kDenseFfn,
       Linear(Role::kUp, "mlp.gate_up_proj", Dim::kFfn, Dim::kModel, Bias::kNever, When::kAlways, "ffn_up")),
    In(Place::kDenseFfn, Linear(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn))};
constexpr std::array<TensorSpec, 3> Experts(Bias bias = Bias::kNever) {
  return {In(Place::kExpert, Linear(Role::kExpertGate, "", Dim::kExpertFfn, Dim::kModel, bias)),
          In(Place::kExpert, Linear(Role::kExpertUp, "", Dim::kExpertFfn, Dim::kModel, bias)),
          In(Place::kExpert, Linear(Role::kExpertDown, "", Dim::kModel, Dim::kExpertFfn, bias))};
}
inline constexpr std::array kAttentionNorm{LayerNorm(Role::kAttentionNorm, "input_layernorm")};
inline constexpr std::array kFfnNorm{LayerNorm(Role::kFfnNorm, "post_attention_layernorm")};
// GGUF files of some types call it after its place in the publisher's code.
inline constexpr std::array kFfnNormAsPublished{
    LayerNorm(Role::kFfnNorm, "post_attention_layernorm", "post_attention_norm")};

// Norms around attention and FFN, before and after.
inline constexpr std::array kSandwichPostAttention{LayerNorm(Role::kPostAttentionNorm, "post_attention_layernorm"),
                                                   LayerNorm(Role::kFfnNorm, "pre_feedforward_layernorm")};
inline constexpr std::array kSandwichPostFfn{LayerNorm(Role::kPostFfnNorm, "post_feedforward_layernorm")};

// Tables are put together from shared and own parts.
template <typename T, size_t... kSizes>
constexpr std::array<T, (kSizes + ...)> Join(const std::array<T, kSizes>&... parts) {
  std::array<T, (kSizes + ...)> joined{};
  size_t next = 0;
  const auto append = [&](const auto& part) {
    for (const T& row : part) joined[next++] = row;
  };
  (append(parts), ...);
  return joined;
}

// The whole of a plain pre-norm decoder.
constexpr auto PlainTensors(Bias qkv, Bias out, Bias ffn) {
  return Join(kEmbed, kAttentionNorm, Projections(qkv), AttentionOut(out), kFfnNorm, GatedFfn(ffn), kEnds);
}

// ---- config.json

constexpr ConfigKey Required(std::string_view key, HParamField field, double gguf_fallback = 0) {
  return {key, field, ConfigRule::kRequired, gguf_fallback};
}
constexpr ConfigKey Optional(std::string_view key, HParamField field, double fallback = 0) {
  return {key, field, ConfigRule::kDefault, fallback};
}
// No key: what the type's definition fixes, or what stands in where an optional key before it is absent.
constexpr ConfigKey Fixed(HParamField field, double value) { return {"", field, ConfigRule::kDefault, value}; }

// What every decoder's config.json says.
inline constexpr std::array kDecoderConfig{
    Required("vocab_size", HParamField::kVocabSize),
    Required("hidden_size", HParamField::kModelDim),
    Required("num_hidden_layers", HParamField::kLayers),
    Required("num_attention_heads", HParamField::kHeads),
    Optional("num_key_value_heads", HParamField::kKvHeads),  // absent: as many as heads
    Optional("head_dim", HParamField::kHeadDim),             // absent: hidden_size / heads
    Required("intermediate_size", HParamField::kFfnDim),
    Required("rms_norm_eps", HParamField::kRmsEpsilon),
    Optional("tie_word_embeddings", HParamField::kTied),
    Optional("max_position_embeddings", HParamField::kMaxPositions),
    Optional("rope_traditional", HParamField::kRopeInterleaved),
};

// Sliding windows as Qwen models say them.
inline constexpr std::array kWindowConfig{
    Optional("use_sliding_window", HParamField::kUseSlidingWindow),
    Optional("sliding_window", HParamField::kSlidingWindow),
    Optional("max_window_layers", HParamField::kMaxWindowLayers, 28),
};

// Old exports carry RoPE's frequencies as a buffer.
inline constexpr std::string_view kIgnoredBuffers[] = {"self_attn.rotary_emb.inv_freq"};
// And a multimodal model's other towers.
inline constexpr std::string_view kIgnoredTowers[] = {"self_attn.rotary_emb", "vision_tower", "multi_modal_projector",
                                                      "audio_tower",          "embed_audio",  "embed_vision",
                                                      "vision_embedder"};

}  // namespace nunspark::arch

#endif  // NUNSPARK_MODELS_ARCH_ARCH_H_
