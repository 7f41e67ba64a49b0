#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig = Join(kDecoderConfig, std::array{
                                                  Optional("rope_theta", HParamField::kRopeTheta, 150000),
                                                  Optional("sliding_window", HParamField::kSlidingWindow, 128),
                                                  Required("num_local_experts", HParamField::kExperts),
                                                  Required("num_experts_per_tok", HParamField::kExpertsPerToken),
                                                  // Experts are as wide as intermediate_size says.
                                                  Required("intermediate_size", HParamField::kExpertFfnDim),
                                              });

constexpr auto kTensors = Join(
    kEmbed, kAttentionNorm, Projections(Bias::kAlways),
    std::array{Vector(Role::kSinks, "self_attn.sinks", Dim::kHeads)}, AttentionOut(Bias::kAlways), kFfnNormAsPublished,
    std::array{In(Place::kMoeFfn, Linear(Role::kRouter, "mlp.router", Dim::kExperts, Dim::kModel, Bias::kAlways))},
    Experts(Bias::kAlways), kEnds);
constexpr ExpertNames kExperts[] = {{.stacked = "mlp.experts", .unstacked = "mlp.experts"},
                                    // As published: rows of gate and up alternate; floats are [in, out].
                                    {.stacked = "mlp.experts",
                                     .unstacked = "mlp.experts",
                                     .gate = "gate_up_proj",
                                     .up = "gate_up_proj",
                                     .fused = FusedRows::kInterleaved,
                                     .bare_order = MatrixOrder::kColumnMajor}};
constexpr std::string_view kGguf[] = {"gpt-oss"};

}  // namespace

NUNSPARK_ARCH(gpt_oss){
    .name = "gpt_oss",
    .gguf = kGguf,
    .authors_code = "transformers, models/gpt_oss/modeling_gpt_oss.py",
    .config = kConfig,
    .tensors = kTensors,
    .experts = kExperts,
    .ignored = kIgnoredBuffers,
    .block = {.ffn = Ffn::kMoe,
              .activation = Activation::kSwiGluClipped,
              .router = Router::kTopKThenSoftmax,
              .window = Window::kAlternating,
              .quantised_kv = false},
};
static_assert(Valid(kArch_gpt_oss));

}  // namespace nunspark
