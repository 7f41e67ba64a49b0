#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kDecoderConfig, std::array{
                             Optional("rope_theta", HParamField::kRopeTheta, 10000),
                             Optional("partial_rotary_factor", HParamField::kPartialRotary, 1),
                             Optional("original_max_position_embeddings", HParamField::kOriginalPositions),
                             Optional("sliding_window", HParamField::kSlidingWindow),
                         });

constexpr std::array kFusedQkv{
    Linear(Role::kQuery, "self_attn.qkv_proj", Dim::kQueryOut, Dim::kModel, Bias::kNever, When::kAlways, "attn_qkv"),
    Linear(Role::kKey, "self_attn.qkv_proj", Dim::kKvOut, Dim::kModel, Bias::kNever, When::kAlways, "attn_qkv"),
    Linear(Role::kValue, "self_attn.qkv_proj", Dim::kKvOut, Dim::kModel, Bias::kNever, When::kAlways, "attn_qkv")};
constexpr auto kTensors = Join(kEmbed, kAttentionNorm, kFusedQkv, AttentionOut(), kFfnNorm, kFusedFfn, kEnds);
constexpr std::string_view kGguf[] = {"phi3"};

}  // namespace

NUNSPARK_ARCH(phi3){
    .name = "phi3",
    .gguf = kGguf,
    .authors_code = "transformers, models/phi3/modeling_phi3.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.rope_config = RopeConfig::kFlatPartial, .window = Window::kAll},
};
static_assert(Valid(kArch_phi3));

}  // namespace nunspark
