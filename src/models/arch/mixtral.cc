#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 1000000),
                                                  Optional("sliding_window", HParamField::kSlidingWindow),
                                                  Required("num_local_experts", HParamField::kExperts),
                                                  Required("num_experts_per_tok", HParamField::kExpertsPerToken),
                                                  // Experts are as wide as intermediate_size says.
                                                  Required("intermediate_size", HParamField::kExpertFfnDim),
                                                  Fixed(HParamField::kNormTopK, 1),
                                              });

constexpr auto kTensors =
    Join(kEmbed, kAttentionNorm, Projections(), AttentionOut(), kFfnNorm,
         std::array{In(Place::kMoeFfn, Linear(Role::kRouter, "block_sparse_moe.gate", Dim::kExperts, Dim::kModel))},
         Experts(), kEnds);
constexpr ExpertNames kExperts[] = {
    // MLX stacks them under its own names; as published, w1 is the gate and w3 the other input.
    {.stacked = "block_sparse_moe.switch_mlp", .unstacked = "block_sparse_moe.experts"},
    {.stacked = "", .unstacked = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2"}};

}  // namespace

NUNSPARK_ARCH(mixtral){
    .name = "mixtral",
    // GGUF files of this type say "llama".
    .authors_code = "transformers, models/mixtral/modeling_mixtral.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = kExperts,
    .ignored = kIgnoredBuffers,
    .block = {.ffn = Ffn::kMoe, .router = Router::kSoftmaxThenTopK, .window = Window::kAll},
};
static_assert(Valid(kArch_mixtral));

}  // namespace nunspark
