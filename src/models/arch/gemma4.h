// What gemma4, its text part and its drafter have in common.
#ifndef NUNSPARK_MODELS_ARCH_GEMMA4_H_
#define NUNSPARK_MODELS_ARCH_GEMMA4_H_

#include "models/arch/arch.h"

namespace nunspark::arch {

// Defaults: transformers, models/gemma4/configuration_gemma4.py.
inline constexpr std::array kGemma4Config{
    Optional("vocab_size", HParamField::kVocabSize, 262144),
    Optional("hidden_size", HParamField::kModelDim, 2304),
    Optional("num_hidden_layers", HParamField::kLayers, 30),
    Optional("num_attention_heads", HParamField::kHeads, 8),
    Optional("num_key_value_heads", HParamField::kKvHeads, 4),
    Optional("head_dim", HParamField::kHeadDim, 256),
    Optional("global_head_dim", HParamField::kGlobalHeadDim, 512),
    Optional("num_global_key_value_heads", HParamField::kGlobalKvHeads),
    Optional("intermediate_size", HParamField::kFfnDim, 9216),
    Optional("rms_norm_eps", HParamField::kRmsEpsilon, 1e-6),
    Optional("max_position_embeddings", HParamField::kMaxPositions, 131072),
    Optional("sliding_window", HParamField::kSlidingWindow, 512),
    Optional("sliding_window_pattern", HParamField::kWindowPattern, 6),
    Optional("final_logit_softcapping", HParamField::kLogitSoftcap),
    Optional("attention_k_eq_v", HParamField::kValueIsKey),
    Optional("num_kv_shared_layers", HParamField::kKvSharedLayers),
    Optional("use_double_wide_mlp", HParamField::kDoubleWideMlp),
    Optional("hidden_size_per_layer_input", HParamField::kPerLayerDim, 256),
    Optional("vocab_size_per_layer_input", HParamField::kPerLayerVocab, 262144),
    Optional("enable_moe_block", HParamField::kMoeEnabled),
    Optional("num_experts", HParamField::kExperts),
    Optional("top_k_experts", HParamField::kExpertsPerToken),
    Optional("num_experts_per_tok", HParamField::kExpertsPerToken),
    Optional("moe_intermediate_size", HParamField::kExpertFfnDim),
    Optional("rope_theta", HParamField::kRopeTheta, 1e6),
    Optional("rope_traditional", HParamField::kRopeInterleaved),
    Optional("tie_word_embeddings", HParamField::kTied, 1),
    Fixed(HParamField::kQueryScalar, 1),  // scores are not scaled: queries and keys are normed
};

inline constexpr auto kGemma4Tensors = Join(
    kEmbed,
    std::array{
        TensorSpec{Role::kPerLayerEmbed, Place::kModel, TensorKind::kLinear, "embed_tokens_per_layer",
                   Dim::kPerLayerVocab, Dim::kPerLayerAll, Bias::kNever, When::kPerLayerInput},
        TensorSpec{Role::kPerLayerModelProjection, Place::kModel, TensorKind::kLinear, "per_layer_model_projection",
                   Dim::kPerLayerAll, Dim::kModel, Bias::kNever, When::kPerLayerInput},
        TensorSpec{Role::kPerLayerProjectionNorm, Place::kModel, TensorKind::kVector, "per_layer_projection_norm",
                   Dim::kPerLayer, Dim::kPerLayer, Bias::kNever, When::kPerLayerInput}},
    kAttentionNorm,
    std::array{Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel),
               Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, Bias::kNever, When::kOwnsKv),
               Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel, Bias::kNever, When::kOwnsValue),
               HeadNorm(Role::kQueryNorm, "self_attn.q_norm"),
               HeadNorm(Role::kKeyNorm, "self_attn.k_norm", When::kOwnsKv)},
    AttentionOut(), kSandwichPostAttention, GatedFfn(Bias::kNever, Place::kLayer),
    std::array{
        In(Place::kMoeFfn, LayerNorm(Role::kPostDenseNorm, "post_feedforward_layernorm_1")),
        In(Place::kMoeFfn, LayerNorm(Role::kRouterScale, "router.scale")),
        In(Place::kMoeFfn, Linear(Role::kRouter, "router.proj", Dim::kExperts, Dim::kModel)),
        In(Place::kMoeFfn, Vector(Role::kPerExpertScale, "router.per_expert_scale", Dim::kExperts)),
        In(Place::kMoeFfn, LayerNorm(Role::kExpertNorm, "pre_feedforward_layernorm_2")),
        In(Place::kMoeFfn, LayerNorm(Role::kPostExpertNorm, "post_feedforward_layernorm_2")),
    },
    Experts(), kSandwichPostFfn,
    std::array{Linear(Role::kPerLayerGate, "per_layer_input_gate", Dim::kPerLayer, Dim::kModel, Bias::kNever,
                      When::kPerLayerInput),
               Linear(Role::kPerLayerProjection, "per_layer_projection", Dim::kModel, Dim::kPerLayer, Bias::kNever,
                      When::kPerLayerInput),
               Vector(Role::kPostPerLayerNorm, "post_per_layer_input_norm", Dim::kModel, When::kPerLayerInput),
               Vector(Role::kLayerScalar, "layer_scalar", Dim::kOne, When::kIfPresent)},
    kEnds);

inline constexpr ExpertNames kGemma4Experts[] = {
    {.stacked = "experts.switch_glu", .unstacked = "experts"},
    // As published: gate and up in one matrix.
    {.stacked = "experts", .unstacked = "experts", .gate = "gate_up_proj", .up = "gate_up_proj"}};

// Keys and values of layers that share them are in the files and unused.
inline constexpr std::string_view kGemma4Ignored[] = {
    "self_attn.rotary_emb", "input_max",   "input_min",   "output_max",   "output_min",
    "vision_tower",         "audio_tower", "embed_audio", "embed_vision", "multi_modal_projector",
    "vision_embedder",      ".attn_k",     ".attn_v",     "self_attn.k",  "self_attn.v_"};

inline constexpr BlockSpec kGemma4Block{.qk_norm = QkNorm::kPerHead,
                                        .value_norm = ValueNorm::kPerHead,
                                        .rope_config = RopeConfig::kByLayerType,
                                        .ffn = Ffn::kDenseAndMoe,
                                        .activation = Activation::kGeGlu,
                                        .router = Router::kTopKThenSoftmax,
                                        .window = Window::kPattern,
                                        .embed_scale = EmbedScale::kSqrtModelDim};

}  // namespace nunspark::arch

#endif  // NUNSPARK_MODELS_ARCH_GEMMA4_H_
