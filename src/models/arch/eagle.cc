#include "models/arch/arch.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

// The fields and defaults of the original Nunspark's EAGLE drafters.
constexpr std::array kConfig{
    Optional("vocab_size", HParamField::kVocabSize, 320),
    Optional("hidden_size", HParamField::kModelDim, 2560),
    Optional("hidden_size", HParamField::kBackboneDim, 2560),  // as wide as the target
    Optional("num_hidden_layers", HParamField::kLayers, 2),
    Optional("num_attention_heads", HParamField::kHeads, 8),
    Optional("num_key_value_heads", HParamField::kKvHeads, 4),
    Optional("head_dim", HParamField::kHeadDim, 256),
    Optional("intermediate_size", HParamField::kFfnDim, 4096),
    Optional("rms_norm_eps", HParamField::kRmsEpsilon, 1e-6),
    Optional("rope_theta", HParamField::kRopeTheta, 10000),
    Optional("max_position_embeddings", HParamField::kMaxPositions, 512),
    Optional("tie_word_embeddings", HParamField::kTied, 1),
};

// Every step is one position without history. Queries and keys decide nothing then.
constexpr auto kTensors = Join(
    std::array{TensorSpec{Role::kPreProjection, Place::kModel, TensorKind::kLinear, "input_proj", Dim::kModel,
                          Dim::kTwoBackbones}},
    kEmbed, kAttentionNorm,
    std::array{Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel, Bias::kNever, When::kCheckedOnly),
               Linear(Role::kKey, "self_attn.k_proj", Dim::kKvOut, Dim::kModel, Bias::kNever, When::kCheckedOnly),
               Linear(Role::kValue, "self_attn.v_proj", Dim::kKvOut, Dim::kModel)},
    AttentionOut(), kFfnNorm, GatedFfn(),
    std::array{TensorSpec{Role::kFinalNorm, Place::kModel, TensorKind::kVector, "norm", Dim::kModel, Dim::kModel},
               TensorSpec{Role::kPostProjection, Place::kModel, TensorKind::kLinear, "output_proj", Dim::kBackbone,
                          Dim::kModel}});

}  // namespace

NUNSPARK_ARCH(eagle){
    .name = "eagle",
    .authors_code = "arXiv:2401.15077, in the form of the original Nunspark's --eagle-drafter",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredBuffers,
    .block = {.attention = Attention::kSingleKey},
};
static_assert(Valid(kArch_eagle));

}  // namespace nunspark
