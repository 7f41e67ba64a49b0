#include "text/tokenizer/json_section.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace nunspark::text {

std::optional<JsonSection> JsonSection::Member(std::string_view key) const {
  const Json* member = value_.Find(key);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonSection(*member, fmt::format("{}.{}", where_, key));
}

Result<JsonSection> JsonSection::Required(std::string_view key) const {
  if (!value_.is_object()) return Mismatch("object");
  std::optional<JsonSection> member = Member(key);
  if (!member.has_value()) return Malformed(fmt::format("expected a member '{}', found none", key));
  return *member;
}

Result<std::string> JsonSection::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonSection member, Required(key));
  if (!member.value_.is_string()) return member.Mismatch("string");
  return member.value_.as_string();
}

Result<std::string> JsonSection::StringOr(std::string_view key, std::string_view fallback) const {
  if (!Member(key).has_value()) return std::string(fallback);
  return String(key);
}

Result<bool> JsonSection::BoolOr(std::string_view key, bool fallback) const {
  const std::optional<JsonSection> member = Member(key);
  if (!member.has_value()) return fallback;
  if (!member->value_.is_bool()) return member->Mismatch("boolean");
  return member->value_.as_bool();
}

Result<int64_t> JsonSection::Int(std::string_view key, int64_t low, int64_t high) const {
  ASSIGN_OR_RETURN(const JsonSection member, Required(key));
  if (!member.value_.is_int()) return member.Mismatch("integer");
  const int64_t number = member.value_.as_int();
  if (number < low || number > high) {
    return member.Malformed(fmt::format("expected an integer from {} to {}, found {}", low, high, number));
  }
  return number;
}

Result<int64_t> JsonSection::IntOr(std::string_view key, int64_t low, int64_t high, int64_t fallback) const {
  if (!Member(key).has_value()) return fallback;
  return Int(key, low, high);
}

Result<std::string> JsonSection::Character(std::string_view key) const {
  ASSIGN_OR_RETURN(std::string text, String(key));
  if (text.empty() || DecodeUtf8(text, 0).bytes != text.size()) {
    return JsonSection(value_, fmt::format("{}.{}", where_, key))
        .Malformed(fmt::format("expected one character, found {}", JsonQuote(text.substr(0, 40))));
  }
  return text;
}

Result<std::vector<JsonSection>> JsonSection::Array(std::string_view key, size_t count_max) const {
  ASSIGN_OR_RETURN(const JsonSection member, Required(key));
  if (!member.value_.is_array()) return member.Mismatch("array");
  const Json::Array& items = member.value_.as_array();
  if (items.size() > count_max) {
    return member.Malformed(fmt::format("expected at most {} elements, found {}", count_max, items.size()));
  }
  std::vector<JsonSection> sections;
  sections.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) sections.emplace_back(items[i], fmt::format("{}[{}]", member.where_, i));
  return sections;
}

Status JsonSection::Mismatch(std::string_view expected) const {
  return DataLossError(fmt::format("{}: expected {}, found {}", where_, expected, value_.TypeName()));
}

Status JsonSection::Malformed(std::string_view reason) const {
  return DataLossError(fmt::format("{}: {}", where_, reason));
}

Status JsonSection::Unsupported(std::string_view reason) const {
  return UnsupportedError(fmt::format("{}: {}", where_, reason));
}

}  // namespace nunspark::text
