#include "models/arch/gemma4.h"

namespace nunspark {
namespace {

using namespace arch;  // NOLINT: the folder's own vocabulary

constexpr auto kConfig =
    Join(kGemma4Config, std::array{
                            Required("backbone_hidden_size", HParamField::kBackboneDim),
                            Optional("use_ordered_embeddings", HParamField::kOrderedEmbeddings),
                            Optional("num_centroids", HParamField::kCentroids, 2048),
                            Optional("centroid_intermediate_top_k", HParamField::kCentroidTopK, 32),
                        });

// Layers have queries only: keys and values are the target's.
constexpr auto kTensors =
    Join(std::array{TensorSpec{Role::kPreProjection, Place::kOutside, TensorKind::kLinear, "pre_projection",
                               Dim::kModel, Dim::kTwoBackbones}},
         kEmbed, kAttentionNorm,
         std::array{Linear(Role::kQuery, "self_attn.q_proj", Dim::kQueryOut, Dim::kModel),
                    HeadNorm(Role::kQueryNorm, "self_attn.q_norm")},
         AttentionOut(), kSandwichPostAttention, GatedFfn(), kSandwichPostFfn,
         std::array{
             Vector(Role::kLayerScalar, "layer_scalar", Dim::kOne, When::kIfPresent),
             TensorSpec{Role::kFinalNorm, Place::kModel, TensorKind::kVector, "norm", Dim::kModel, Dim::kModel},
             TensorSpec{Role::kPostProjection, Place::kOutside, TensorKind::kLinear, "post_projection", Dim::kBackbone,
                        Dim::kModel},
             TensorSpec{Role::kCentroids, Place::kOutside, TensorKind::kLinear, "masked_embedding.centroids",
                        Dim::kCentroids, Dim::kModel, Bias::kNever, When::kOrderedEmbedding},
             TensorSpec{Role::kTokenOrdering, Place::kOutside, TensorKind::kIndices, "masked_embedding.token_ordering",
                        Dim::kVocab, Dim::kVocab, Bias::kNever, When::kOrderedEmbedding}});
constexpr std::string_view kAliases[] = {"gemma4_unified_assistant"};

}  // namespace

NUNSPARK_ARCH(gemma4_assistant){
    .name = "gemma4_assistant",
    .aliases = kAliases,
    .authors_code = "transformers, models/gemma4_assistant/modeling_gemma4_assistant.py",
    .config = kConfig,
    .tensors = kTensors,
    .ignored = kIgnoredTowers,
    .block = {.attention = Attention::kBorrowed,
              .qk_norm = QkNorm::kPerHead,
              .rope_config = RopeConfig::kByLayerType,
              .activation = Activation::kGeGlu,
              .window = Window::kPattern},
};
static_assert(Valid(kArch_gemma4_assistant));

}  // namespace nunspark
