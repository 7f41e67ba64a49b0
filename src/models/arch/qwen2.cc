#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kDecoderConfig,
         std::array{
             ConfigKey{"head_dim", HParamField::kHeadDim, ConfigRule::kDefault},  // absent: hidden_size / heads
             ConfigKey{"rope_theta", HParamField::kRopeTheta, ConfigRule::kDefault, 1000000},
             ConfigKey{"max_position_embeddings", HParamField::kMaxPositions, ConfigRule::kDefault, 32768},
             ConfigKey{"use_sliding_window", HParamField::kUseSlidingWindow, ConfigRule::kDefault},
             ConfigKey{"sliding_window", HParamField::kSlidingWindow, ConfigRule::kDefault},
             ConfigKey{"max_window_layers", HParamField::kMaxWindowLayers, ConfigRule::kDefault, 28},
         });

constexpr TensorSpec kTensors[] = {
    kEmbed,
    LayerNorm(Role::kAttentionNorm, "input_layernorm"),
    Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, Bias::kAlways),
    Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, Bias::kAlways),
    Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel, Bias::kAlways),
    Linear(Role::kAttentionOut, "self_attn.o_proj", Dim::kModel, Dim::kQueryOut),
    LayerNorm(Role::kFfnNorm, "post_attention_layernorm"),
    DenseFfn(Role::kGate, "mlp.gate_proj", Dim::kFfn, Dim::kModel),
    DenseFfn(Role::kUp, "mlp.up_proj", Dim::kFfn, Dim::kModel),
    DenseFfn(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn),
    kFinalNorm,
    kHead,
};

}  // namespace

NUNSPARK_ARCH(qwen2){
    .name = "qwen2",
    .authors_code = "transformers, models/qwen2/modeling_qwen2.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = {},
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kNone,
              .rope = RopeForm::kHalves,
              .norm = Norm::kRms,
              .residual = Residual::kPreNorm,
              .ffn = Ffn::kDense,
              .activation = Activation::kSwiGlu,
              .window = Window::kByLayer},
};
static_assert(Valid(kArch_qwen2));

}  // namespace nunspark
