#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Required("rope_theta", HParamField::kRopeTheta),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kAttentionFlag, Bias::kNever, Bias::kMlpFlag);

}  // namespace

NUNSPARK_ARCH(helium){
    .name = "helium",
    .authors_code = "transformers, models/helium/modeling_helium.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.rope = RopeForm::kPairs},
};
static_assert(Valid(kArch_helium));

}  // namespace nunspark
