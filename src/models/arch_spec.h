// ArchSpec: a model type as data. models/arch/<type>.cc holds one constexpr value each; the loader, the packer, the
// memory plan, the forward pass, `inspect` and docs/models.md all read it. Never `if (type == ...)` elsewhere.
#ifndef NUNSPARK_MODELS_ARCH_SPEC_H_
#define NUNSPARK_MODELS_ARCH_SPEC_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/hparams.h"
#include "quant/encoding.h"

namespace nunspark {

// What a tensor does in the block. One role per matrix or vector of a layer, an expert or the model's ends.
enum class Role : uint8_t {
  kEmbed,
  kFinalNorm,
  kHead,
  // Attention.
  kAttentionNorm,  // before attention
  kQuery,
  kKey,
  kValue,
  kAttentionOut,
  kQueryNorm,
  kKeyNorm,
  kSinks,              // [heads] one extra logit each
  kPostAttentionNorm,  // of attention's output, before it joins the residual stream
  // Latent attention (MLA).
  kQueryA,
  kQueryANorm,
  kQueryB,
  kKvA,
  kKvANorm,
  kKvB,     // [heads * (nope + value dim), kv_rank]: of each head its keys' rows, then its values'
  kKeyB,    // GGUF has these two in its place: of each head [kv_rank, nope], its keys' rows transposed,
  kValueB,  // and [value dim, kv_rank]
  // Feed-forward.
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kPostFfnNorm,
  kXieluAlphaP,
  kXieluAlphaN,
  kXieluBeta,
  kXieluEpsilon,
  // Experts.
  kRouter,
  kRouterScale,     // [model_dim] weight of the router's own norm
  kPerExpertScale,  // [experts] factor of each expert's weight
  kExpertNorm,      // of the experts' input where a dense FFN runs beside them
  kPostDenseNorm,   // of the dense FFN's output there
  kPostExpertNorm,  // of the experts' output there
  kExpertGate,
  kExpertUp,
  kExpertDown,
  // Per-layer inputs.
  kPerLayerEmbed,  // row table [per_layer_vocab, layers * per_layer_dim]
  kPerLayerModelProjection,
  kPerLayerProjectionNorm,
  kPerLayerGate,
  kPerLayerProjection,
  kPostPerLayerNorm,
  kLayerScalar,  // [1] factor of the layer's output
  // A drafter's own ends.
  kPreProjection,
  kPostProjection,
  kCentroids,
  kTokenOrdering,
};

// Named dimensions of a tensor's shape. Those of attention and FFN may differ from layer to layer.
enum class Dim : uint8_t {
  kOne,
  kVocab,
  kModel,
  kHeads,
  kQueryOut,      // heads * head_dim; with latent attention heads * (nope + rope)
  kKvOut,         // kv_heads * head_dim
  kAttentionOut,  // heads * value dim
  kHeadDim,
  kFfn,
  kExpertFfn,
  kExperts,
  kQueryRank,
  kKvRank,
  kKvRankRope,  // kv_lora_rank + qk_rope_head_dim
  kNope,
  kValueDim,
  kKvExpanded,   // heads * (nope + value dim)
  kPerLayer,     // hidden_size_per_layer_input
  kPerLayerAll,  // layers * hidden_size_per_layer_input
  kPerLayerVocab,
  kBackbone,
  kTwoBackbones,
  kCentroids,
};

// Where a tensor lives, which decides its piece and the prefix of its name.
enum class Place : uint8_t {
  kModel,     // once, behind the base model's prefix ("model."): embedding, final norm and what goes with them
  kOutside,   // once, beside the base model: the head
  kLayer,     // every layer: "model.layers.N."
  kDenseFfn,  // layers with a dense FFN
  kMoeFfn,    // layers with experts: the part that is not an expert (router)
  kHeads,     // every layer, with an axis of heads in front
  kExpert,    // one per expert of a MoE layer
};

// [rows, cols], maybe quantised; plain floats [cols]; or int64 [cols], kept and not computed with.
enum class TensorKind : uint8_t { kLinear, kVector, kIndices };

// When a linear has an additive bias. In GGUF, and packs made of it, its presence decides.
enum class Bias : uint8_t { kNever, kAlways, kAttentionFlag, kAttentionOutFlag, kMlpFlag };

// Which layers or models have the tensor at all.
enum class When : uint8_t {
  kAlways,
  kOwnsKv,            // layers that keep keys and values of their own
  kOwnsValue,         // of these, the ones whose value is not their key
  kQueryRank,         // latent attention with a low-rank query
  kNoQueryRank,       // and without
  kQkNorm,            // use_qk_norm
  kPerLayerInput,     // hidden_size_per_layer_input > 0
  kIfPresent,         // a default stands in where files lack it
  kXieluTensors,      // unless the configuration has xIELU's numbers
  kJointKvB,          // files with kv_b in one matrix
  kSplitKvB,          // and in two
  kOrderedEmbedding,  // use_ordered_embeddings
  kCheckedOnly        // in the files, with the right shape; the forward pass does without, so it is not loaded
};

struct TensorSpec {
  Role role;
  Place place;
  TensorKind kind;
  std::string_view name;  // module path behind the place's prefix: "self_attn.q_proj"; for experts see ExpertNames
  Dim rows;               // kVector: ignored
  Dim cols;
  Bias bias = Bias::kNever;
  When when = When::kAlways;
  std::string_view gguf = "";  // module path in GGUF behind "blk.N."; "" = the role's usual one (GgufName)
};
// Specs of one place with one name are one stored matrix, whose rows follow each other in the order of the specs.

enum class FusedRows : uint8_t { kHalves, kInterleaved };

// One way in which a layer's experts are named. A stacked tensor has the expert axis first.
struct ExpertNames {
  std::string_view stacked;    // "mlp.switch_mlp"; "" = no stacked form
  std::string_view unstacked;  // "mlp.experts" (then ".{E}."); packs use that of the naming they came from
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";  // the same as gate: one matrix with both
  std::string_view down = "down_proj";
  FusedRows fused = FusedRows::kHalves;
  MatrixOrder bare_order = MatrixOrder::kRowMajor;  // of floats stored without ".weight": [in, out] if column-major
};

enum class ConfigRule : uint8_t { kRequired, kDefault };

// config.json key -> HParams member. Several keys may set one member: the first that is there counts.
struct ConfigKey {
  std::string_view key;
  HParamField field;
  ConfigRule rule;
  double fallback = 0;  // of kDefault, and of kRequired in GGUF, whose metadata lack it; 0/1 for flags
};

enum class Attention : uint8_t {
  kGqa,
  kMla,       // keys and values from a low-rank latent, which is what the cache keeps
  kBorrowed,  // a drafter's: keys and values are another model's
  kSingleKey  // a drafter's: a row sees its own key alone, so it gets its own value
};
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,           // RMS norm of each query and key head before RoPE
  kPerHeadAfterRope,  // after it
  kWholeRow,          // of all heads as one vector, before RoPE
};
enum class ValueNorm : uint8_t { kNone, kPerHead };  // RMS norm without weight
enum class RopeForm : uint8_t {
  kHalves,  // pairs (i, i + d/2)
  kPairs,   // pairs (2i, 2i + 1)
};
enum class Ffn : uint8_t {
  kDense,
  kMoe,          // layers chosen by mlp_only_layers and decoder_sparse_step have experts in place of the dense FFN
  kDenseAndMoe,  // given enable_moe_block, experts beside the dense FFN
};
enum class Activation : uint8_t {
  kSwiGlu,         // silu(gate) * up
  kGeGlu,          // gelu(gate) * up, gelu by its tanh form
  kSwiGluClipped,  // gpt-oss: clipped, sigmoid(1.702 gate), up + 1
  kXielu,          // no gate: a learned function of up (arXiv:2411.13010)
};
enum class Router : uint8_t { kNone, kSoftmaxThenTopK, kTopKThenSoftmax };

// Which layers see only the sliding_window last positions.
enum class Window : uint8_t {
  kNone,
  kByFlag,       // with use_sliding_window: those that layer_types names, else those from max_window_layers on
  kByFlagAll,    // with use_sliding_window: all layers
  kByType,       // those that layer_types names; none without it
  kAll,          // those that layer_types names, else all
  kPattern,      // those that layer_types names, else all but every sliding_window_pattern-th
  kAlternating,  // those that layer_types names, else the 1st, 3rd, ...
};

// How config.json describes RoPE.
enum class RopeConfig : uint8_t {
  kFlat,         // rope_theta, rope_scaling
  kFlatPartial,  // and partial_rotary_factor
  kLocalGlobal,  // sliding layers: rope_local_base_freq, unscaled; or rope_parameters by layer type
  kByLayerType,  // rope_parameters by layer type
  kAlpha,        // rope_scaling.alpha raises the base
};

enum class EmbedScale : uint8_t { kNone, kSqrtModelDim };

struct BlockSpec {
  Attention attention = Attention::kGqa;
  QkNorm qk_norm = QkNorm::kNone;
  ValueNorm value_norm = ValueNorm::kNone;
  RopeForm rope = RopeForm::kHalves;  // config key rope_traditional overrides where the type reads it
  RopeConfig rope_config = RopeConfig::kFlat;
  Ffn ffn = Ffn::kDense;
  Activation activation = Activation::kSwiGlu;
  Router router = Router::kNone;
  Window window = Window::kNone;
  EmbedScale embed_scale = EmbedScale::kNone;
  bool quantised_kv = true;  // whether --kv-bits is taken; the original refuses it where there are sinks or an indexer
};

struct ArchSpec {
  std::string_view name;                           // model_type of config.json
  std::span<const std::string_view> aliases = {};  // other model_types of the same definition
  std::span<const std::string_view> gguf = {};     // general.architecture of GGUF files; empty = not known there
  std::string_view authors_code;                   // where the definition comes from; `inspect` shows it
  std::span<const ConfigKey> config;
  std::span<const TensorSpec> tensors;  // in the order of the forward pass; packs keep it
  std::span<const ExpertNames> experts = {};
  std::span<const std::string_view> ignored;  // parts of tensor names that may be present and are not needed
  BlockSpec block = {};
};

// Whether the table is complete: every role the block needs is there exactly once.
constexpr bool Valid(const ArchSpec& spec);

// Whether some layers may have a dense FFN.
constexpr bool HasDenseFfn(const ArchSpec& spec);

// Whether it can only draft for another model.
constexpr bool IsDrafter(const ArchSpec& spec) {
  return spec.block.attention == Attention::kBorrowed || spec.block.attention == Attention::kSingleKey;
}

// All supported types, sorted by name.
std::span<const ArchSpec* const> SupportedArchs();

// How a checkpoint's tensors are named, which decides by what its type is known.
enum class Naming : uint8_t { kHuggingFace, kGguf };

// Errors: kUnsupported names the type, lists the supported ones and the closest match.
Result<const ArchSpec*> FindArch(std::string_view model_type, Naming naming = Naming::kHuggingFace);

// ---------------------------------------------------------------------------------------------------------------------

namespace internal {

constexpr int CountRole(const ArchSpec& spec, Role role) {
  int count = 0;
  for (const TensorSpec& tensor : spec.tensors) count += tensor.role == role ? 1 : 0;
  return count;
}

constexpr bool HasAll(const ArchSpec& spec, std::initializer_list<Role> roles, bool wanted = true) {
  for (const Role role : roles) {
    if (CountRole(spec, role) != (wanted ? 1 : 0)) return false;
  }
  return true;
}

}  // namespace internal

constexpr bool HasDenseFfn(const ArchSpec& spec) { return internal::CountRole(spec, Role::kUp) > 0; }

constexpr bool Valid(const ArchSpec& spec) {
  using internal::CountRole;
  using internal::HasAll;
  const BlockSpec& block = spec.block;
  if (spec.name.empty()) return false;
  if (!HasAll(spec, {Role::kEmbed, Role::kFinalNorm, Role::kAttentionOut})) return false;
  if (CountRole(spec, Role::kHead) != 1 && !IsDrafter(spec)) return false;
  if (CountRole(spec, Role::kAttentionNorm) + CountRole(spec, Role::kPostAttentionNorm) == 0) return false;
  if (CountRole(spec, Role::kFfnNorm) + CountRole(spec, Role::kPostFfnNorm) == 0) return false;
  const bool xielu = block.activation == Activation::kXielu;
  // Without dense roles every layer has experts.
  const bool dense = block.ffn != Ffn::kMoe || HasDenseFfn(spec);
  if (!HasAll(spec, {Role::kUp, Role::kDown}, dense) || !HasAll(spec, {Role::kGate}, dense && !xielu)) return false;
  if (!HasAll(spec, {Role::kXieluAlphaP, Role::kXieluAlphaN, Role::kXieluBeta, Role::kXieluEpsilon}, xielu))
    return false;
  const bool gqa = block.attention == Attention::kGqa;
  const bool mla = block.attention == Attention::kMla;
  const bool single = block.attention == Attention::kSingleKey;
  if (!HasAll(spec, {Role::kKey, Role::kValue}, gqa || single)) return false;
  if (!HasAll(spec, {Role::kQuery})) return false;
  if (!HasAll(spec, {Role::kQueryA, Role::kQueryANorm, Role::kQueryB, Role::kKvA, Role::kKvANorm, Role::kKvB}, mla))
    return false;
  if (!HasAll(spec, {Role::kQueryNorm}, block.qk_norm != QkNorm::kNone)) return false;
  if (!HasAll(spec, {Role::kKeyNorm}, block.qk_norm != QkNorm::kNone && gqa)) return false;
  const bool moe = block.ffn != Ffn::kDense;
  if (!HasAll(spec, {Role::kRouter, Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}, moe)) return false;
  for (const ExpertNames& names : spec.experts) {
    if (names.unstacked.empty()) return false;  // packs need it
  }
  const bool both = block.ffn == Ffn::kDenseAndMoe;
  if (!HasAll(spec, {Role::kExpertNorm, Role::kPostDenseNorm, Role::kPostExpertNorm}, both)) return false;
  return moe == (block.router != Router::kNone) && moe == !spec.experts.empty();
}

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_ARCH_SPEC_H_
