#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Required("rope_theta", HParamField::kRopeTheta),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("mlp_bias", HParamField::kMlpBias),
                                              });

constexpr auto kTensors = Join(
    kEmbed, std::array{LayerNorm(Role::kAttentionNorm, "attention_layernorm")}, Projections(Bias::kAttentionFlag),
    HeadNorms(), AttentionOut(Bias::kAttentionFlag),
    std::array{LayerNorm(Role::kFfnNorm, "feedforward_layernorm"),
               In(Place::kDenseFfn, Linear(Role::kUp, "mlp.up_proj", Dim::kFfn, Dim::kModel, Bias::kMlpFlag)),
               In(Place::kDenseFfn, Vector(Role::kXieluAlphaP, "mlp.act_fn.alpha_p", Dim::kOne, When::kXieluTensors)),
               In(Place::kDenseFfn, Vector(Role::kXieluAlphaN, "mlp.act_fn.alpha_n", Dim::kOne, When::kXieluTensors)),
               In(Place::kDenseFfn, Vector(Role::kXieluBeta, "mlp.act_fn.beta", Dim::kOne, When::kIfPresent)),
               In(Place::kDenseFfn, Vector(Role::kXieluEpsilon, "mlp.act_fn.eps", Dim::kOne, When::kIfPresent)),
               In(Place::kDenseFfn, Linear(Role::kDown, "mlp.down_proj", Dim::kModel, Dim::kFfn, Bias::kMlpFlag))},
    kEnds);

constexpr std::string_view kGguf[] = {"apertus"};

}  // namespace

NUNSPARK_ARCH(apertus){
    .name = "apertus",
    .gguf = kGguf,
    .authors_code = "transformers, models/apertus/modeling_apertus.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHead, .activation = Activation::kXielu},
};
static_assert(Valid(kArch_apertus));

}  // namespace nunspark
