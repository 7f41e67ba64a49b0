#include "models/hparams.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/math.h"
#include "models/arch_spec.h"
#include "models/config_reader.h"

namespace nunspark {
namespace {

using internal::FieldValues;
using internal::FindGiven;
using internal::WrongValue;

// Larger values are no model but a corrupt or hostile file; below it, products of two dimensions fit an int64.
constexpr double kMaxDimension = 1 << 28;

enum class ValueKind { kWhole, kReal, kFlag };

ValueKind KindOf(HParamField field) {
  switch (field) {
    case HParamField::kTied:
    case HParamField::kNormPlusOne:
    case HParamField::kAttentionBias:
    case HParamField::kAttentionOutBias:
    case HParamField::kMlpBias:
    case HParamField::kRopeInterleaved:
    case HParamField::kQkNorm:
    case HParamField::kUseSlidingWindow:
    case HParamField::kValueIsKey:
    case HParamField::kMoeEnabled:
    case HParamField::kNormTopK:
    case HParamField::kDoubleWideMlp:
    case HParamField::kOrderedEmbeddings: return ValueKind::kFlag;
    case HParamField::kRmsEpsilon:
    case HParamField::kRopeTheta:
    case HParamField::kRopeLocalTheta:
    case HParamField::kPartialRotary:
    case HParamField::kQueryScalar:
    case HParamField::kAttentionSoftcap:
    case HParamField::kLogitSoftcap: return ValueKind::kReal;
    case HParamField::kVocabSize:
    case HParamField::kModelDim:
    case HParamField::kLayers:
    case HParamField::kHeads:
    case HParamField::kKvHeads:
    case HParamField::kHeadDim:
    case HParamField::kFfnDim:
    case HParamField::kMaxPositions:
    case HParamField::kOriginalPositions:
    case HParamField::kSlidingWindow:
    case HParamField::kMaxWindowLayers:
    case HParamField::kWindowPattern:
    case HParamField::kGlobalHeadDim:
    case HParamField::kGlobalKvHeads:
    case HParamField::kKvSharedLayers:
    case HParamField::kQueryRank:
    case HParamField::kKvRank:
    case HParamField::kQkRopeDim:
    case HParamField::kQkNopeDim:
    case HParamField::kValueDim:
    case HParamField::kExperts:
    case HParamField::kExpertsPerToken:
    case HParamField::kExpertFfnDim:
    case HParamField::kSparseStep:
    case HParamField::kPerLayerDim:
    case HParamField::kPerLayerVocab:
    case HParamField::kBackboneDim:
    case HParamField::kCentroids:
    case HParamField::kCentroidTopK: return ValueKind::kWhole;
  }
  return ValueKind::kWhole;
}

bool IsCap(HParamField field) { return field == HParamField::kAttentionSoftcap || field == HParamField::kLogitSoftcap; }

Status ReadValue(const Json& found, const ConfigKey& key, std::string_view what, double& value) {
  switch (KindOf(key.field)) {
    case ValueKind::kFlag:
      if (!found.is_bool()) return WrongValue(what, key.key, "true or false", found);
      value = found.as_bool() ? 1 : 0;
      return Status();
    case ValueKind::kReal:
      // A cap of 0 is none.
      if (found.is_number() && found.as_double() == 0 && IsCap(key.field)) return Status();
      if (!found.is_number() || !(found.as_double() > 0) || !std::isfinite(found.as_double())) {
        return WrongValue(what, key.key, "a positive number", found);
      }
      value = found.as_double();
      return Status();
    case ValueKind::kWhole: break;
  }
  if (!found.is_int() || found.as_int() < 0 || static_cast<double>(found.as_int()) > kMaxDimension) {
    return WrongValue(what, key.key, "a whole number from 0 to 2^28", found);
  }
  value = static_cast<double>(found.as_int());
  return Status();
}

bool IsGguf(const Json& config) {
  const Json* const from = FindGiven(config, "converted_from");
  return from != nullptr && *from == Json("gguf");
}

// Values that GGUF gives for every layer; the largest stands for the model.
bool MayDifferByLayer(HParamField field) { return field == HParamField::kFfnDim || field == HParamField::kKvHeads; }

Status ReadFields(const ArchSpec& spec, const Json& config, std::string_view what, FieldValues& values) {
  for (const ConfigKey& key : spec.config) {
    internal::FieldValue& value = values[key.field];
    if (value.given) continue;
    const Json* const found = key.key.empty() ? nullptr : FindGiven(config, key.key);
    if (found == nullptr) {
      // A window that is null is none; one that is not there is the type's usual one.
      value.given = key.field == HParamField::kSlidingWindow && !key.key.empty() && config.Find(key.key) != nullptr;
      if (value.value == 0 && !value.given) value.value = key.fallback;
      continue;
    }
    if (found->is_array() && MayDifferByLayer(key.field)) {
      for (const Json& one : found->as_array()) {
        double number = 0;
        RETURN_IF_ERROR(ReadValue(one, key, what, number));
        value.value = std::max(value.value, number);
      }
    } else {
      RETURN_IF_ERROR(ReadValue(*found, key, what, value.value));
    }
    value.given = true;
  }
  for (const ConfigKey& key : spec.config) {
    if (key.rule != ConfigRule::kRequired || values.given(key.field)) continue;
    if (IsGguf(config) && key.fallback != 0) continue;
    return DataLossError(fmt::format("{}: {} is missing", what, key.key));
  }
  return Status();
}

// Settings that other models have and that would change the numbers.
Status RefuseUnknownMaths(const ArchSpec& spec, const Json& config, bool moe, std::string_view what) {
  struct Neutral {
    const char* key;
    Json value;
    bool of_experts;
  };
  const Neutral neutral[] = {{"scoring_func", "softmax", true},
                             {"routed_scaling_factor", 1, true},
                             {"n_group", 1, true},
                             {"topk_group", 1, true},
                             {"n_shared_experts", 0, true},
                             {"first_k_dense_replace", 0, true},
                             {"use_bidirectional_attention", false, false}};
  for (const Neutral& setting : neutral) {
    const Json* const found = FindGiven(config, setting.key);
    if (found == nullptr || (setting.of_experts && !moe) || *found == setting.value) continue;
    if (found->is_number() && setting.value.is_number() && found->as_double() == setting.value.as_double()) continue;
    if (*found == Json("vision")) continue;  // images only
    return UnsupportedError(fmt::format("{}: {} {} is not supported for {}", what, setting.key,
                                        WriteJson(*found).substr(0, 60), spec.name));
  }
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const Json* const found = FindGiven(config, key);
    if (spec.block.ffn != Ffn::kDense || found == nullptr || !found->is_int() || found->as_int() <= 1) continue;
    return UnsupportedError(
        fmt::format("{}: {} {}: {} with experts is not supported", what, key, found->as_int(), spec.name));
  }
  return Status();
}

// The members of a wrapper's text_config, as if they stood at the top.
Json FlatConfig(const Json& config) {
  const Json* const text = FindGiven(config, "text_config");
  if (text == nullptr || !text->is_object()) return config;
  Json flat = config;
  for (const auto& [key, value] : text->as_object()) {
    if (key == "model_type" || (key == "vocab_size" && FindGiven(config, key) != nullptr)) continue;
    flat.Set(key, value);
  }
  return flat;
}

Status CheckActivation(const ArchSpec& spec, const Json& config, std::string_view what) {
  std::string_view names;
  switch (spec.block.activation) {
    case Activation::kSwiGlu:
    case Activation::kSwiGluClipped: names = "silu swish"; break;
    case Activation::kGeGlu: names = "gelu_pytorch_tanh gelu_tanh gelu_new"; break;
    case Activation::kXielu: names = "xielu"; break;
  }
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const Json* const act = FindGiven(config, key);
    if (act == nullptr) continue;
    bool known = false;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      known = known || *act == Json(std::string(names.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (known) continue;
    return UnsupportedError(fmt::format("{}: {} {} is not supported for {}; supported: {}", what, key,
                                        WriteJson(*act).substr(0, 60), spec.name, names));
  }
  return Status();
}

Status CheckDimensions(const ArchSpec& spec, const FieldValues& values, const HParams& h, std::string_view what) {
  const std::pair<std::string_view, int64_t> positive[] = {{"vocab_size", h.vocab_size},
                                                           {"hidden_size", h.model_dim},
                                                           {"num_hidden_layers", h.layers},
                                                           {"num_attention_heads", h.heads},
                                                           {"num_key_value_heads", values.whole(HParamField::kKvHeads)},
                                                           {"head_dim", values.whole(HParamField::kHeadDim)},
                                                           {"intermediate_size", values.whole(HParamField::kFfnDim)}};
  for (const auto& [key, value] : positive) {
    if (value < 1) return DataLossError(fmt::format("{}: {}: expected a positive number, found {}", what, key, value));
  }
  if (h.layers > 10000) {
    return DataLossError(fmt::format("{}: num_hidden_layers: expected at most 10000, found {}", what, h.layers));
  }
  if (values.whole(HParamField::kHeadDim) > 4096) {
    return DataLossError(fmt::format("{}: head_dim: expected an even number up to 4096, found {}", what,
                                     values.whole(HParamField::kHeadDim)));
  }
  if (spec.block.attention == Attention::kMla) {
    const std::pair<std::string_view, int64_t> ranks[] = {{"kv_lora_rank", h.kv_rank},
                                                          {"qk_rope_head_dim", h.qk_rope_dim},
                                                          {"qk_nope_head_dim", h.qk_nope_dim},
                                                          {"v_head_dim", h.value_dim}};
    for (const auto& [key, value] : ranks) {
      if (value < 1 || value > 4096) {
        return DataLossError(fmt::format("{}: {}: expected a number from 1 to 4096, found {}", what, key, value));
      }
    }
    if (h.qk_rope_dim % 2 != 0) {
      return DataLossError(fmt::format("{}: qk_rope_head_dim: expected an even number, found {}", what, h.qk_rope_dim));
    }
  }
  if (h.experts == 0) return Status();
  if (h.experts > 65536 || h.experts_per_token < 1 || h.experts_per_token > h.experts) {
    return DataLossError(
        fmt::format("{}: experts: expected 1 <= experts per token <= experts <= 65536, found {} and {}", what,
                    h.experts_per_token, h.experts));
  }
  if (h.expert_ffn_dim < 1) {
    return DataLossError(fmt::format("{}: the experts' width: expected a positive number, found 0", what));
  }
  return Status();
}

Status CheckHeads(const HParams& h, std::string_view what) {
  for (const LayerShape& layer : h.layer) {
    if (layer.ffn_dim < 1)
      return DataLossError(fmt::format("{}: intermediate_size: expected a positive number, found 0", what));
    if (layer.kv_heads < 1 || h.heads % layer.kv_heads != 0) {
      return DataLossError(
          fmt::format("{}: num_attention_heads: expected a multiple of num_key_value_heads ({}), found {}", what,
                      layer.kv_heads, h.heads));
    }
    if (layer.head_dim % 2 != 0 || layer.head_dim > 4096) {
      return DataLossError(
          fmt::format("{}: head_dim: expected an even number up to 4096, found {}", what, layer.head_dim));
    }
  }
  return Status();
}

// Rotation stays within the head, and covers it where layers have heads of different width.
Status CheckRotation(const HParams& h, std::string_view what) {
  const int64_t width = h.layer.front().head_dim;
  for (const LayerShape& layer : h.layer) {
    const int64_t rotated = h.ropes[static_cast<size_t>(layer.rope)].rotary_dim;
    if (rotated == layer.head_dim || (rotated < layer.head_dim && layer.head_dim == width)) continue;
    return DataLossError(
        fmt::format("{}: head_dim: layers of one type have heads of {} and {}", what, rotated, layer.head_dim));
  }
  return Status();
}

Status ReadMoeLayers(const ArchSpec& spec, const Json& config, std::string_view what, const FieldValues& values,
                     HParams& h) {
  if (h.experts == 0) return Status();
  if (spec.block.ffn == Ffn::kDenseAndMoe || !HasDenseFfn(spec)) {
    for (LayerShape& layer : h.layer) layer.moe = true;
    return Status();
  }
  const int64_t step = values.whole(HParamField::kSparseStep);
  if (step < 1) {
    return DataLossError(fmt::format("{}: decoder_sparse_step: expected at least 1, found 0", what));
  }
  for (int64_t layer = 0; layer < h.layers; ++layer) {
    h.layer[static_cast<size_t>(layer)].moe = (layer + 1) % step == 0;
  }
  const Json* const dense = FindGiven(config, "mlp_only_layers");
  if (dense == nullptr) return Status();
  if (!dense->is_array()) return WrongValue(what, "mlp_only_layers", "an array", *dense);
  for (const Json& layer : dense->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0) return WrongValue(what, "mlp_only_layers", "layer numbers", *dense);
    if (layer.as_int() < h.layers) h.layer[static_cast<size_t>(layer.as_int())].moe = false;
  }
  return Status();
}

// layer_types, as "this layer slides"; nullopt when there is none.
Result<std::optional<std::vector<bool>>> ReadLayerTypes(const Json& config, std::string_view what, int64_t layers) {
  const Json* const types = FindGiven(config, "layer_types");
  if (types == nullptr) return std::optional<std::vector<bool>>();
  if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != layers) {
    return WrongValue(what, "layer_types", fmt::format("an array of {} names", layers), *types);
  }
  std::vector<bool> sliding;
  for (const Json& type : types->as_array()) {
    if (type != Json("sliding_attention") && type != Json("full_attention")) {
      return WrongValue(what, "layer_types", "full_attention or sliding_attention", type);
    }
    sliding.push_back(type == Json("sliding_attention"));
  }
  return std::optional(std::move(sliding));
}

// Which layers slide, and by how much.
Result<std::vector<bool>> ReadWindows(const ArchSpec& spec, const Json& config, std::string_view what,
                                      const FieldValues& values, HParams& h) {
  std::vector<bool> sliding(static_cast<size_t>(h.layers), false);
  const Window rule = spec.block.window;
  const int64_t window = values.whole(HParamField::kSlidingWindow);
  const bool by_flag = rule == Window::kByFlag || rule == Window::kByFlagAll;
  if (rule == Window::kNone || window == 0 || (by_flag && !values.flag(HParamField::kUseSlidingWindow))) return sliding;
  std::optional<std::vector<bool>> types;
  if (rule != Window::kByFlagAll) {
    ASSIGN_OR_RETURN(types, ReadLayerTypes(config, what, h.layers));
  }
  const int64_t first = values.whole(HParamField::kMaxWindowLayers);
  const int64_t pattern = std::max<int64_t>(values.whole(HParamField::kWindowPattern), 1);
  for (int64_t layer = 0; layer < h.layers; ++layer) {
    bool slides = false;
    switch (rule) {
      case Window::kNone:
      case Window::kByType: break;
      case Window::kByFlag: slides = layer >= first; break;
      case Window::kByFlagAll:
      case Window::kAll: slides = true; break;
      case Window::kPattern: slides = (layer + 1) % pattern != 0; break;
      case Window::kAlternating: slides = layer % 2 == 0; break;
    }
    const size_t i = static_cast<size_t>(layer);
    // Gemma 4 ends with a full layer, whatever the pattern.
    if (spec.block.rope_config == RopeConfig::kByLayerType && layer + 1 == h.layers) slides = false;
    sliding[i] = types ? (*types)[i] : slides;
    if (sliding[i]) h.layer[i].window = window;
  }
  return sliding;
}

// Values listed for every layer.
Status ReadListed(const Json& config, std::string_view key, std::string_view what, HParams& h,
                  int64_t LayerShape::*member) {
  const Json* const listed = FindGiven(config, key);
  if (listed == nullptr || !listed->is_array()) return Status();
  if (listed->as_array().size() != h.layer.size()) {
    return WrongValue(what, key, fmt::format("one number, or one for each of {} layers", h.layers), *listed);
  }
  for (size_t i = 0; i < h.layer.size(); ++i) h.layer[i].*member = listed->as_array()[i].as_int();
  return Status();
}

// xIELU's numbers, one list each over the layers, or none at all.
Status ReadXielu(const Json& config, std::string_view what, HParams& h) {
  constexpr std::pair<const char*, double XieluParams::*> kKeys[] = {{"xielu_alpha_p", &XieluParams::alpha_p},
                                                                     {"xielu_alpha_n", &XieluParams::alpha_n},
                                                                     {"xielu_beta", &XieluParams::beta},
                                                                     {"xielu_eps", &XieluParams::epsilon}};
  if (FindGiven(config, kKeys[0].first) == nullptr) return Status();
  for (LayerShape& layer : h.layer) layer.xielu.emplace();
  for (const auto& [key, member] : kKeys) {
    const Json* const list = FindGiven(config, key);
    const std::string expected = fmt::format("{} numbers", h.layers);
    if (list == nullptr || !list->is_array() || list->as_array().size() != h.layer.size()) {
      return WrongValue(what, key, expected, list == nullptr ? Json() : *list);
    }
    for (size_t i = 0; i < h.layer.size(); ++i) {
      const Json& number = list->as_array()[i];
      if (!number.is_number() || !std::isfinite(number.as_double())) return WrongValue(what, key, expected, number);
      (*h.layer[i].xielu).*member = number.as_double();
    }
  }
  return Status();
}

// Layers from the first sharing one on attend to the last earlier layer of their kind.
Status ShareKv(const FieldValues& values, const std::vector<bool>& sliding, std::string_view what, HParams& h) {
  const int64_t shared = values.whole(HParamField::kKvSharedLayers);
  if (shared > h.layers) {
    return DataLossError(fmt::format("{}: num_kv_shared_layers: expected at most {} (num_hidden_layers), found {}",
                                     what, h.layers, shared));
  }
  const int64_t own = h.layers - shared;
  for (int64_t layer = own; layer < h.layers; ++layer) {
    int64_t source = own - 1;
    while (source >= 0 && sliding[static_cast<size_t>(source)] != sliding[static_cast<size_t>(layer)]) --source;
    if (source < 0) {
      return DataLossError(fmt::format(
          "{}: num_kv_shared_layers: layer {} shares the keys of an earlier layer of its type, and there is none", what,
          layer));
    }
    h.layer[static_cast<size_t>(layer)].kv_layer = static_cast<int32_t>(source);
    if (own > 0 && values.flag(HParamField::kDoubleWideMlp)) h.layer[static_cast<size_t>(layer)].ffn_dim *= 2;
  }
  return Status();
}

// transformers since 5.15 writes what differs from layer to layer as {"5": {"head_dim": 512, ...}}.
Status ReadPerLayerConfig(const ArchSpec& spec, const Json& config, std::string_view what, HParams& h) {
  const Json* const overrides = FindGiven(config, "per_layer_config");
  if (overrides == nullptr) return Status();
  if (spec.block.rope_config != RopeConfig::kByLayerType) {
    return UnsupportedError(fmt::format("{}: per_layer_config is not supported for {}", what, spec.name));
  }
  if (!overrides->is_object()) return WrongValue(what, "per_layer_config", "an object", *overrides);
  for (const auto& [key, entry] : overrides->as_object()) {
    int64_t layer = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), layer);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || layer < 0 || layer >= h.layers ||
        !entry.is_object()) {
      return WrongValue(what, "per_layer_config", fmt::format("objects by layer number below {}", h.layers), Json(key));
    }
    for (const auto& [name, value] : entry.as_object()) {
      int64_t LayerShape::*member = nullptr;
      if (name == "head_dim") member = &LayerShape::head_dim;
      if (name == "num_key_value_heads") member = &LayerShape::kv_heads;
      if (name == "intermediate_size") member = &LayerShape::ffn_dim;
      const bool same_heads = name == "num_attention_heads" && value == Json(h.heads);
      if (member == nullptr && !same_heads) {
        return UnsupportedError(fmt::format("{}: per_layer_config.{}.{}: {} cannot differ by layer for this model type",
                                            what, key, name.substr(0, 60), WriteJson(value).substr(0, 60)));
      }
      if (member == nullptr || value.is_null()) continue;
      if (!value.is_int() || value.as_int() < 1 || static_cast<double>(value.as_int()) > kMaxDimension) {
        return WrongValue(what, fmt::format("per_layer_config.{}.{}", key, name), "a positive number", value);
      }
      h.layer[static_cast<size_t>(layer)].*member = value.as_int();
    }
  }
  return Status();
}

// What makes layers of one model differ.
Status ReadLayers(const ArchSpec& spec, const Json& config, std::string_view what, const FieldValues& values,
                  HParams& h) {
  const bool mla = spec.block.attention == Attention::kMla;
  for (int64_t i = 0; i < h.layers; ++i) {
    h.layer.push_back({.head_dim = mla ? h.qk_nope_dim + h.qk_rope_dim : values.whole(HParamField::kHeadDim),
                       .kv_heads = mla ? 1 : values.whole(HParamField::kKvHeads),
                       .ffn_dim = values.whole(HParamField::kFfnDim),
                       .kv_layer = static_cast<int32_t>(i)});
  }
  if (!mla) RETURN_IF_ERROR(ReadListed(config, "num_key_value_heads", what, h, &LayerShape::kv_heads));
  RETURN_IF_ERROR(ReadListed(config, "intermediate_size", what, h, &LayerShape::ffn_dim));
  RETURN_IF_ERROR(ReadMoeLayers(spec, config, what, values, h));
  if (spec.block.activation == Activation::kXielu) RETURN_IF_ERROR(ReadXielu(config, what, h));
  ASSIGN_OR_RETURN(const std::vector<bool> sliding, ReadWindows(spec, config, what, values, h));
  const int64_t global_head_dim = values.whole(HParamField::kGlobalHeadDim);
  const bool listed = FindGiven(config, "per_layer_config") != nullptr && !values.given(HParamField::kGlobalHeadDim);
  for (size_t i = 0; i < h.layer.size(); ++i) {
    LayerShape& layer = h.layer[i];
    if (sliding[i]) continue;
    if (global_head_dim > 0 && !listed) layer.head_dim = global_head_dim;
    if (!values.flag(HParamField::kValueIsKey)) continue;
    layer.value_is_key = true;
    if (values.whole(HParamField::kGlobalKvHeads) > 0) layer.kv_heads = values.whole(HParamField::kGlobalKvHeads);
  }
  RETURN_IF_ERROR(ReadPerLayerConfig(spec, config, what, h));
  if (IsDrafter(spec)) {
    for (LayerShape& layer : h.layer) layer.kv_layer = -1;
  } else {
    RETURN_IF_ERROR(ShareKv(values, sliding, what, h));
  }
  RETURN_IF_ERROR(CheckHeads(h, what));
  RETURN_IF_ERROR(ReadRopes(spec, config, what, values, sliding, h));
  return mla ? Status() : CheckRotation(h, what);
}

template <typename Value>
int64_t Largest(const std::vector<LayerShape>& layers, Value value) {
  int64_t largest = 0;
  for (const LayerShape& layer : layers) largest = std::max(largest, value(layer));
  return largest;
}

}  // namespace

Status internal::WrongValue(std::string_view what, std::string_view key, std::string_view expected, const Json& found) {
  std::string text = WriteJson(found);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return DataLossError(fmt::format("{}: {}: expected {}, found {}", what, key, expected, text));
}

const Json* internal::FindGiven(const Json& object, std::string_view key) {
  const Json* const found = object.Find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

int64_t HParams::max_head_dim() const {
  return Largest(layer, [](const LayerShape& l) { return l.head_dim; });
}
int64_t HParams::max_kv_out() const {
  return Largest(layer, [](const LayerShape& l) { return l.kv_heads * l.head_dim; });
}
int64_t HParams::max_ffn_dim() const {
  return Largest(layer, [](const LayerShape& l) { return l.ffn_dim; });
}

uint32_t HParams::rotation_side(int64_t rope_length) const {
  uint32_t side = 0;
  for (const RopeParams& rope : ropes) {
    if (static_cast<double>(rope_length) <= rope.original_positions) continue;
    if (rope.kind == RopeKind::kLongRope) side = std::max<uint32_t>(side, 1);
    if (rope.kind == RopeKind::kDynamic) side = static_cast<uint32_t>(rope_length);
  }
  return side;
}

int64_t HParams::rope_switch_length() const {
  for (const RopeParams& rope : ropes) {
    if (rope.kind == RopeKind::kLongRope && rope.short_factor != rope.long_factor) {
      return static_cast<int64_t>(rope.original_positions);
    }
  }
  return 0;
}

Result<HParams> ReadHParams(const ArchSpec& spec, const Json& config, std::string_view what) {
  const Json flat = FlatConfig(config);
  FieldValues values;
  RETURN_IF_ERROR(ReadFields(spec, flat, what, values));
  RETURN_IF_ERROR(CheckActivation(spec, flat, what));

  HParams h;
  h.vocab_size = values.whole(HParamField::kVocabSize);
  h.model_dim = values.whole(HParamField::kModelDim);
  h.layers = values.whole(HParamField::kLayers);
  h.heads = values.whole(HParamField::kHeads);
  if (values.whole(HParamField::kKvHeads) == 0) values[HParamField::kKvHeads].value = static_cast<double>(h.heads);
  if (values.whole(HParamField::kHeadDim) == 0 && h.heads > 0) {
    values[HParamField::kHeadDim].value = static_cast<double>(h.model_dim / h.heads);
  }
  h.rms_epsilon = values.real(HParamField::kRmsEpsilon);
  h.norm_offset = values.real(HParamField::kNormPlusOne);
  h.max_positions = values.whole(HParamField::kMaxPositions);
  h.tied = values.flag(HParamField::kTied);
  h.tied_given = values.given(HParamField::kTied);
  const bool gguf = IsGguf(config);  // whose flags are derived from some of the tensors
  const auto bias = [&](HParamField field) {
    return values.given(field) && !gguf ? std::optional(values.flag(field)) : std::nullopt;
  };
  h.attention_bias = bias(HParamField::kAttentionBias);
  h.attention_out_bias = bias(HParamField::kAttentionOutBias);
  h.mlp_bias = bias(HParamField::kMlpBias);
  h.qk_norm = values.flag(HParamField::kQkNorm);
  h.rope_interleaved = values.given(HParamField::kRopeInterleaved) ? values.flag(HParamField::kRopeInterleaved)
                                                                   : spec.block.rope == RopeForm::kPairs;
  h.attention_softcap = values.real(HParamField::kAttentionSoftcap);
  h.logit_softcap = values.real(HParamField::kLogitSoftcap);
  h.query_rank = values.whole(HParamField::kQueryRank);
  h.kv_rank = values.whole(HParamField::kKvRank);
  h.qk_rope_dim = values.whole(HParamField::kQkRopeDim);
  h.qk_nope_dim = values.whole(HParamField::kQkNopeDim);
  h.value_dim = values.whole(HParamField::kValueDim);
  const bool moe =
      spec.block.ffn == Ffn::kMoe || (spec.block.ffn == Ffn::kDenseAndMoe && values.flag(HParamField::kMoeEnabled));
  RETURN_IF_ERROR(RefuseUnknownMaths(spec, flat, moe, what));
  if (moe) {
    h.experts = values.whole(HParamField::kExperts);
    h.experts_per_token = values.whole(HParamField::kExpertsPerToken);
    h.expert_ffn_dim = values.whole(HParamField::kExpertFfnDim);
    h.norm_topk = values.flag(HParamField::kNormTopK);
  }
  h.per_layer_dim = values.whole(HParamField::kPerLayerDim);
  h.per_layer_vocab = values.whole(HParamField::kPerLayerVocab);
  h.backbone_dim = values.whole(HParamField::kBackboneDim);
  h.centroids = values.whole(HParamField::kCentroids);
  h.centroid_top_k = values.whole(HParamField::kCentroidTopK);
  h.ordered_embeddings = values.flag(HParamField::kOrderedEmbeddings);
  RETURN_IF_ERROR(CheckDimensions(spec, values, h, what));
  if (spec.block.embed_scale == EmbedScale::kSqrtModelDim) {
    h.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(h.model_dim)));
  }
  RETURN_IF_ERROR(ReadLayers(spec, flat, what, values, h));
  // The one kind whose max_position_embeddings is the length before stretching.
  if (h.ropes.front().kind == RopeKind::kDynamic) {
    h.max_positions =
        static_cast<int64_t>(std::min(static_cast<double>(h.max_positions) * h.ropes.front().factor, kMaxDimension));
  }
  const double scalar = values.real(HParamField::kQueryScalar);
  h.attention_scale = 1 / std::sqrt(scalar > 0 ? scalar : static_cast<double>(h.layer.front().head_dim));
  const RopeParams& rope = h.ropes.front();
  if (spec.block.attention == Attention::kMla && rope.kind != RopeKind::kDefault && rope.mscale_all_dim > 0) {
    // As in the authors' code: stretched contexts sharpen the scores, beside the factor on cosines and sines.
    const double mscale = rope.factor <= 1 ? 1 : 0.1 * rope.mscale_all_dim * Log(rope.factor) + 1;
    h.attention_scale *= mscale * mscale;
  }
  return h;
}

}  // namespace nunspark
