#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("sliding_window", HParamField::kSlidingWindow, 4096),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kNever, Bias::kNever, Bias::kNever);

}  // namespace

NUNSPARK_ARCH(mistral){
    .name = "mistral",
    // GGUF files of this type say "llama".
    .authors_code = "transformers, models/mistral/modeling_mistral.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.window = Window::kAll},
};
static_assert(Valid(kArch_mistral));

}  // namespace nunspark
