#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Fixed(HParamField::kMaxPositions, 32768),
                                              });

constexpr auto kTensors = PlainTensors(Bias::kAlways, Bias::kNever, Bias::kNever);
constexpr std::string_view kIgnored[] = {"self_attn.rotary_emb.inv_freq", "mtp_layers."};

}  // namespace

NUNSPARK_ARCH(mimo){
    .name = "mimo",
    .authors_code = "mlx-lm, models/mimo.py (the type has no code in transformers)",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnored,
};
static_assert(Valid(kArch_mimo));

}  // namespace nunspark
