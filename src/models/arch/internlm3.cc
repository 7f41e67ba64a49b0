#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Fixed(HParamField::kMaxPositions, 32768),
                                                  Optional("qkv_bias", HParamField::kAttentionBias),
                                                  Optional("bias", HParamField::kMlpBias),
                                              });

// qkv_bias also means a bias of the output projection.
constexpr auto kTensors = PlainTensors(Bias::kAttentionFlag, Bias::kAttentionFlag, Bias::kMlpFlag);
constexpr std::string_view kIgnored[] = {"attention.rope.inv_freq", "self_attn.rotary_emb.inv_freq"};

}  // namespace

NUNSPARK_ARCH(internlm3){
    .name = "internlm3",
    // GGUF files of this type say "llama".
    .authors_code = "mlx-lm, models/internlm3.py (the type has no code in transformers)",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnored,
};
static_assert(Valid(kArch_internlm3));

}  // namespace nunspark
