#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, kWindowConfig,
                              std::array{
                                  Required("rope_theta", HParamField::kRopeTheta),
                                  Fixed(HParamField::kHeadDim, 128),
                                  Optional("attention_bias", HParamField::kAttentionBias),
                              });

constexpr auto kTensors = Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), HeadNorms(),
                               AttentionOut(Bias::kAttentionFlag), kFfnNorm, GatedFfn(), kEnds);
constexpr std::string_view kGguf[] = {"qwen3"};

}  // namespace

NUNSPARK_ARCH(qwen3){
    .name = "qwen3",
    .gguf = kGguf,
    .authors_code = "transformers, models/qwen3/modeling_qwen3.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHead, .window = Window::kByFlag},
};
static_assert(Valid(kArch_qwen3));

}  // namespace nunspark
