#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kDecoderConfig,
         std::array{
             ConfigKey{"head_dim", HParamField::kHeadDim, ConfigRule::kDefault},  // absent: hidden_size / heads
             ConfigKey{"rope_theta", HParamField::kRopeTheta, ConfigRule::kRequired},
             ConfigKey{"max_position_embeddings", HParamField::kMaxPositions, ConfigRule::kRequired},
             ConfigKey{"attention_bias", HParamField::kAttentionBias, ConfigRule::kDefault},
             ConfigKey{"use_sliding_window", HParamField::kUseSlidingWindow, ConfigRule::kDefault},
             ConfigKey{"sliding_window", HParamField::kSlidingWindow, ConfigRule::kDefault},
             ConfigKey{"num_experts", HParamField::kExperts, ConfigRule::kRequired},
             ConfigKey{"num_experts_per_tok", HParamField::kExpertsPerToken, ConfigRule::kRequired},
             ConfigKey{"moe_intermediate_size", HParamField::kExpertFfnDim, ConfigRule::kRequired},
             ConfigKey{"norm_topk_prob", HParamField::kNormTopK, ConfigRule::kRequired},
             ConfigKey{"decoder_sparse_step", HParamField::kSparseStep, ConfigRule::kDefault, 1},
         });

constexpr TensorSpec kTensors[] = {
    kEmbed,
    LayerNorm(Role::kAttentionNorm, "input_layernorm"),
    Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, Bias::kAttentionFlag),
    Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, Bias::kAttentionFlag),
    Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel, Bias::kAttentionFlag),
    HeadNorm(Role::kQueryNorm, "self_attn.q_norm"),
    HeadNorm(Role::kKeyNorm, "self_attn.k_norm"),
    Linear(Role::kAttentionOut, "self_attn.o_proj", Dim::kModel, Dim::kQueryOut, Bias::kAttentionFlag),
    LayerNorm(Role::kFfnNorm, "post_attention_layernorm"),
    DenseFfn(Role::kGate, "mlp.gate_proj", Dim::kFfn, Dim::kModel),
    DenseFfn(Role::kUp, "mlp.up_proj", Dim::kFfn, Dim::kModel),
    DenseFfn(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn),
    {Role::kRouter, Place::kMoeFfn, TensorKind::kLinear, "mlp.gate", Dim::kExperts, Dim::kModel},
    {Role::kExpertGate, Place::kExpert, TensorKind::kLinear, "gate_proj", Dim::kExpertFfn, Dim::kModel},
    {Role::kExpertUp, Place::kExpert, TensorKind::kLinear, "up_proj", Dim::kExpertFfn, Dim::kModel},
    {Role::kExpertDown, Place::kExpert, TensorKind::kLinear, "down_proj", Dim::kModel, Dim::kExpertFfn},
    kFinalNorm,
    kHead,
};

}  // namespace

NUNSPARK_ARCH(qwen3_moe){
    .name = "qwen3_moe",
    .authors_code = "transformers, models/qwen3_moe/modeling_qwen3_moe.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = {.stacked = "mlp.switch_mlp", .unstacked = "mlp.experts"},
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHead,
              .rope = RopeForm::kHalves,
              .norm = Norm::kRms,
              .residual = Residual::kPreNorm,
              .ffn = Ffn::kMoe,
              .activation = Activation::kSwiGlu,
              .router = Router::kSoftmaxThenTopK,
              .window = Window::kEveryLayer},
};
static_assert(Valid(kArch_qwen3_moe));

}  // namespace nunspark
