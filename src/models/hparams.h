// HParams: a model's dimensions and switches, read from config.json through its ArchSpec.
#ifndef NUNSPARK_MODELS_HPARAMS_H_
#define NUNSPARK_MODELS_HPARAMS_H_

#include <cstdint>
#include <optional>
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
  kNormPlusOne,
  kTied,
  kMaxPositions,
  // Biases.
  kAttentionBias,
  kAttentionOutBias,
  kMlpBias,
  // RoPE.
  kRopeTheta,
  kRopeLocalTheta,
  kRopeInterleaved,
  kPartialRotary,
  kOriginalPositions,
  // Attention.
  kQkNorm,
  kQueryScalar,
  kAttentionSoftcap,
  kLogitSoftcap,
  kUseSlidingWindow,
  kSlidingWindow,
  kMaxWindowLayers,
  kWindowPattern,
  kGlobalHeadDim,
  kGlobalKvHeads,
  kValueIsKey,
  kKvSharedLayers,
  // Latent attention.
  kQueryRank,
  kKvRank,
  kQkRopeDim,
  kQkNopeDim,
  kValueDim,
  // Experts.
  kMoeEnabled,
  kExperts,
  kExpertsPerToken,
  kExpertFfnDim,
  kNormTopK,
  kSparseStep,
  // Others.
  kDoubleWideMlp,
  kPerLayerDim,
  kPerLayerVocab,
  kBackboneDim,
  kCentroids,
  kCentroidTopK,
  kOrderedEmbeddings,
};
inline constexpr int kHParamFieldCount = static_cast<int>(HParamField::kOrderedEmbeddings) + 1;

// RoPE kinds of config.json's rope_scaling ("type" beats "rope_type"). Formulas: transformers, modeling_rope_utils.py.
enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn, kDynamic, kLongRope, kProportional };

struct RopeParams {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  int64_t rotary_dim = 0;  // values of each head that are rotated, the first ones
  double factor = 1;
  double original_positions = 0;  // llama3, yarn, longrope: trained length; dynamic: max_position_embeddings
  double low_freq_factor = 1;     // llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  double mscale = 0;  // yarn; 0 = not given
  double mscale_all_dim = 0;
  double attention_factor = 0;            // yarn, longrope; 0 = derived
  bool truncate = true;                   // yarn: whole-number correction bounds
  double rotated_share = 1;               // proportional: share of the pairs that rotate
  std::vector<double> short_factor = {};  // longrope [rotary_dim / 2], up to the trained length
  std::vector<double> long_factor = {};   // and beyond

  friend bool operator==(const RopeParams&, const RopeParams&) = default;
};

// The numbers of the xIELU activation, as stored (arXiv:2411.13010).
struct XieluParams {
  double alpha_p = 0;  // before softplus
  double alpha_n = 0;
  double beta = 0.5;
  double epsilon = -1e-6;

  friend bool operator==(const XieluParams&, const XieluParams&) = default;
};

// What may differ from layer to layer.
struct LayerShape {
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
  int64_t ffn_dim = 0;  // of the dense FFN
  int64_t window = 0;   // positions a query sees, itself included; 0 = all
  int32_t kv_layer =
      0;             // whose keys and values it attends to: its own index, or an earlier layer's; -1 = another model's
  int32_t rope = 0;  // index into HParams::ropes
  bool moe = false;
  std::optional<XieluParams> xielu = {};  // in the configuration (GGUF); elsewhere they are tensors
  bool value_is_key = false;              // the value is the key before norm and RoPE

  friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

struct HParams {
  int64_t vocab_size = 0;
  int64_t model_dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  double rms_epsilon = 1e-6;
  double norm_offset = 0;     // norms multiply by (weight + offset)
  int64_t max_positions = 0;  // context length as trained or extended; 0 = not stated
  bool tied = false;          // the embedding is also the head
  bool tied_given = false;    // the configuration says whether it is
  // nullopt: the configuration does not say, the tensors that are there tell.
  std::optional<bool> attention_bias;
  std::optional<bool> attention_out_bias;
  std::optional<bool> mlp_bias;
  bool qk_norm = true;
  bool rope_interleaved = false;
  double attention_scale = 1;
  double attention_softcap = 0;  // 0 = none
  double logit_softcap = 0;
  double embed_scale = 1;
  std::vector<RopeParams> ropes;  // by LayerShape::rope
  std::vector<LayerShape> layer;  // [layers]

  // Latent attention; zero elsewhere.
  int64_t query_rank = 0;  // 0 = the query is a plain projection
  int64_t kv_rank = 0;
  int64_t qk_rope_dim = 0;
  int64_t qk_nope_dim = 0;
  int64_t value_dim = 0;

  int64_t experts = 0;  // 0 = dense model
  int64_t experts_per_token = 0;
  int64_t expert_ffn_dim = 0;
  bool norm_topk = false;  // router weights renormalised over the chosen experts

  int64_t per_layer_dim = 0;  // 0 = no per-layer inputs
  int64_t per_layer_vocab = 0;

  // A drafter's.
  int64_t backbone_dim = 0;
  int64_t centroids = 0;
  int64_t centroid_top_k = 0;
  bool ordered_embeddings = false;

  // Largest over the layers, for buffers.
  int64_t max_head_dim() const;
  int64_t max_kv_out() const;
  int64_t max_ffn_dim() const;
  // The length after which a sequence's keys have to be computed anew with other frequencies; 0 = never.
  int64_t rope_switch_length() const;
  // Keys of two rows are rotated alike where this is the same for their Row::rope_length: what tells prefixes apart
  // that may not stand for each other (PrefixStore's salt).
  uint32_t rotation_side(int64_t rope_length) const;
};

// Reads and validates. `what` names the file in messages. Impossible or absurd values (zero or negative dimensions,
// heads not a multiple of kv_heads, more chosen experts than experts, ...) are refused. A wrapper's text_config counts
// as if its members stood at the top; only a vocab_size that stands at the top wins over it.
// Errors: kDataLoss: key, expected, found; kUnsupported: an unknown rope type or activation, listing the known ones.
Result<HParams> ReadHParams(const ArchSpec& spec, const Json& config, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_HPARAMS_H_
