#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Required("rope_theta", HParamField::kRopeTheta),
                                                  Optional("use_bias", HParamField::kAttentionBias),
                                                  Optional("use_bias", HParamField::kMlpBias),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kAttentionFlag, Bias::kAttentionFlag, Bias::kMlpFlag);
constexpr std::string_view kGguf[] = {"ernie4_5"};

}  // namespace

NUNSPARK_ARCH(ernie4_5){
    .name = "ernie4_5",
    .gguf = kGguf,
    .authors_code = "transformers, models/ernie4_5/modeling_ernie4_5.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.rope = RopeForm::kPairs},
};
static_assert(Valid(kArch_ernie4_5));

}  // namespace nunspark
