#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 10000),
                                                  Optional("attention_bias", HParamField::kAttentionBias),
                                                  Optional("use_qk_norm", HParamField::kQkNorm, 1),
                                              });

constexpr auto kTensors = Join(kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag),
                               HeadNorms("self_attn.query_layernorm", "self_attn.key_layernorm", When::kQkNorm),
                               AttentionOut(Bias::kAttentionFlag), kFfnNorm, GatedFfn(), kEnds);
constexpr std::string_view kGguf[] = {"hunyuan-dense"};

}  // namespace

NUNSPARK_ARCH(hunyuan_v1_dense){
    .name = "hunyuan_v1_dense",
    .gguf = kGguf,
    .authors_code = "transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHeadAfterRope, .rope_config = RopeConfig::kAlpha},
};
static_assert(Valid(kArch_hunyuan_v1_dense));

}  // namespace nunspark
