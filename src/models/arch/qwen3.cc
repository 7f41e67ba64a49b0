#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kDecoderConfig, std::array{
                             ConfigKey{"head_dim", HParamField::kHeadDim, ConfigRule::kDefault, 128},
                             ConfigKey{"rope_theta", HParamField::kRopeTheta, ConfigRule::kRequired},
                             ConfigKey{"max_position_embeddings", HParamField::kMaxPositions, ConfigRule::kRequired},
                             ConfigKey{"attention_bias", HParamField::kAttentionBias, ConfigRule::kDefault},
                             ConfigKey{"use_sliding_window", HParamField::kUseSlidingWindow, ConfigRule::kDefault},
                             ConfigKey{"sliding_window", HParamField::kSlidingWindow, ConfigRule::kDefault},
                             ConfigKey{"max_window_layers", HParamField::kMaxWindowLayers, ConfigRule::kDefault, 28},
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
    kFinalNorm,
    kHead,
};

}  // namespace

NUNSPARK_ARCH(qwen3){
    .name = "qwen3",
    .authors_code = "transformers, models/qwen3/modeling_qwen3.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = {},
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHead,
              .rope = RopeForm::kHalves,
              .norm = Norm::kRms,
              .residual = Residual::kPreNorm,
              .ffn = Ffn::kDense,
              .activation = Activation::kSwiGlu,
              .window = Window::kByLayer},
};
static_assert(Valid(kArch_qwen3));

}  // namespace nunspark
