#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 1600000),
                                                  Optional("rope_interleave", HParamField::kRopeInterleaved),
                                                  Optional("kv_lora_rank", HParamField::kKvRank, 512),
                                                  Optional("q_lora_rank", HParamField::kQueryRank),
                                                  Optional("qk_rope_head_dim", HParamField::kQkRopeDim, 64),
                                                  Optional("qk_nope_head_dim", HParamField::kQkNopeDim, 128),
                                                  Optional("v_head_dim", HParamField::kValueDim, 128),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                              });

constexpr std::array kLatent{
    Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, Bias::kNever, When::kNoQueryRank),
    Linear(Role::kQueryA, "self_attn.q_a_proj", Dim::kQueryRank, Dim::kModel, Bias::kAttentionFlag, When::kQueryRank),
    Vector(Role::kQueryANorm, "self_attn.q_a_layernorm", Dim::kQueryRank, When::kQueryRank),
    Linear(Role::kQueryB, "self_attn.q_b_proj", Dim::kQueryOut, Dim::kQueryRank, Bias::kNever, When::kQueryRank),
    Linear(Role::kKvA, "self_attn.kv_a_proj_with_mqa", Dim::kKvRankRope, Dim::kModel, Bias::kAttentionFlag),
    Vector(Role::kKvANorm, "self_attn.kv_a_layernorm", Dim::kKvRank),
    Linear(Role::kKvB, "self_attn.kv_b_proj", Dim::kKvExpanded, Dim::kKvRank, Bias::kNever, When::kJointKvB),
    In(Place::kHeads,
       Linear(Role::kKeyB, "self_attn.k_b_proj", Dim::kKvRank, Dim::kNope, Bias::kNever, When::kSplitKvB)),
    In(Place::kHeads,
       Linear(Role::kValueB, "self_attn.v_b_proj", Dim::kValueDim, Dim::kKvRank, Bias::kNever, When::kSplitKvB)),
};
constexpr auto kTensors = Join(kEmbed, kAttentionNorm, kLatent, AttentionOut(Bias::kAttentionFlag), kFfnNorm,
                               GatedFfn(Bias::kMlpFlag), kEnds);
constexpr std::string_view kGguf[] = {"deepseek2"};  // without experts
constexpr std::string_view kAliases[] = {"youtu"};

}  // namespace

NUNSPARK_ARCH(youtu_llm){
    .name = "youtu_llm",
    .aliases = kAliases,
    .gguf = kGguf,
    .authors_code = "transformers, models/youtu/modeling_youtu.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.attention = Attention::kMla, .rope = RopeForm::kPairs},
};
static_assert(Valid(kArch_youtu_llm));

}  // namespace nunspark
