#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kDecoderConfig,
         std::array{
             ConfigKey{"head_dim", HParamField::kHeadDim, ConfigRule::kDefault},  // absent: hidden_size / heads
             ConfigKey{"rope_theta", HParamField::kRopeTheta, ConfigRule::kDefault, 10000},
             ConfigKey{"max_position_embeddings", HParamField::kMaxPositions, ConfigRule::kDefault},
             ConfigKey{"attention_bias", HParamField::kAttentionBias, ConfigRule::kDefault},
             ConfigKey{"mlp_bias", HParamField::kMlpBias, ConfigRule::kDefault},
         });

constexpr TensorSpec kTensors[] = {
    kEmbed,
    LayerNorm(Role::kAttentionNorm, "input_layernorm"),
    Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, Bias::kAttentionFlag),
    Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, Bias::kAttentionFlag),
    Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel, Bias::kAttentionFlag),
    Linear(Role::kAttentionOut, "self_attn.o_proj", Dim::kModel, Dim::kQueryOut, Bias::kAttentionFlag),
    LayerNorm(Role::kFfnNorm, "post_attention_layernorm"),
    DenseFfn(Role::kGate, "mlp.gate_proj", Dim::kFfn, Dim::kModel, Bias::kMlpFlag),
    DenseFfn(Role::kUp, "mlp.up_proj", Dim::kFfn, Dim::kModel, Bias::kMlpFlag),
    DenseFfn(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn, Bias::kMlpFlag),
    kFinalNorm,
    kHead,
};

}  // namespace

NUNSPARK_ARCH(llama){
    .name = "llama",
    .authors_code = "transformers, models/llama/modeling_llama.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = {},
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kNone,
              .rope = RopeForm::kHalves,
              .norm = Norm::kRms,
              .residual = Residual::kPreNorm,
              .ffn = Ffn::kDense,
              .activation = Activation::kSwiGlu},
};
static_assert(Valid(kArch_llama));

}  // namespace nunspark
