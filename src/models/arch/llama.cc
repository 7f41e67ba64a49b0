#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                                  Optional("sliding_window", HParamField::kSlidingWindow),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kAttentionFlag, Bias::kAttentionFlag, Bias::kMlpFlag);
constexpr std::string_view kAliases[] = {"iquestcoder"};
constexpr std::string_view kGguf[] = {"llama"};

}  // namespace

NUNSPARK_ARCH(llama){
    .name = "llama",
    .aliases = kAliases,
    .gguf = kGguf,
    .authors_code = "transformers, models/llama/modeling_llama.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    // Windows by layer type are an extension of mlx-lm.
    .block = {.window = Window::kByType},
};
static_assert(Valid(kArch_llama));

}  // namespace nunspark
