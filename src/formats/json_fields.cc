#include "formats/json_fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/tensor_index.h"

namespace nunspark {

Result<JsonFields> JsonFields::Of(const Json& object, std::string_view what, std::string path) {
  if (!object.is_object()) {
    return DataLossError(
        fmt::format("{}{}{}: expected an object, found {}", what, path.empty() ? "" : ": ", path, object.TypeName()));
  }
  return JsonFields(object, what, std::move(path));
}

Status JsonFields::Wrong(std::string_view key, std::string_view expected, std::string_view found) const {
  return DataLossError(
      fmt::format("{}: {}{}{}: expected {}, found {}", what_, path_, path_.empty() ? "" : ".", key, expected, found));
}

Result<const Json*> JsonFields::Get(std::string_view key, std::string_view expected) const {
  const Json* const value = object_->Find(key);
  if (value == nullptr) return Wrong(key, expected, "nothing");
  return value;
}

Result<int64_t> JsonFields::Int(std::string_view key, int64_t low, int64_t high) const {
  const std::string expected =
      low == high ? fmt::format("{}", low) : fmt::format("an integer from {} to {}", low, high);
  ASSIGN_OR_RETURN(const Json* const value, Get(key, expected));
  if (!value->is_int()) return Wrong(key, expected, value->TypeName());
  if (value->as_int() < low || value->as_int() > high) return Wrong(key, expected, WriteJson(*value));
  return value->as_int();
}

Result<bool> JsonFields::Bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const Json* const value, Get(key, "true or false"));
  if (!value->is_bool()) return Wrong(key, "true or false", value->TypeName());
  return value->as_bool();
}

Result<std::string> JsonFields::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const Json* const value, Get(key, "a string"));
  if (!value->is_string()) return Wrong(key, "a string", value->TypeName());
  return value->as_string();
}

Result<const Json*> JsonFields::Array(std::string_view key) const {
  ASSIGN_OR_RETURN(const Json* const value, Get(key, "a list"));
  if (!value->is_array()) return Wrong(key, "a list", value->TypeName());
  return value;
}

Result<const Json*> JsonFields::Object(std::string_view key) const {
  ASSIGN_OR_RETURN(const Json* const value, Get(key, "an object"));
  if (!value->is_object()) return Wrong(key, "an object", value->TypeName());
  return value;
}

Status JsonFields::RefuseOthers(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object_->as_object()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return Wrong(QuoteName(key), "no such field", value.TypeName());
    }
  }
  return Status();
}

}  // namespace nunspark
