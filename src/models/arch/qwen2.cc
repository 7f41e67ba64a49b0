#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, kWindowConfig,
                              std::array{
                                  Optional("rope_theta", HParamField::kRopeTheta, 1000000),
                                  Fixed(HParamField::kMaxPositions, 32768),
                              });

constexpr auto kTensors = PlainTensors(Bias::kAlways, Bias::kNever, Bias::kNever);
constexpr std::string_view kGguf[] = {"qwen2"};

}  // namespace

NUNSPARK_ARCH(qwen2){
    .name = "qwen2",
    .gguf = kGguf,
    .authors_code = "transformers, models/qwen2/modeling_qwen2.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.window = Window::kByFlag},
};
static_assert(Valid(kArch_qwen2));

}  // namespace nunspark
