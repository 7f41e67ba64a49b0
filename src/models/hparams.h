// HParams: a model's dimensions and switches, read from config.json through its ArchSpec.
#ifndef NUNSPARK_MODELS_HPARAMS_H_
#define NUNSPARK_MODELS_HPARAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark {

struct ArchSpec;

// Scalar members that config.json sets, by name, so that tables can refer to them.
enum class HParamField : uint8_t {
  kVocabSize,
  kModelDim,
  kLayers,
  kHeads,
  kKvHeads,
  kHeadDim,
  kFfnDim,
  kRmsEpsilon,
  kRopeTheta,
  kMaxPositions,
  kTied,
  kAttentionBias,
  kMlpBias,
  kExperts,
  kExpertsPerToken,
  kExpertFfnDim,
  kNormTopK,
  kSparseStep,
  kUseSlidingWindow,
  kSlidingWindow,
  kMaxWindowLayers,
};
inline constexpr int kHParamFieldCount = 21;

// RoPE kinds of config.json's rope_scaling ("type" beats "rope_type"). Formulas: transformers, modeling_rope_utils.py.
enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn, kDynamic };

struct RopeParams {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  double factor = 1;
  double original_positions = 0;  // llama3, yarn: trained length; dynamic: max_position_embeddings
  double low_freq_factor = 1;     // llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  double mscale = 0;  // yarn; 0 = not given
  double mscale_all_dim = 0;
  double attention_factor = 0;  // yarn; 0 = derived from factor and mscale
  bool truncate = true;         // yarn: whole-number correction bounds

  friend bool operator==(const RopeParams&, const RopeParams&) = default;
};

struct HParams {
  int64_t vocab_size = 0;
  int64_t model_dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;  // of dense layers
  double rms_epsilon = 1e-6;
  int64_t max_positions = 0;  // context length as trained or extended; 0 = not stated
  bool tied = false;          // the embedding is also the head
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeParams rope;
  int64_t experts = 0;  // 0 = dense model
  int64_t experts_per_token = 0;
  int64_t expert_ffn_dim = 0;
  bool norm_topk = false;       // router weights renormalised over the chosen experts
  std::vector<bool> moe_layer;  // [layers]
  std::vector<int64_t> window;  // [layers] positions a query sees, itself included; 0 = all

  int64_t query_out() const { return heads * head_dim; }
  int64_t kv_out() const { return kv_heads * head_dim; }
};

// Reads and validates. `what` names the file in messages. Impossible or absurd values (zero or negative dimensions,
// heads not a multiple of kv_heads, more chosen experts than experts, ...) are refused.
// Errors: kDataLoss: key, expected, found; kUnsupported: an unknown rope type or activation, listing the known ones.
Result<HParams> ReadHParams(const ArchSpec& spec, const Json& config, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_HPARAMS_H_
