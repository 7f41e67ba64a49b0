#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("partial_rotary_factor", HParamField::kPartialRotary, 0.5),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                              });

constexpr auto kTensors =
    Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), AttentionOut(), kFfnNorm, kFusedFfn, kEnds);
constexpr std::string_view kGguf[] = {"chatglm"};

}  // namespace

NUNSPARK_ARCH(glm){
    .name = "glm",
    .gguf = kGguf,
    .authors_code = "transformers, models/glm/modeling_glm.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.rope = RopeForm::kPairs, .rope_config = RopeConfig::kFlatPartial},
};
static_assert(Valid(kArch_glm));

}  // namespace nunspark
