#include "formats/config.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace nunspark {
namespace {

// More stop tokens than any vocabulary needs; the list is searched for every token.
constexpr size_t kMaxEosIds = 1024;

bool Absent(const Json& object, std::string_view key) {
  const Json* const value = object.Find(key);
  return value == nullptr || value->is_null();
}

bool IsPerLayerType(const Json& rope) {
  return std::any_of(rope.as_object().begin(), rope.as_object().end(),
                     [](const Json::Member& member) { return member.second.is_object(); });
}

Status LiftNumber(const Json& rope, std::string_view key, std::string_view what, Json& config) {
  if (Absent(rope, key) || !Absent(config, key)) return Status();
  const Json value = *rope.Find(key);
  if (!value.is_number()) {
    return DataLossError(
        fmt::format("{}: rope_parameters.{}: expected a number, found {}", what, key, value.TypeName()));
  }
  config.Set(key, value);
  return Status();
}

Status LiftRope(std::string_view what, Json& config) {
  if (Absent(config, "rope_parameters")) return Status();
  const Json rope = *config.Find("rope_parameters");
  if (!rope.is_object()) {
    return DataLossError(fmt::format("{}: rope_parameters: expected an object, found {}", what, rope.TypeName()));
  }
  if (IsPerLayerType(rope)) return Status();
  RETURN_IF_ERROR(LiftNumber(rope, "rope_theta", what, config));
  RETURN_IF_ERROR(LiftNumber(rope, "partial_rotary_factor", what, config));
  if (!Absent(config, "rope_scaling")) return Status();
  const Json* type = rope.Find("rope_type");
  if (type == nullptr) type = rope.Find("type");
  if (type != nullptr && !type->is_string() && !type->is_null()) {
    return DataLossError(
        fmt::format("{}: rope_parameters.rope_type: expected a string, found {}", what, type->TypeName()));
  }
  if (type == nullptr || type->is_null() || type->as_string() == "default") {
    config.Set("rope_scaling", Json());
    return Status();
  }
  Json scaling{Json::Object()};
  for (const auto& [key, value] : rope.as_object()) {
    if (key != "rope_theta" && key != "partial_rotary_factor") scaling.Set(key, value);
  }
  config.Set("rope_scaling", std::move(scaling));
  return Status();
}

Result<std::vector<int32_t>> ReadIds(const Json& value, std::string_view what) {
  const auto wrong = [&](const Json& found) {
    return DataLossError(fmt::format("{}: eos_token_id: expected token ids from 0 to {}, found {}", what,
                                     std::numeric_limits<int32_t>::max(),
                                     found.is_int() ? WriteJson(found) : found.TypeName()));
  };
  std::vector<int32_t> ids;
  const auto add = [&](const Json& id) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > std::numeric_limits<int32_t>::max()) return false;
    const auto narrow = static_cast<int32_t>(id.as_int());
    if (std::find(ids.begin(), ids.end(), narrow) == ids.end()) ids.push_back(narrow);
    return true;
  };
  if (!value.is_array()) {
    if (!add(value)) return wrong(value);
    return ids;
  }
  if (value.as_array().size() > kMaxEosIds) {
    return DataLossError(
        fmt::format("{}: eos_token_id: expected at most {} ids, found {}", what, kMaxEosIds, value.as_array().size()));
  }
  for (const Json& id : value.as_array()) {
    if (!add(id)) return wrong(id);
  }
  return ids;
}

// What the tools that write these files (Python) take for "set".
bool IsTruthy(const Json& value) {
  if (value.is_array()) return !value.as_array().empty();
  return !value.is_null() && !(value.is_number() && value.as_double() == 0);
}

}  // namespace

Result<Json> NormalizeConfig(Json config, std::string_view what) {
  if (!config.is_object()) {
    return DataLossError(fmt::format("{}: expected an object, found {}", what, config.TypeName()));
  }
  RETURN_IF_ERROR(LiftRope(what, config));
  if (const Json* const text = config.Find("text_config"); text != nullptr && text->is_object()) {
    Json lifted = *text;
    RETURN_IF_ERROR(LiftRope(fmt::format("{}: text_config", what), lifted));
    config.Set("text_config", std::move(lifted));
  }
  return config;
}

Result<std::vector<int32_t>> EosIds(const Json& config, std::string_view config_what, const Json* generation,
                                    std::string_view generation_what) {
  if (generation != nullptr) {
    const Json* const ids = generation->Find("eos_token_id");
    if (ids != nullptr && IsTruthy(*ids)) return ReadIds(*ids, generation_what);
  }
  if (!Absent(config, "eos_token_id")) return ReadIds(*config.Find("eos_token_id"), config_what);
  const Json* const text = config.Find("text_config");
  if (text != nullptr && !Absent(*text, "eos_token_id")) {
    return ReadIds(*text->Find("eos_token_id"), fmt::format("{}: text_config", config_what));
  }
  return std::vector<int32_t>();
}

}  // namespace nunspark
