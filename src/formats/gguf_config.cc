#include "formats/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/gguf_facts.h"
#include "formats/gguf_keys.h"
#include "formats/gguf_rope.h"
#include "formats/gguf_vocab.h"

namespace nunspark {
namespace {

// More layers than any model has; bounds lists that a file asks for by number.
constexpr int64_t kMaxLayers = 4096;

enum class Kind : uint8_t {
  kInt,
  kLayerInts,  // a number, or one for each layer
  kNumber,
  kNumbers,  // a list
  kFlag,
  kPositive,  // an integer; 0 means that there is none and the key is left out
};

struct Row {
  std::string_view gguf;  // behind "<architecture>."
  std::string_view config;
  Kind kind;
};

// llama.cpp's names (src/llama-arch.cpp, LLM_KV_NAMES) and those of transformers for the same thing.
constexpr std::array kRows = {
    Row{"vocab_size", "vocab_size", Kind::kInt},
    Row{"context_length", "max_position_embeddings", Kind::kInt},
    Row{"embedding_length", "hidden_size", Kind::kInt},
    Row{"feed_forward_length", "intermediate_size", Kind::kLayerInts},
    Row{"attention.head_count", "num_attention_heads", Kind::kLayerInts},
    Row{"attention.head_count_kv", "num_key_value_heads", Kind::kLayerInts},
    Row{"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::kNumber},
    Row{"attention.layer_norm_epsilon", "layer_norm_eps", Kind::kNumber},
    Row{"attention.sliding_window", "sliding_window", Kind::kPositive},
    Row{"attention.q_lora_rank", "q_lora_rank", Kind::kPositive},
    Row{"attention.kv_lora_rank", "kv_lora_rank", Kind::kPositive},
    Row{"attention.shared_kv_layers", "num_kv_shared_layers", Kind::kInt},
    Row{"embedding_length_per_layer_input", "hidden_size_per_layer_input", Kind::kInt},
    Row{"rope.freq_base", "rope_theta", Kind::kNumber},
    Row{"rope.freq_base_swa", "rope_local_base_freq", Kind::kNumber},
    Row{"attn_logit_softcapping", "attn_logit_softcapping", Kind::kNumber},
    Row{"final_logit_softcapping", "final_logit_softcapping", Kind::kNumber},
    Row{"expert_count", "num_experts", Kind::kPositive},
    Row{"expert_count", "num_local_experts", Kind::kPositive},
    Row{"expert_used_count", "num_experts_per_tok", Kind::kPositive},
    Row{"expert_feed_forward_length", "moe_intermediate_size", Kind::kLayerInts},
    Row{"expert_shared_count", "n_shared_experts", Kind::kPositive},
    Row{"expert_shared_feed_forward_length", "shared_expert_intermediate_size", Kind::kPositive},
    Row{"expert_group_count", "n_group", Kind::kPositive},
    Row{"expert_group_used_count", "topk_group", Kind::kPositive},
    Row{"expert_weights_scale", "routed_scaling_factor", Kind::kNumber},
    Row{"expert_weights_norm", "norm_topk_prob", Kind::kFlag},
    Row{"leading_dense_block_count", "first_k_dense_replace", Kind::kInt},
};

// Without the architecture in front (llama.cpp writes them so).
constexpr std::array kPlainRows = {
    Row{"xielu.alpha_n", "xielu_alpha_n", Kind::kNumbers},
    Row{"xielu.alpha_p", "xielu_alpha_p", Kind::kNumbers},
    Row{"xielu.beta", "xielu_beta", Kind::kNumbers},
    Row{"xielu.eps", "xielu_eps", Kind::kNumbers},
};

class Translator {
 public:
  Translator(const GgufModel& model, GgufKeys keys) : model_(model), keys_(std::move(keys)) {}

  Result<Json> Translate();

 private:
  Status ReadLayers();
  Status ReadRow(const std::string& key, const Row& row);
  Status ReadLayerInts(const std::string& key, const GgufValue& value, std::string_view config_key);
  Status ReadHeadWidths();
  Status ReadLatentWidths(int64_t rotated);
  Status ReadPartialRotation(int64_t width, int64_t rotated);
  Status ReadGating();
  Status ReadWindowPattern(int64_t period);
  void ReadTensorFacts();
  Status ReadVocabSize();
  void ReadEndIds();

  // The number under a translated key; nullopt when it is missing or a list.
  std::optional<int64_t> Known(std::string_view config_key) const;
  const TensorInfo* FindAnyType(std::string_view name) const;

  const GgufModel& model_;
  GgufKeys keys_;
  int64_t blocks_ = 0;  // with those of a drafter inside the file
  int64_t layers_ = 0;
  Json config_;
};

Result<Json> Translator::Translate() {
  const GgufFacts facts = FindGgufFacts(keys_.architecture());
  config_.Set("model_type", std::string(keys_.architecture()));
  config_.Set("converted_from", "gguf");
  RETURN_IF_ERROR(ReadLayers());
  for (const Row& row : kRows) RETURN_IF_ERROR(ReadRow(keys_.Name(row.gguf), row));
  for (const Row& row : kPlainRows) RETURN_IF_ERROR(ReadRow(std::string(row.gguf), row));
  for (const std::string_view key : {"hidden_size", "num_attention_heads"}) {
    if (config_.Find(key) != nullptr) continue;
    const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& entry) { return entry.config == key; });
    return DataLossError(
        fmt::format("{}: key {}: expected one, found none", keys_.what(), QuoteName(keys_.Name(row->gguf))));
  }
  RETURN_IF_ERROR(ReadHeadWidths());
  RETURN_IF_ERROR(ReadGating());
  RETURN_IF_ERROR(ReadWindowPattern(facts.window_period));
  RETURN_IF_ERROR(ReadVocabSize());
  ReadTensorFacts();
  RETURN_IF_ERROR(ReadGgufRope(model_, keys_, config_));
  ReadEndIds();
  config_.Set("rope_traditional", facts.interleaved_rope);
  if (facts.complete != nullptr) facts.complete(config_);
  return std::move(config_);
}

Status Translator::ReadLayers() {
  ASSIGN_OR_RETURN(const std::optional<int64_t> blocks, keys_.Int(keys_.Name("block_count"), 1, kMaxLayers));
  if (!blocks.has_value()) {
    return DataLossError(
        fmt::format("{}: key {}: expected one, found none", keys_.what(), QuoteName(keys_.Name("block_count"))));
  }
  // The last blocks may be a drafter's.
  ASSIGN_OR_RETURN(const std::optional<int64_t> drafter, keys_.Int(keys_.Name("nextn_predict_layers"), 0, *blocks - 1));
  blocks_ = *blocks;
  layers_ = blocks_ - drafter.value_or(0);
  config_.Set("num_hidden_layers", layers_);
  return Status();
}

Status Translator::ReadRow(const std::string& key, const Row& row) {
  const GgufValue* const value = keys_.Find(key);
  if (value == nullptr) return Status();
  const int64_t max = std::numeric_limits<int64_t>::max();
  switch (row.kind) {
    case Kind::kInt:
    case Kind::kPositive: {
      ASSIGN_OR_RETURN(const std::optional<int64_t> number, keys_.Int(key, 0, max));
      if (row.kind == Kind::kInt || *number > 0) config_.Set(row.config, *number);
      return Status();
    }
    case Kind::kLayerInts: return ReadLayerInts(key, *value, row.config);
    case Kind::kNumber: {
      ASSIGN_OR_RETURN(const std::optional<double> number, keys_.Number(key));
      config_.Set(row.config, *number);
      return Status();
    }
    case Kind::kNumbers: {
      ASSIGN_OR_RETURN(const std::vector<double> numbers, keys_.Numbers(key));
      if (numbers.size() != static_cast<size_t>(blocks_)) {
        return keys_.Wrong(key, fmt::format("{} numbers, one for each layer", blocks_),
                           fmt::format("{}", numbers.size()));
      }
      config_.Set(row.config, Json::Array(numbers.begin(), numbers.begin() + layers_));
      return Status();
    }
    case Kind::kFlag: {
      ASSIGN_OR_RETURN(const std::optional<bool> flag, keys_.Flag(key));
      config_.Set(row.config, *flag);
      return Status();
    }
  }
  return Status();
}

Status Translator::ReadLayerInts(const std::string& key, const GgufValue& value, std::string_view config_key) {
  if (!value.is_array()) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> number, keys_.Int(key, 0, std::numeric_limits<int64_t>::max()));
    config_.Set(config_key, *number);
    return Status();
  }
  if (value.size() != static_cast<size_t>(blocks_)) {
    return keys_.Wrong(key, fmt::format("{} numbers, one for each layer", blocks_), fmt::format("{}", value.size()));
  }
  Json::Array list;
  for (size_t i = 0; i < static_cast<size_t>(layers_); ++i) {
    const std::optional<int64_t> number = value.Int(i);
    if (!number.has_value() || *number < 0) {
      return keys_.Wrong(key, "whole numbers", number.has_value() ? fmt::format("{}", *number) : value.TypeName());
    }
    list.emplace_back(*number);
  }
  const bool same = std::all_of(list.begin(), list.end(), [&](const Json& number) { return number == list.front(); });
  config_.Set(config_key, same ? list.front() : Json(std::move(list)));
  return Status();
}

std::optional<int64_t> Translator::Known(std::string_view config_key) const {
  const Json* const value = config_.Find(config_key);
  return value != nullptr && value->is_int() ? std::optional<int64_t>(value->as_int()) : std::nullopt;
}

// Widths of heads: key_length, else what the model's width gives; where sliding layers have their own, that is what
// config.json calls head_dim, and the other global_head_dim.
Status Translator::ReadHeadWidths() {
  constexpr int64_t kMax = int64_t{1} << 31;
  const auto width = [&](std::string_view name) { return keys_.Int(keys_.Name(name), 1, kMax); };
  ASSIGN_OR_RETURN(std::optional<int64_t> key_length, width("attention.key_length"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> value_length, width("attention.value_length"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> sliding, width("attention.key_length_swa"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> rotated, width("rope.dimension_count"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> rotated_sliding, width("rope.dimension_count_swa"));
  if (config_.Find("kv_lora_rank") != nullptr) return ReadLatentWidths(rotated.value_or(0));
  if (!key_length.has_value()) {
    const std::optional<int64_t> heads = Known("num_attention_heads");
    if (!heads.has_value() || *heads == 0) return Status();
    key_length = *Known("hidden_size") / *heads;
    if (*key_length == 0) return Status();  // whoever reads the config refuses such a model
  }
  if (value_length.has_value() && *value_length != *key_length) config_.Set("v_head_dim", *value_length);
  config_.Set("head_dim", sliding.value_or(*key_length));
  if (!sliding.has_value()) return ReadPartialRotation(*key_length, rotated.value_or(*key_length));
  config_.Set("global_head_dim", *key_length);
  if (rotated.value_or(*key_length) != *key_length) {
    return keys_.Wrong(keys_.Name("rope.dimension_count"), fmt::format("{}, the width of a head", *key_length),
                       fmt::format("{}", *rotated));
  }
  return ReadPartialRotation(*sliding, rotated_sliding.value_or(*sliding));
}

// Attention through a latent vector (DeepSeek's MLA). key_length is what the cache holds; the heads' own widths have
// keys of their own, except in files from before the cache held latent vectors.
Status Translator::ReadLatentWidths(int64_t rotated) {
  constexpr int64_t kMax = int64_t{1} << 31;
  const auto width = [&](std::string_view name, std::string_view old_name) -> Result<int64_t> {
    ASSIGN_OR_RETURN(const std::optional<int64_t> now, keys_.Int(keys_.Name(name), 1, kMax));
    ASSIGN_OR_RETURN(const std::optional<int64_t> before, keys_.Int(keys_.Name(old_name), 1, kMax));
    if (now.has_value() || before.has_value()) return now.has_value() ? *now : *before;
    return DataLossError(
        fmt::format("{}: key {}: expected one, found none", keys_.what(), QuoteName(keys_.Name(name))));
  };
  ASSIGN_OR_RETURN(const int64_t key, width("attention.key_length_mla", "attention.key_length"));
  ASSIGN_OR_RETURN(const int64_t value, width("attention.value_length_mla", "attention.value_length"));
  if (rotated < 1 || rotated >= key) {
    return keys_.Wrong(keys_.Name("rope.dimension_count"), fmt::format("1 to {}, less than a head's width", key - 1),
                       fmt::format("{}", rotated));
  }
  config_.Set("qk_rope_head_dim", rotated);
  config_.Set("qk_nope_head_dim", key - rotated);
  config_.Set("v_head_dim", value);
  // The file counts one head, the latent vector.
  config_.Set("num_key_value_heads", Json(*config_.Find("num_attention_heads")));
  return Status();
}

Status Translator::ReadPartialRotation(int64_t width, int64_t rotated) {
  if (rotated > width) {
    return keys_.Wrong(keys_.Name("rope.dimension_count"), fmt::format("at most {}, the width of a head", width),
                       fmt::format("{}", rotated));
  }
  double factor = static_cast<double>(rotated) / static_cast<double>(width);
  // Readers multiply and cut off; the product must not end just below the number.
  if (static_cast<int64_t>(factor * static_cast<double>(width)) < rotated) factor = std::nextafter(factor, 2.0);
  config_.Set("partial_rotary_factor", factor);
  return Status();
}

Status Translator::ReadGating() {
  // llama.cpp's llama_expert_gating_func_type.
  ASSIGN_OR_RETURN(const std::optional<int64_t> gating, keys_.Int(keys_.Name("expert_gating_func"), 0, 255));
  if (!gating.has_value() || *gating == 0) return Status();
  if (*gating != 1 && *gating != 2) {
    return UnsupportedError(fmt::format("{}: key {}: expected 1 (softmax) or 2 (sigmoid), found {}", keys_.what(),
                                        QuoteName(keys_.Name("expert_gating_func")), *gating));
  }
  config_.Set("scoring_func", *gating == 1 ? "softmax" : "sigmoid");
  return Status();
}

// Which layers see only a window, if there is one.
Status Translator::ReadWindowPattern(int64_t period) {
  const std::string key = keys_.Name("attention.sliding_window_pattern");
  const GgufValue* const value = keys_.Find(key);
  if (config_.Find("sliding_window") == nullptr) {
    // Model types have a default for it, a file without the key means that there is none.
    config_.Set("sliding_window", 0);
    return Status();
  }
  std::vector<bool> slides(static_cast<size_t>(layers_));
  if (value != nullptr && value->is_array()) {
    if (value->size() != static_cast<size_t>(blocks_) && value->size() != static_cast<size_t>(layers_)) {
      return keys_.Wrong(key, fmt::format("{} values, one for each layer", blocks_), fmt::format("{}", value->size()));
    }
    for (size_t i = 0; i < slides.size(); ++i) {
      const std::optional<int64_t> number = value->Int(i);
      if (!value->Bool(i).has_value() && !number.has_value()) return keys_.Wrong(key, "bools", value->TypeName());
      slides[i] = value->Bool(i).value_or(number.value_or(0) != 0);
    }
    period = 0;
  } else {
    ASSIGN_OR_RETURN(const std::optional<int64_t> given, keys_.Int(key, 1, kMaxLayers));
    period = given.value_or(period);
    if (period == 0) return Status();
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = (static_cast<int64_t>(i) + 1) % period != 0;
  }
  if (period > 0) config_.Set("sliding_window_pattern", period);
  Json::Array types;
  for (const bool slide : slides) types.emplace_back(slide ? "sliding_attention" : "full_attention");
  config_.Set("layer_types", std::move(types));
  return Status();
}

// The rows of the embedding, under whatever type. Vocabularies may be shorter than the matrix.
Status Translator::ReadVocabSize() {
  const auto rows = [&](std::string_view name) {
    const TensorInfo* const tensor = FindAnyType(name);
    return tensor != nullptr && tensor->shape.size() == 2 ? tensor->shape[0] : 0;
  };
  if (const int64_t size = rows("per_layer_token_embd.weight"); size > 0) {
    config_.Set("vocab_size_per_layer_input", size);
  }
  if (const int64_t size = rows("token_embd.weight"); size > 0) {
    config_.Set("vocab_size", size);
    return Status();
  }
  return DataLossError(fmt::format("{}: tensor \"token_embd.weight\": expected a matrix, found none", keys_.what()));
}

// The tensor, stored as numbers or in blocks of any type.
const TensorInfo* Translator::FindAnyType(std::string_view name) const {
  if (const TensorInfo* const plain = model_.tensors.Find(name); plain != nullptr) return plain;
  for (const std::string_view suffix : GgufBlockSuffixes()) {
    if (const TensorInfo* const found = model_.tensors.Find(fmt::format("{}@{}", name, suffix)); found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

void Translator::ReadTensorFacts() {
  const auto has = [&](std::string_view name) { return FindAnyType(name) != nullptr; };
  config_.Set("tie_word_embeddings", !has("output.weight"));
  const bool attention = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config_.Set("attention_bias", attention);
  config_.Set("attention_out_bias", has("blk.0.attn_output.bias"));
  config_.Set("mlp_bias", has("blk.0.ffn_up.bias") || has("blk.0.ffn_down.bias"));
  config_.Set("use_bias", attention);
  bool values_are_keys = false;
  bool experts = false;
  for (int64_t i = 0; i < layers_; ++i) {
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}.weight", i, part); };
    values_are_keys |= has(name("attn_q")) && has(name("attn_k")) && !has(name("attn_v"));
    experts |= has(name("ffn_gate_inp"));
  }
  if (values_are_keys) config_.Set("attention_k_eq_v", true);
  if (experts) config_.Set("enable_moe_block", true);
}

void Translator::ReadEndIds() {
  Json::Array ids;
  for (const int32_t id : GgufEndIds(model_.first)) ids.emplace_back(id);
  if (!ids.empty()) config_.Set("eos_token_id", std::move(ids));
}

}  // namespace

Result<Json> GgufConfig(const GgufModel& model) {
  ASSIGN_OR_RETURN(GgufKeys keys, GgufKeys::Of(model.first));
  return Translator(model, std::move(keys)).Translate();
}

}  // namespace nunspark
