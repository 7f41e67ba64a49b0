#include "formats/manifest_members.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "formats/tensor_index.h"

namespace nunspark {

namespace od = simdjson::ondemand;

std::string ManifestPlace::Text() const {
  return tensor.has_value() ? fmt::format("pieces[{}].tensors[{}]", piece, *tensor) : fmt::format("pieces[{}]", piece);
}

Status ManifestJsonError(std::string_view what, simdjson::error_code error) {
  const std::string message = fmt::format("{}: not valid JSON: {}", what, simdjson::error_message(error));
  return error == simdjson::MEMALLOC ? ResourceExhaustedError(fmt::format("{}: no memory to read it", what))
                                     : DataLossError(message);
}

Result<std::string_view> ManifestTypeName(std::string_view what, od::value value) {
  od::json_type type = od::json_type::null;
  if (const auto error = value.type().get(type)) return ManifestJsonError(what, error);
  switch (type) {
    case od::json_type::array: return std::string_view("array");
    case od::json_type::object: return std::string_view("object");
    case od::json_type::number: break;
    case od::json_type::string: return std::string_view("string");
    case od::json_type::boolean: return std::string_view("boolean");
    case od::json_type::null: return std::string_view("null");
  }
  int64_t integer = 0;
  return std::string_view(value.get_int64().get(integer) == simdjson::SUCCESS ? "integer" : "number");
}

ManifestMembers::ManifestMembers(std::string_view what, std::span<const std::string_view> keys)
    : what_(what), keys_(keys) {
  CHECK(keys.size() <= kMaxKeys);
}

Status ManifestMembers::Read(od::value value, ManifestPlace place) {
  place_ = place;
  members_ = {};
  od::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) {
    ASSIGN_OR_RETURN(const std::string_view found, ManifestTypeName(what_, value));
    if (found == "object") return ManifestJsonError(what_, simdjson::INCOMPLETE_ARRAY_OR_OBJECT);
    return DataLossError(fmt::format("{}: {}: expected an object, found {}", what_, place_.Text(), found));
  }
  for (auto result : object) {
    od::field field;
    if (const auto error = std::move(result).get(field)) return ManifestJsonError(what_, error);
    ASSIGN_OR_RETURN(const size_t key, FindKey(field));
    if (!members_[key].type.empty()) return Wrong(key, "one such field", "a second one");
    RETURN_IF_ERROR(ReadMember(field.value(), members_[key]));
  }
  return Status();
}

Result<size_t> ManifestMembers::FindKey(od::field& field) const {
  // As it stands in the text first: unescaping copies, and nobody escapes these names.
  const od::raw_json_string raw = field.key();
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (raw.unsafe_is_equal(keys_[i])) return i;
  }
  std::string_view name;
  if (const auto error = field.unescaped_key().get(name)) return ManifestJsonError(what_, error);
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (name == keys_[i]) return i;
  }
  ASSIGN_OR_RETURN(const std::string_view found, ManifestTypeName(what_, field.value()));
  return DataLossError(
      fmt::format("{}: {}.{}: expected no such field, found {}", what_, place_.Text(), QuoteName(name), found));
}

Status ManifestMembers::ReadMember(od::value value, Member& member) const {
  od::json_type type = od::json_type::null;
  if (const auto error = value.type().get(type)) return ManifestJsonError(what_, error);
  if (type == od::json_type::array) {
    member.type = "array";
    if (const auto error = value.get_array().get(member.items)) return ManifestJsonError(what_, error);
  } else if (type == od::json_type::string) {
    member.type = "string";
    const std::string_view token = value.raw_json_token();  // with the white space behind it
    if (token.find('\\') == std::string_view::npos) {
      member.text = token.substr(1, token.rfind('"') - 1);
    } else if (const auto error = value.get_string().get(member.text)) {
      return ManifestJsonError(what_, error);
    }
  } else if (type == od::json_type::number && value.get_int64().get(member.integer) == simdjson::SUCCESS) {
    member.type = "integer";
  } else {
    ASSIGN_OR_RETURN(member.type, ManifestTypeName(what_, value));
  }
  return Status();
}

Result<int64_t> ManifestMembers::Int(size_t key, int64_t low, int64_t high) const {
  const Member& member = members_[key];
  const auto expected = [&] {
    return low == high ? fmt::format("{}", low) : fmt::format("an integer from {} to {}", low, high);
  };
  if (member.type != "integer") return WrongType(key, expected());
  if (member.integer < low || member.integer > high) return Wrong(key, expected(), fmt::format("{}", member.integer));
  return member.integer;
}

Result<std::string_view> ManifestMembers::String(size_t key) const {
  if (members_[key].type != "string") return WrongType(key, "a string");
  return members_[key].text;
}

Result<od::array> ManifestMembers::Array(size_t key) {
  if (members_[key].type != "array") return WrongType(key, "a list");
  od::array items = members_[key].items;
  // Read walked past it.
  if (const auto error = items.reset().error()) return ManifestJsonError(what_, error);
  return items;
}

Status ManifestMembers::WrongType(size_t key, std::string_view expected) const {
  return Wrong(key, expected, members_[key].type.empty() ? "nothing" : members_[key].type);
}

Status ManifestMembers::Wrong(size_t key, std::string_view expected, std::string_view found) const {
  return DataLossError(
      fmt::format("{}: {}.{}: expected {}, found {}", what_, place_.Text(), keys_[key], expected, found));
}

}  // namespace nunspark
