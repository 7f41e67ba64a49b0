#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Required("rope_theta", HParamField::kRopeTheta),
                                                  Optional("partial_rotary_factor", HParamField::kPartialRotary, 0.5),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                              });

constexpr auto kTensors = Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), AttentionOut(),
                               std::array{LayerNorm(Role::kPostAttentionNorm, "post_self_attn_layernorm"),
                                          LayerNorm(Role::kFfnNorm, "post_attention_layernorm")},
                               kFusedFfn, std::array{LayerNorm(Role::kPostFfnNorm, "post_mlp_layernorm")}, kEnds);
constexpr std::string_view kGguf[] = {"glm4"};

}  // namespace

NUNSPARK_ARCH(glm4){
    .name = "glm4",
    .gguf = kGguf,
    .authors_code = "transformers, models/glm4/modeling_glm4.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.rope = RopeForm::kPairs, .rope_config = RopeConfig::kFlatPartial},
};
static_assert(Valid(kArch_glm4));

}  // namespace nunspark
