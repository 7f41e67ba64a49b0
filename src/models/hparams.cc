#include "models/hparams.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "models/arch_spec.h"

namespace nunspark {
namespace {

// Larger values are no model but a corrupt or hostile file; below it, products of two dimensions fit an int64.
constexpr double kMaxDimension = 1 << 28;

using FieldValues = std::array<double, kHParamFieldCount>;

Status WrongValue(std::string_view what, std::string_view key, std::string_view expected, const Json& found) {
  std::string text = WriteJson(found);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return DataLossError(fmt::format("{}: {}: expected {}, found {}", what, key, expected, text));
}

bool IsFlag(HParamField field) {
  switch (field) {
    case HParamField::kTied:
    case HParamField::kAttentionBias:
    case HParamField::kMlpBias:
    case HParamField::kNormTopK:
    case HParamField::kUseSlidingWindow: return true;
    case HParamField::kVocabSize:
    case HParamField::kModelDim:
    case HParamField::kLayers:
    case HParamField::kHeads:
    case HParamField::kKvHeads:
    case HParamField::kHeadDim:
    case HParamField::kFfnDim:
    case HParamField::kRmsEpsilon:
    case HParamField::kRopeTheta:
    case HParamField::kMaxPositions:
    case HParamField::kExperts:
    case HParamField::kExpertsPerToken:
    case HParamField::kExpertFfnDim:
    case HParamField::kSparseStep:
    case HParamField::kSlidingWindow:
    case HParamField::kMaxWindowLayers: return false;
  }
  return false;
}

bool IsReal(HParamField field) { return field == HParamField::kRmsEpsilon || field == HParamField::kRopeTheta; }

Status ReadField(const ConfigKey& key, const Json& config, std::string_view what, double& value) {
  const Json* const found = config.Find(key.key);
  if (found == nullptr || found->is_null()) {
    if (key.rule == ConfigRule::kRequired) {
      return DataLossError(fmt::format("{}: {} is missing", what, key.key));
    }
    value = key.fallback;
    return Status();
  }
  if (IsFlag(key.field)) {
    if (!found->is_bool()) return WrongValue(what, key.key, "true or false", *found);
    value = found->as_bool() ? 1 : 0;
    return Status();
  }
  if (IsReal(key.field)) {
    if (!found->is_number() || !(found->as_double() > 0) || !std::isfinite(found->as_double())) {
      return WrongValue(what, key.key, "a positive number", *found);
    }
    value = found->as_double();
    return Status();
  }
  if (!found->is_int() || found->as_int() < 0 || static_cast<double>(found->as_int()) > kMaxDimension) {
    return WrongValue(what, key.key, "a whole number from 0 to 2^28", *found);
  }
  value = static_cast<double>(found->as_int());
  return Status();
}

// An optional number of rope_scaling.
Status ReadRopeNumber(const Json& scaling, std::string_view key, std::string_view what, double& value) {
  const Json* const found = scaling.Find(key);
  if (found == nullptr || found->is_null()) return Status();
  if (!found->is_number() || !std::isfinite(found->as_double()) || found->as_double() < 0) {
    return WrongValue(what, fmt::format("rope_scaling.{}", key), "a number >= 0", *found);
  }
  value = found->as_double();
  return Status();
}

Status ReadRopeKind(const Json& scaling, std::string_view what, RopeKind& kind) {
  std::string name = "default";
  for (const char* key : {"type", "rope_type"}) {
    const Json* const found = scaling.Find(key);
    if (found == nullptr || found->is_null()) continue;
    if (!found->is_string()) return WrongValue(what, fmt::format("rope_scaling.{}", key), "a string", *found);
    if (found->as_string().empty()) continue;
    name = found->as_string();
    break;
  }
  constexpr std::pair<std::string_view, RopeKind> kKinds[] = {{"default", RopeKind::kDefault},
                                                              {"linear", RopeKind::kLinear},
                                                              {"llama3", RopeKind::kLlama3},
                                                              {"yarn", RopeKind::kYarn},
                                                              {"dynamic", RopeKind::kDynamic}};
  for (const auto& [known, value] : kKinds) {
    if (known != name) continue;
    kind = value;
    return Status();
  }
  return UnsupportedError(
      fmt::format("{}: rope type '{}' is not supported; supported: default, linear, llama3, yarn, dynamic", what,
                  name.substr(0, 60)));
}

Status ReadRope(const Json& config, std::string_view what, HParams& hparams) {
  if (const Json* const factor = config.Find("partial_rotary_factor");
      factor != nullptr && !factor->is_null() && *factor != Json(1.0) && *factor != Json(1)) {
    return UnsupportedError(
        fmt::format("{}: partial_rotary_factor {} is not supported for this model type", what, WriteJson(*factor)));
  }
  if (const Json* const nested = config.Find("rope_parameters"); nested != nullptr && nested->is_object()) {
    for (const auto& [key, value] : nested->as_object()) {
      if (!value.is_object()) continue;
      return UnsupportedError(fmt::format(
          "{}: rope_parameters.{}: parameters per layer type are not supported for this model type", what, key));
    }
  }
  const Json* const scaling = config.Find("rope_scaling");
  RopeParams& rope = hparams.rope;
  rope.original_positions = static_cast<double>(hparams.max_positions);
  if (scaling == nullptr || scaling->is_null()) return Status();
  if (!scaling->is_object()) return WrongValue(what, "rope_scaling", "an object or null", *scaling);
  RETURN_IF_ERROR(ReadRopeKind(*scaling, what, rope.kind));
  if (rope.kind == RopeKind::kDefault) return Status();

  rope.factor = 0;
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "factor", what, rope.factor));
  if (rope.kind == RopeKind::kLlama3) rope.original_positions = 8192;
  if (rope.kind != RopeKind::kDynamic) {
    RETURN_IF_ERROR(ReadRopeNumber(*scaling, "original_max_position_embeddings", what, rope.original_positions));
  }
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "low_freq_factor", what, rope.low_freq_factor));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "high_freq_factor", what, rope.high_freq_factor));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "beta_fast", what, rope.beta_fast));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "beta_slow", what, rope.beta_slow));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "mscale", what, rope.mscale));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "mscale_all_dim", what, rope.mscale_all_dim));
  RETURN_IF_ERROR(ReadRopeNumber(*scaling, "attention_factor", what, rope.attention_factor));
  if (const Json* const truncate = scaling->Find("truncate"); truncate != nullptr && !truncate->is_null()) {
    if (!truncate->is_bool()) return WrongValue(what, "rope_scaling.truncate", "true or false", *truncate);
    rope.truncate = truncate->as_bool();
  }
  if (rope.factor < 1) {
    const Json* const factor = scaling->Find("factor");
    return WrongValue(what, "rope_scaling.factor", "a number >= 1", factor == nullptr ? Json() : *factor);
  }
  if (rope.kind != RopeKind::kLinear && rope.original_positions < 1) {
    return DataLossError(
        fmt::format("{}: rope_scaling: the trained length is unknown: neither "
                    "original_max_position_embeddings nor max_position_embeddings is given",
                    what));
  }
  if (rope.kind == RopeKind::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor && rope.low_freq_factor > 0)) {
    return DataLossError(
        fmt::format("{}: rope_scaling: expected 0 < low_freq_factor < high_freq_factor, found {} and {}", what,
                    rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.kind == RopeKind::kYarn && !(rope.beta_fast > 0 && rope.beta_slow > 0)) {
    return DataLossError(fmt::format("{}: rope_scaling: beta_fast and beta_slow must be positive", what));
  }
  return Status();
}

Status ReadMoeLayers(const ArchSpec& spec, const Json& config, std::string_view what, int64_t sparse_step,
                     HParams& hparams) {
  hparams.moe_layer.assign(static_cast<size_t>(hparams.layers), false);
  if (spec.block.ffn != Ffn::kMoe || hparams.experts == 0) return Status();
  if (sparse_step < 1) return DataLossError(fmt::format("{}: decoder_sparse_step: expected at least 1, found 0", what));
  for (int64_t layer = 0; layer < hparams.layers; ++layer) {
    hparams.moe_layer[static_cast<size_t>(layer)] = (layer + 1) % sparse_step == 0;
  }
  const Json* const dense = config.Find("mlp_only_layers");
  if (dense == nullptr || dense->is_null()) return Status();
  if (!dense->is_array()) return WrongValue(what, "mlp_only_layers", "an array", *dense);
  for (const Json& layer : dense->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0) return WrongValue(what, "mlp_only_layers", "layer numbers", *dense);
    if (layer.as_int() < hparams.layers) hparams.moe_layer[static_cast<size_t>(layer.as_int())] = false;
  }
  return Status();
}

Status ReadWindows(const ArchSpec& spec, const Json& config, std::string_view what, const FieldValues& values,
                   HParams& hparams) {
  hparams.window.assign(static_cast<size_t>(hparams.layers), 0);
  const int64_t window = static_cast<int64_t>(values[static_cast<size_t>(HParamField::kSlidingWindow)]);
  if (spec.block.window == Window::kNone || window == 0) return Status();
  if (values[static_cast<size_t>(HParamField::kUseSlidingWindow)] == 0) return Status();
  const Json* const types = config.Find("layer_types");
  const bool by_type = spec.block.window == Window::kByLayer && types != nullptr && !types->is_null();
  if (by_type && (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != hparams.layers)) {
    return WrongValue(what, "layer_types", fmt::format("an array of {} names", hparams.layers), *types);
  }
  const int64_t first = static_cast<int64_t>(values[static_cast<size_t>(HParamField::kMaxWindowLayers)]);
  for (int64_t layer = 0; layer < hparams.layers; ++layer) {
    const size_t i = static_cast<size_t>(layer);
    if (by_type && types->as_array()[i] != Json("sliding_attention") &&
        types->as_array()[i] != Json("full_attention")) {
      return WrongValue(what, "layer_types", "full_attention or sliding_attention", types->as_array()[i]);
    }
    const bool slides = by_type ? types->as_array()[i] == Json("sliding_attention")
                                : spec.block.window == Window::kEveryLayer || layer >= first;
    if (slides) hparams.window[i] = window;
  }
  return Status();
}

Status CheckDimensions(const HParams& h, std::string_view what, bool moe) {
  const std::pair<std::string_view, int64_t> positive[] = {
      {"vocab_size", h.vocab_size},     {"hidden_size", h.model_dim},        {"num_hidden_layers", h.layers},
      {"num_attention_heads", h.heads}, {"num_key_value_heads", h.kv_heads}, {"head_dim", h.head_dim},
      {"intermediate_size", h.ffn_dim}};
  for (const auto& [key, value] : positive) {
    if (value < 1) return DataLossError(fmt::format("{}: {}: expected a positive number, found {}", what, key, value));
  }
  if (h.layers > 10000) return DataLossError(fmt::format("{}: num_hidden_layers: {} is absurd", what, h.layers));
  if (h.heads % h.kv_heads != 0) {
    return DataLossError(
        fmt::format("{}: num_attention_heads: expected a multiple of num_key_value_heads ({}), found {}", what,
                    h.kv_heads, h.heads));
  }
  if (h.head_dim % 2 != 0 || h.head_dim > 4096) {
    return DataLossError(fmt::format("{}: head_dim: expected an even number up to 4096, found {}", what, h.head_dim));
  }
  if (!moe || h.experts == 0) return Status();
  if (h.experts > 65536 || h.experts_per_token < 1 || h.experts_per_token > h.experts) {
    return DataLossError(fmt::format("{}: expected 1 <= num_experts_per_tok <= num_experts <= 65536, found {} and {}",
                                     what, h.experts_per_token, h.experts));
  }
  if (h.expert_ffn_dim < 1) {
    return DataLossError(fmt::format("{}: moe_intermediate_size: expected a positive number, found 0", what));
  }
  return Status();
}

}  // namespace

Result<HParams> ReadHParams(const ArchSpec& spec, const Json& config, std::string_view what) {
  FieldValues values{};
  for (const ConfigKey& key : spec.config) {
    RETURN_IF_ERROR(ReadField(key, config, what, values[static_cast<size_t>(key.field)]));
  }
  const auto whole = [&](HParamField field) { return static_cast<int64_t>(values[static_cast<size_t>(field)]); };
  const auto flag = [&](HParamField field) { return values[static_cast<size_t>(field)] != 0; };

  if (const Json* const act = config.Find("hidden_act"); act != nullptr && !act->is_null() && *act != Json("silu")) {
    return UnsupportedError(fmt::format("{}: hidden_act {} is not supported for {}; supported: silu", what,
                                        WriteJson(*act).substr(0, 60), spec.name));
  }

  HParams h;
  h.vocab_size = whole(HParamField::kVocabSize);
  h.model_dim = whole(HParamField::kModelDim);
  h.layers = whole(HParamField::kLayers);
  h.heads = whole(HParamField::kHeads);
  h.kv_heads = whole(HParamField::kKvHeads);
  if (h.kv_heads == 0) h.kv_heads = h.heads;
  h.head_dim = whole(HParamField::kHeadDim);
  if (h.head_dim == 0 && h.heads > 0) h.head_dim = h.model_dim / h.heads;
  h.ffn_dim = whole(HParamField::kFfnDim);
  h.rms_epsilon = values[static_cast<size_t>(HParamField::kRmsEpsilon)];
  h.max_positions = whole(HParamField::kMaxPositions);
  h.tied = flag(HParamField::kTied);
  h.attention_bias = flag(HParamField::kAttentionBias);
  h.mlp_bias = flag(HParamField::kMlpBias);
  h.rope.theta = values[static_cast<size_t>(HParamField::kRopeTheta)];
  h.experts = whole(HParamField::kExperts);
  h.experts_per_token = whole(HParamField::kExpertsPerToken);
  h.expert_ffn_dim = whole(HParamField::kExpertFfnDim);
  h.norm_topk = flag(HParamField::kNormTopK);
  RETURN_IF_ERROR(CheckDimensions(h, what, spec.block.ffn == Ffn::kMoe));
  RETURN_IF_ERROR(ReadRope(config, what, h));
  RETURN_IF_ERROR(ReadMoeLayers(spec, config, what, whole(HParamField::kSparseStep), h));
  RETURN_IF_ERROR(ReadWindows(spec, config, what, values, h));
  return h;
}

}  // namespace nunspark
