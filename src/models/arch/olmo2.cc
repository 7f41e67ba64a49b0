#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                              });

// Norms stand behind attention and FFN, none before.
constexpr auto kTensors = Join(kEmbed, Projections(Bias::kAttentionFlag),
                               std::array{Vector(Role::kQueryNorm, "self_attn.q_norm", Dim::kQueryOut),
                                          Vector(Role::kKeyNorm, "self_attn.k_norm", Dim::kKvOut)},
                               AttentionOut(Bias::kAttentionFlag),
                               std::array{LayerNorm(Role::kPostAttentionNorm, "post_attention_layernorm")}, GatedFfn(),
                               kSandwichPostFfn, kEnds);
constexpr std::string_view kGguf[] = {"olmo2"};

}  // namespace

NUNSPARK_ARCH(olmo2){
    .name = "olmo2",
    .gguf = kGguf,
    .authors_code = "transformers, models/olmo2/modeling_olmo2.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kWholeRow},
};
static_assert(Valid(kArch_olmo2));

}  // namespace nunspark
