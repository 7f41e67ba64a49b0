#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, kWindowConfig,
                              std::array{
                                  Required("rope_theta", HParamField::kRopeTheta),
                                  Required("max_position_embeddings", HParamField::kMaxPositions),
                                  Optional("attention_bias", HParamField::kAttentionBias),
                                  Required("num_experts", HParamField::kExperts),
                                  Required("num_experts_per_tok", HParamField::kExpertsPerToken),
                                  Optional("decoder_sparse_step", HParamField::kSparseStep, 1),
                                  Required("moe_intermediate_size", HParamField::kExpertFfnDim),
                                  Required("norm_topk_prob", HParamField::kNormTopK, 1),
                              });

constexpr auto kTensors = Join(
    kEmbed, kAttentionNorm, Projections(Bias::kAttentionFlag), HeadNorms(), AttentionOut(Bias::kAttentionFlag),
    kFfnNorm, GatedFfn(), std::array{In(Place::kMoeFfn, Linear(Role::kRouter, "mlp.gate", Dim::kExperts, Dim::kModel))},
    Experts(), kEnds);
constexpr ExpertNames kExperts[] = {{.stacked = "mlp.switch_mlp", .unstacked = "mlp.experts"}};
constexpr std::string_view kGguf[] = {"qwen3moe"};

}  // namespace

NUNSPARK_ARCH(qwen3_moe){
    .name = "qwen3_moe",
    .gguf = kGguf,
    .authors_code = "transformers, models/qwen3_moe/modeling_qwen3_moe.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = kExperts,
    .ignored = kIgnoredBuffers,
    .block = {.qk_norm = QkNorm::kPerHead,
              .ffn = Ffn::kMoe,
              .router = Router::kSoftmaxThenTopK,
              .window = Window::kByFlagAll},
};
static_assert(Valid(kArch_qwen3_moe));

}  // namespace nunspark
