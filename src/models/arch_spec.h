// ArchSpec: a model type as data. models/arch/<type>.cc holds one constexpr value each; the loader, the packer, the
// memory plan, the forward pass and `inspect` all read it. Never `if (type == ...)` elsewhere.
#ifndef NUNSPARK_MODELS_ARCH_SPEC_H_
#define NUNSPARK_MODELS_ARCH_SPEC_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/hparams.h"

namespace nunspark {

// What a tensor does in the block. One role per matrix or vector of a layer, an expert or the model's ends.
enum class Role : uint8_t {
  kEmbed,
  kFinalNorm,
  kHead,
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kAttentionOut,
  kQueryNorm,
  kKeyNorm,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kRouter,
  kExpertGate,
  kExpertUp,
  kExpertDown,
};

// Named dimensions of a tensor's shape.
enum class Dim : uint8_t { kVocab, kModel, kQueryOut, kKvOut, kHeadDim, kFfn, kExpertFfn, kExperts };

// Where a tensor lives, which decides its piece and the prefix of its name.
enum class Place : uint8_t {
  kModel,     // once: "model." or "" in front
  kLayer,     // every layer: "model.layers.N."
  kDenseFfn,  // layers with a dense FFN
  kMoeFfn,    // layers with experts: the part that is not an expert (router)
  kExpert,    // one per expert of a MoE layer
};

enum class TensorKind : uint8_t { kLinear, kVector };  // [rows, cols], maybe quantised; or plain floats [cols]

// When a linear has an additive bias "<name>.bias".
enum class Bias : uint8_t { kNever, kAlways, kAttentionFlag, kMlpFlag };

struct TensorSpec {
  Role role;
  Place place;
  TensorKind kind;
  std::string_view name;  // module path behind the place's prefix: "self_attn.q_proj"; for experts "gate_proj"
  Dim rows;               // kVector: ignored
  Dim cols;
  Bias bias = Bias::kNever;
};

// How experts are named. {E} is the expert's number; stacked tensors have the expert axis first.
struct ExpertNames {
  std::string_view stacked;    // "mlp.switch_mlp"
  std::string_view unstacked;  // "mlp.experts" (then ".{E}.")
};

enum class ConfigRule : uint8_t { kRequired, kDefault };

// config.json key -> HParams member.
struct ConfigKey {
  std::string_view key;
  HParamField field;
  ConfigRule rule;
  double fallback = 0;  // of kDefault, as a number; 0/1 for flags
};

enum class QkNorm : uint8_t { kNone, kPerHead };  // RMS norm of each query and key head before RoPE
enum class RopeForm : uint8_t { kHalves };        // pairs (i, i + d/2)
enum class Norm : uint8_t { kRms };
enum class Residual : uint8_t { kPreNorm };  // x += f(norm(x)), twice
enum class Ffn : uint8_t { kDense, kMoe };   // kMoe: layers chosen by mlp_only_layers and decoder_sparse_step
enum class Activation : uint8_t { kSwiGlu };
enum class Router : uint8_t { kNone, kSoftmaxThenTopK };
// Which layers see only a sliding window, given use_sliding_window: kByLayer: those that layer_types names, else those
// from max_window_layers on; kEveryLayer: all of them.
enum class Window : uint8_t { kNone, kByLayer, kEveryLayer };

struct BlockSpec {
  QkNorm qk_norm = QkNorm::kNone;
  RopeForm rope = RopeForm::kHalves;
  Norm norm = Norm::kRms;
  Residual residual = Residual::kPreNorm;
  Ffn ffn = Ffn::kDense;
  Activation activation = Activation::kSwiGlu;
  Router router = Router::kNone;
  Window window = Window::kNone;
};

struct ArchSpec {
  std::string_view name;          // model_type of config.json
  std::string_view authors_code;  // where the definition comes from; `inspect` shows it
  std::span<const ConfigKey> config;
  std::span<const TensorSpec> tensors;  // in the order of the forward pass; packs keep it
  ExpertNames experts;
  std::span<const std::string_view> ignored;  // tensor names that may be present and are not needed (substrings)
  BlockSpec block;
};

// Whether the table is complete: every role the block needs is there exactly once, dimensions fit the roles.
constexpr bool Valid(const ArchSpec& spec);

// All supported types, sorted by name.
std::span<const ArchSpec* const> SupportedArchs();

// Errors: kUnsupported names the type, lists the supported ones and the closest match.
Result<const ArchSpec*> FindArch(std::string_view model_type);

// ---------------------------------------------------------------------------------------------------------------------

namespace internal {

constexpr int CountRole(const ArchSpec& spec, Role role) {
  int count = 0;
  for (const TensorSpec& tensor : spec.tensors) count += tensor.role == role ? 1 : 0;
  return count;
}

}  // namespace internal

constexpr bool Valid(const ArchSpec& spec) {
  using internal::CountRole;
  for (const Role role : {Role::kEmbed, Role::kFinalNorm, Role::kHead, Role::kAttentionNorm, Role::kQuery, Role::kKey,
                          Role::kValue, Role::kAttentionOut, Role::kFfnNorm, Role::kGate, Role::kUp, Role::kDown}) {
    if (CountRole(spec, role) != 1) return false;
  }
  const int qk_norms = spec.block.qk_norm == QkNorm::kPerHead ? 1 : 0;
  if (CountRole(spec, Role::kQueryNorm) != qk_norms || CountRole(spec, Role::kKeyNorm) != qk_norms) return false;
  const int moe = spec.block.ffn == Ffn::kMoe ? 1 : 0;
  for (const Role role : {Role::kRouter, Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}) {
    if (CountRole(spec, role) != moe) return false;
  }
  if ((moe == 1) != (spec.block.router != Router::kNone)) return false;
  return !spec.name.empty() && (moe == 0 || !spec.experts.unstacked.empty());
}

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_ARCH_SPEC_H_
