#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr ConfigKey kConfig[] = {
    {"vocab_size", HParamField::kVocabSize, ConfigRule::kRequired},
    {"hidden_size", HParamField::kModelDim, ConfigRule::kRequired},
    {"num_hidden_layers", HParamField::kLayers, ConfigRule::kRequired},
    {"num_attention_heads", HParamField::kHeads, ConfigRule::kRequired},
    {"num_key_value_heads", HParamField::kKvHeads, ConfigRule::kDefault},
    {"head_dim", HParamField::kHeadDim, ConfigRule::kDefault},   // absent: hidden_size / heads
    {"intermediate_size", HParamField::kFfnDim, ConfigRule::kRequired},
    {"rms_norm_eps", HParamField::kRmsEpsilon, ConfigRule::kRequired},
    {"rope_theta", HParamField::kRopeTheta, ConfigRule::kRequired},
    {"max_position_embeddings", HParamField::kMaxPositions, ConfigRule::kRequired},
    {"tie_word_embeddings", HParamField::kTied, ConfigRule::kDefault},
    {"attention_bias", HParamField::kAttentionBias, ConfigRule::kDefault},
    {"use_sliding_window", HParamField::kUseSlidingWindow, ConfigRule::kDefault},
    {"sliding_window", HParamField::kSlidingWindow, ConfigRule::kDefault},
    {"num_experts", HParamField::kExperts, ConfigRule::kRequired},
    {"num_experts_per_tok", HParamField::kExpertsPerToken, ConfigRule::kRequired},
    {"moe_intermediate_size", HParamField::kExpertFfnDim, ConfigRule::kRequired},
    {"norm_topk_prob", HParamField::kNormTopK, ConfigRule::kRequired},
    {"decoder_sparse_step", HParamField::kSparseStep, ConfigRule::kDefault, 1},
};

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
    .gguf_name = "qwen3moe",
    .authors_code = "transformers, models/qwen3_moe/modeling_qwen3_moe.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = {.stacked = "mlp.switch_mlp", .unstacked = "mlp.experts"},
    .ignored = kIgnoredBuffers,
    .block = {.attention = Attention::kGqa, .qk_norm = QkNorm::kPerHead, .rope = RopeForm::kHalves, .norm = Norm::kRms,
              .residual = Residual::kPreNorm, .ffn = Ffn::kMoe, .activation = Activation::kSwiGlu,
              .router = Router::kSoftmaxThenTopK, .window = Window::kEveryLayer},
};
static_assert(Valid(kArch_qwen3_moe));

}  // namespace nunspark
