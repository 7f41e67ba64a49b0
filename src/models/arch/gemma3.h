// What gemma3 and its text part have in common.
#ifndef NUNSPARK_MODELS_ARCH_GEMMA3_H_
#define NUNSPARK_MODELS_ARCH_GEMMA3_H_

#include "models/arch/arch.h"

namespace nunspark::arch {

// Published configurations leave out what is as here (transformers, models/gemma3/configuration_gemma3.py).
inline constexpr std::array kGemma3Config{
    Optional("vocab_size", HParamField::kVocabSize, 262208),
    Optional("hidden_size", HParamField::kModelDim, 2304),
    Optional("num_hidden_layers", HParamField::kLayers, 26),
    Optional("num_attention_heads", HParamField::kHeads, 8),
    Optional("num_key_value_heads", HParamField::kKvHeads, 4),
    Optional("head_dim", HParamField::kHeadDim, 256),
    Optional("intermediate_size", HParamField::kFfnDim, 9216),
    Optional("rms_norm_eps", HParamField::kRmsEpsilon, 1e-6),
    Optional("max_position_embeddings", HParamField::kMaxPositions, 131072),
    Optional("rope_theta", HParamField::kRopeTheta, 1e6),
    Optional("rope_local_base_freq", HParamField::kRopeLocalTheta, 1e4),
    Optional("query_pre_attn_scalar", HParamField::kQueryScalar, 256),
    Optional("sliding_window", HParamField::kSlidingWindow, 4096),
    Optional("sliding_window_pattern", HParamField::kWindowPattern, 6),
    Optional("_sliding_window_pattern", HParamField::kWindowPattern, 6),
    Optional("attn_logit_softcapping", HParamField::kAttentionSoftcap),
    Optional("final_logit_softcapping", HParamField::kLogitSoftcap),
    Optional("attention_bias", HParamField::kAttentionBias),
    Optional("norm_plus_one", HParamField::kNormPlusOne, 1),
};

inline constexpr auto kGemma3Tensors =
    Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), HeadNorms(), AttentionOut(Bias::kAttentionFlag),
         kSandwichPostAttention, GatedFfn(), kSandwichPostFfn, kEnds);

inline constexpr BlockSpec kGemma3Block{.qk_norm = QkNorm::kPerHead,
                                        .rope_config = RopeConfig::kLocalGlobal,
                                        .activation = Activation::kGeGlu,
                                        .window = Window::kPattern,
                                        .embed_scale = EmbedScale::kSqrtModelDim};

}  // namespace nunspark::arch

#endif  // NUNSPARK_MODELS_ARCH_GEMMA3_H_
