#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("attention_out_bias", HParamField::kAttentionOutBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                              });

constexpr auto kTensors =
    Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), AttentionOut(Bias::kAttentionOutFlag),
         kFfnNormAsPublished, GatedFfn(Bias::kMlpFlag), kEnds);
constexpr std::string_view kGguf[] = {"seed_oss"};

}  // namespace

NUNSPARK_ARCH(seed_oss){
    .name = "seed_oss",
    .gguf = kGguf,
    .authors_code = "transformers, models/seed_oss/modeling_seed_oss.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
};
static_assert(Valid(kArch_seed_oss));

}  // namespace nunspark
