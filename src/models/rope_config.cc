#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/math.h"
#include "models/arch_spec.h"
#include "models/config_reader.h"

namespace nunspark::internal {
namespace {

struct NamedKind {
  std::string_view name;
  RopeKind kind;
};
constexpr NamedKind kKinds[] = {
    {"default", RopeKind::kDefault},    {"linear", RopeKind::kLinear},
    {"llama3", RopeKind::kLlama3},      {"yarn", RopeKind::kYarn},
    {"deepseek_yarn", RopeKind::kYarn}, {"telechat3-yarn", RopeKind::kYarn},
    {"dynamic", RopeKind::kDynamic},    {"longrope", RopeKind::kLongRope},
    {"su", RopeKind::kLongRope},        {"proportional", RopeKind::kProportional},
    {"mrope", RopeKind::kDefault},  // of text alone, all three positions are one
};

// Far beyond any length, factor or frequency ratio; whole numbers up to it are exact.
constexpr double kMaxNumber = 1 << 28;

// What the definition of one rope needs besides its own object.
struct RopeContext {
  std::string what;  // "config.json: rope_scaling"
  double theta = 0;
  int64_t rotary_dim = 0;
  double max_positions = 0;
  double original_positions = 0;  // given beside the object; 0 = not
};

Status ReadNumber(const Json& object, std::string_view key, const RopeContext& context, double& value) {
  const Json* const found = FindGiven(object, key);
  if (found == nullptr) return Status();
  if (!found->is_number() || !(found->as_double() >= 0 && found->as_double() <= kMaxNumber)) {
    return WrongValue(context.what, key, "a number from 0 to 2^28", *found);
  }
  value = found->as_double();
  return Status();
}

Status ReadFactors(const Json& object, std::string_view key, const RopeContext& context, std::vector<double>& factors) {
  const Json* const found = FindGiven(object, key);
  const std::string expected = fmt::format("{} positive numbers", context.rotary_dim / 2);
  if (found == nullptr) return WrongValue(context.what, key, expected, Json());
  if (!found->is_array() || static_cast<int64_t>(found->as_array().size()) != context.rotary_dim / 2) {
    return WrongValue(context.what, key, expected, *found);
  }
  for (const Json& factor : found->as_array()) {
    if (!factor.is_number() || !(factor.as_double() > 0) || !std::isfinite(factor.as_double())) {
      return WrongValue(context.what, key, expected, factor);
    }
    factors.push_back(factor.as_double());
  }
  return Status();
}

Result<std::string> KindName(const Json& object, const RopeContext& context) {
  for (const char* key : {"type", "rope_type"}) {
    const Json* const found = FindGiven(object, key);
    if (found == nullptr) continue;
    if (!found->is_string()) return WrongValue(context.what, key, "a string", *found);
    if (!found->as_string().empty()) return found->as_string();
  }
  return std::string("default");
}

Status ReadLongRope(const Json& object, const RopeContext& context, RopeParams& rope) {
  RETURN_IF_ERROR(ReadFactors(object, "short_factor", context, rope.short_factor));
  RETURN_IF_ERROR(ReadFactors(object, "long_factor", context, rope.long_factor));
  if (rope.original_positions >= 1) {
    rope.factor = context.max_positions / rope.original_positions;
    return Status();
  }
  if (rope.attention_factor > 0 && rope.short_factor == rope.long_factor) return Status();
  return DataLossError(
      fmt::format("{}: the trained length is unknown: original_max_position_embeddings is missing", context.what));
}

Status CheckKind(const Json& object, const RopeContext& context, const RopeParams& rope) {
  if (rope.factor < 1) {
    const Json* const factor = object.Find("factor");
    return WrongValue(context.what, "factor", "a number >= 1", factor == nullptr ? Json() : *factor);
  }
  const bool trained =
      rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn || rope.kind == RopeKind::kDynamic;
  if (trained && rope.original_positions < 1) {
    return DataLossError(
        fmt::format("{}: the trained length is unknown: neither original_max_position_embeddings nor "
                    "max_position_embeddings is given",
                    context.what));
  }
  if (rope.kind == RopeKind::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor && rope.low_freq_factor > 0)) {
    return DataLossError(fmt::format("{}: expected 0 < low_freq_factor < high_freq_factor, found {} and {}",
                                     context.what, rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.kind == RopeKind::kYarn && !(rope.beta_fast > 0 && rope.beta_slow > 0)) {
    return DataLossError(fmt::format("{}: beta_fast and beta_slow must be positive", context.what));
  }
  return Status();
}

// One rope_scaling object (or the members of rope_parameters that stand for it); null = plain.
Result<RopeParams> ReadRope(const Json* object, const RopeContext& context) {
  RopeParams rope;
  rope.theta = context.theta;
  rope.rotary_dim = context.rotary_dim;
  rope.original_positions = context.max_positions;
  if (object == nullptr || object->is_null()) return rope;
  if (!object->is_object())
    return DataLossError(
        fmt::format("{}: expected an object or null, found {}", context.what, WriteJson(*object).substr(0, 60)));
  ASSIGN_OR_RETURN(const std::string name, KindName(*object, context));
  const NamedKind* known = nullptr;
  std::string names;
  for (const NamedKind& kind : kKinds) {
    if (kind.name == name) known = &kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  if (known == nullptr) {
    return UnsupportedError(
        fmt::format("{}: rope type '{}' is not supported; supported: {}", context.what, name.substr(0, 60), names));
  }
  rope.kind = known->kind;
  if (rope.kind == RopeKind::kDefault) return rope;

  rope.factor = rope.kind == RopeKind::kProportional ? 1 : 0;
  RETURN_IF_ERROR(ReadNumber(*object, "factor", context, rope.factor));
  if (rope.kind == RopeKind::kLlama3) rope.original_positions = 8192;
  if (rope.kind == RopeKind::kLongRope) rope.original_positions = 0;
  if (context.original_positions > 0) rope.original_positions = context.original_positions;
  if (rope.kind != RopeKind::kDynamic) {
    RETURN_IF_ERROR(ReadNumber(*object, "original_max_position_embeddings", context, rope.original_positions));
  }
  RETURN_IF_ERROR(ReadNumber(*object, "low_freq_factor", context, rope.low_freq_factor));
  RETURN_IF_ERROR(ReadNumber(*object, "high_freq_factor", context, rope.high_freq_factor));
  RETURN_IF_ERROR(ReadNumber(*object, "beta_fast", context, rope.beta_fast));
  RETURN_IF_ERROR(ReadNumber(*object, "beta_slow", context, rope.beta_slow));
  RETURN_IF_ERROR(ReadNumber(*object, "mscale", context, rope.mscale));
  RETURN_IF_ERROR(ReadNumber(*object, "mscale_all_dim", context, rope.mscale_all_dim));
  RETURN_IF_ERROR(ReadNumber(*object, "attention_factor", context, rope.attention_factor));
  if (const Json* const truncate = FindGiven(*object, "truncate"); truncate != nullptr) {
    if (!truncate->is_bool()) return WrongValue(context.what, "truncate", "true or false", *truncate);
    rope.truncate = truncate->as_bool();
  }
  if (rope.kind == RopeKind::kProportional) {
    RETURN_IF_ERROR(ReadNumber(*object, "partial_rotary_factor", context, rope.rotated_share));
    if (rope.rotated_share > 1) {
      return WrongValue(context.what, "partial_rotary_factor", "a share from 0 to 1", Json(rope.rotated_share));
    }
  }
  if (rope.kind == RopeKind::kLongRope) {
    RETURN_IF_ERROR(ReadLongRope(*object, context, rope));
    return rope;
  }
  RETURN_IF_ERROR(CheckKind(*object, context, rope));
  // Of these two the definition is mlx-lm's (models/rope_utils.py), where mscale alone counts too.
  if (rope.kind == RopeKind::kYarn && name != "yarn" && rope.mscale > 0 && rope.mscale_all_dim == 0) {
    rope.attention_factor = rope.factor <= 1 ? 1 : 0.1 * rope.mscale * Log(rope.factor) + 1;
  }
  return rope;
}

Result<int64_t> RotaryDim(int64_t head_dim, double share, std::string_view what) {
  const int64_t dim = share <= 1 ? static_cast<int64_t>(static_cast<double>(head_dim) * share) : 0;
  if (dim < 2 || dim % 2 != 0) {
    return WrongValue(what, "partial_rotary_factor",
                      fmt::format("a share of head_dim ({}) that is a positive even number", head_dim), Json(share));
  }
  return dim;
}

// rope_parameters with one object per layer type; nullptr when there is none for `type`.
const Json* OfLayerType(const Json& config, std::string_view type) {
  const Json* const all = FindGiven(config, "rope_parameters");
  if (all == nullptr || !all->is_object()) return nullptr;
  return FindGiven(*all, type);
}

// The rope of one layer type, from its rope_parameters; `fallback` where it has none.
Result<RopeParams> ReadLayerTypeRope(const Json& config, std::string_view type, RopeContext context,
                                     const RopeParams& fallback) {
  const Json* const object = OfLayerType(config, type);
  if (object == nullptr) return fallback;
  if (!object->is_object())
    return WrongValue(context.what, fmt::format("rope_parameters.{}", type), "an object", *object);
  context.what = fmt::format("{}: rope_parameters.{}", context.what, type);
  context.theta = fallback.theta;
  if (const Json* const theta = FindGiven(*object, "rope_theta"); theta != nullptr) {
    if (!theta->is_number() || !(theta->as_double() > 0)) {
      return WrongValue(context.what, "rope_theta", "a positive number", *theta);
    }
    context.theta = theta->as_double();
  }
  return ReadRope(object, context);
}

Status CheckNotByLayerType(const Json& config, std::string_view what) {
  const Json* const nested = FindGiven(config, "rope_parameters");
  if (nested == nullptr || !nested->is_object()) return Status();
  for (const auto& [key, value] : nested->as_object()) {
    if (!value.is_object()) continue;
    return UnsupportedError(
        fmt::format("{}: rope_parameters.{}: parameters per layer type are not supported for this model type", what,
                    key.substr(0, 60)));
  }
  return Status();
}

// rope_scaling of the whole model.
Result<RopeParams> ReadFlat(const Json& config, RopeContext context) {
  context.what += ": rope_scaling";
  return ReadRope(FindGiven(config, "rope_scaling"), context);
}

Result<RopeParams> ReadAlpha(const Json& config, RopeContext context) {
  const Json* const scaling = FindGiven(config, "rope_scaling");
  double alpha = 0;
  if (scaling != nullptr && scaling->is_object()) {
    RETURN_IF_ERROR(ReadNumber(*scaling, "alpha", context, alpha));
  }
  if (!(alpha > 0)) return ReadFlat(config, context);
  const double dim = static_cast<double>(context.rotary_dim);
  context.theta *= Pow(alpha, dim / (dim - 2));
  return ReadRope(nullptr, context);
}

}  // namespace

Status ReadRopes(const ArchSpec& spec, const Json& config, std::string_view what, const FieldValues& values,
                 const std::vector<bool>& sliding, HParams& hparams) {
  const RopeConfig kind = spec.block.rope_config;
  RopeContext context{.what = std::string(what),
                      .theta = values.real(HParamField::kRopeTheta),
                      .rotary_dim = values.whole(HParamField::kHeadDim),
                      .max_positions = static_cast<double>(hparams.max_positions),
                      .original_positions = values.real(HParamField::kOriginalPositions)};
  if (spec.block.attention == Attention::kMla) context.rotary_dim = hparams.qk_rope_dim;
  const bool by_layer = kind == RopeConfig::kLocalGlobal || kind == RopeConfig::kByLayerType;
  if (!by_layer) RETURN_IF_ERROR(CheckNotByLayerType(config, what));
  if (kind == RopeConfig::kFlatPartial) {
    ASSIGN_OR_RETURN(context.rotary_dim, RotaryDim(context.rotary_dim, values.real(HParamField::kPartialRotary), what));
  } else if (const Json* const share = FindGiven(config, "partial_rotary_factor");
             share != nullptr && !by_layer && *share != Json(1.0) && *share != Json(1)) {
    return UnsupportedError(fmt::format("{}: partial_rotary_factor {} is not supported for this model type", what,
                                        WriteJson(*share).substr(0, 60)));
  }
  switch (kind) {
    case RopeConfig::kFlat:
    case RopeConfig::kFlatPartial: {
      ASSIGN_OR_RETURN(RopeParams rope, ReadFlat(config, context));
      hparams.ropes = {std::move(rope)};
      return Status();
    }
    case RopeConfig::kAlpha: {
      ASSIGN_OR_RETURN(RopeParams rope, ReadAlpha(config, context));
      hparams.ropes = {std::move(rope)};
      return Status();
    }
    case RopeConfig::kLocalGlobal: {
      ASSIGN_OR_RETURN(RopeParams global, ReadFlat(config, context));
      RopeParams local{.theta = values.real(HParamField::kRopeLocalTheta), .rotary_dim = context.rotary_dim};
      local.original_positions = context.max_positions;
      ASSIGN_OR_RETURN(global, ReadLayerTypeRope(config, "full_attention", context, global));
      ASSIGN_OR_RETURN(local, ReadLayerTypeRope(config, "sliding_attention", context, local));
      hparams.ropes = {std::move(global), std::move(local)};
      break;
    }
    case RopeConfig::kByLayerType: {
      RopeContext full = context;
      for (size_t i = 0; i < hparams.layer.size(); ++i) {
        (sliding[i] ? context : full).rotary_dim = hparams.layer[i].head_dim;
      }
      const RopeParams global_default{
          .kind = RopeKind::kProportional, .theta = 1e6, .rotary_dim = full.rotary_dim, .rotated_share = 0.25};
      const RopeParams local_default{.rotary_dim = context.rotary_dim};
      ASSIGN_OR_RETURN(RopeParams global, ReadLayerTypeRope(config, "full_attention", full, global_default));
      ASSIGN_OR_RETURN(RopeParams local, ReadLayerTypeRope(config, "sliding_attention", context, local_default));
      hparams.ropes = {std::move(global), std::move(local)};
      break;
    }
  }
  for (size_t i = 0; i < hparams.layer.size(); ++i) hparams.layer[i].rope = sliding[i] ? 1 : 0;
  return Status();
}

}  // namespace nunspark::internal
