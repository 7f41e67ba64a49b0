#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Required("rope_theta", HParamField::kRopeTheta),
                                                  Required("max_position_embeddings", HParamField::kMaxPositions),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kAttentionFlag, Bias::kAttentionFlag, Bias::kMlpFlag);

}  // namespace

NUNSPARK_ARCH(telechat3){
    .name = "telechat3",
    .authors_code = "mlx-lm, models/telechat3.py (the type has no code in transformers)",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
};
static_assert(Valid(kArch_telechat3));

}  // namespace nunspark
