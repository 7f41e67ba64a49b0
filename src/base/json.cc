#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/json_text.h"
#include "base/utf8.h"

namespace nunspark {
namespace {

namespace od = simdjson::ondemand;

// Deeper documents are refused: recursion follows nesting.
constexpr int kMaxDepth = 512;

Status Malformed(std::string_view what, std::string_view reason) {
  return DataLossError(fmt::format("{}: not valid JSON: {}", what, reason));
}

// A Result-free walk: simdjson errors are collected into `error` and unwound.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::string_view what) : what_(what) {}

  Status Build(od::value value, int depth, Json& out) {
    if (depth > kMaxDepth) return Malformed(what_, fmt::format("nested deeper than {} levels", kMaxDepth));
    od::json_type type = od::json_type::null;
    RETURN_IF_ERROR(Take(value.type(), type));
    switch (type) {
      case od::json_type::object: return BuildObject(value, depth, out);
      case od::json_type::array: return BuildArray(value, depth, out);
      case od::json_type::string: {
        std::string_view text;
        RETURN_IF_ERROR(Take(value.get_string(), text));
        out = Json(text);
        return Status();
      }
      case od::json_type::number: {
        std::string_view token = value.raw_json_token();
        return Number(token, out);
      }
      case od::json_type::boolean: {
        bool flag = false;
        RETURN_IF_ERROR(Take(value.get_bool(), flag));
        out = Json(flag);
        return Status();
      }
      case od::json_type::null: {
        bool is_null = false;
        RETURN_IF_ERROR(Take(value.is_null(), is_null));
        if (!is_null) return Malformed(what_, "a token that is no value");
        out = Json();
        return Status();
      }
    }
    return Malformed(what_, "unknown kind of value");
  }

  // Reads a whole number token; `token` may have white space after it.
  Status Number(std::string_view token, Json& out) {
    token = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
    if (!IsJsonNumber(token)) return Malformed(what_, fmt::format("'{}' is no number", token.substr(0, 40)));
    const char* const end = token.data() + token.size();
    if (token.find_first_of(".eE") == std::string_view::npos) {
      int64_t integer = 0;
      const auto result = std::from_chars(token.data(), end, integer);
      if (result.ec == std::errc() && result.ptr == end) {
        out = Json(integer);
        return Status();
      }
    }
    double number = 0;
    const auto result = std::from_chars(token.data(), end, number);
    if (result.ec == std::errc::result_out_of_range) {
      // Python's json reads 1e999 as infinity and 1e-999 as zero.
      number = std::strtod(std::string(token).c_str(), nullptr);
    }
    out = Json(number);
    return Status();
  }

 private:
  template <typename T>
  Status Take(simdjson::simdjson_result<T> result, T& out) {
    const simdjson::error_code error = std::move(result).get(out);
    if (error != simdjson::SUCCESS) return Malformed(what_, simdjson::error_message(error));
    return Status();
  }

  Status BuildObject(od::value value, int depth, Json& out) {
    od::object object;
    RETURN_IF_ERROR(Take(value.get_object(), object));
    Json::Object members;
    for (auto field_result : object) {
      od::field field;
      RETURN_IF_ERROR(Take(std::move(field_result), field));
      std::string_view key;
      RETURN_IF_ERROR(Take(field.unescaped_key(), key));
      std::string owned_key(key);
      Json member;
      RETURN_IF_ERROR(Build(field.value(), depth + 1, member));
      members.emplace_back(std::move(owned_key), std::move(member));
    }
    DropRepeatedKeys(members);
    out = Json(std::move(members));
    return Status();
  }

  Status BuildArray(od::value value, int depth, Json& out) {
    od::array array;
    RETURN_IF_ERROR(Take(value.get_array(), array));
    Json::Array items;
    for (auto item_result : array) {
      od::value item;
      RETURN_IF_ERROR(Take(std::move(item_result), item));
      RETURN_IF_ERROR(Build(item, depth + 1, items.emplace_back()));
    }
    out = Json(std::move(items));
    return Status();
  }

  // The last value of a repeated key wins and keeps the first one's place, as in Python.
  static void DropRepeatedKeys(Json::Object& members);

  std::string_view what_;
};

void TreeBuilder::DropRepeatedKeys(Json::Object& members) {
  if (members.size() < 2) return;
  std::vector<std::pair<std::string_view, size_t>> order;
  order.reserve(members.size());
  for (size_t i = 0; i < members.size(); ++i) order.emplace_back(members[i].first, i);
  std::sort(order.begin(), order.end());
  std::vector<bool> drop(members.size(), false);
  bool any = false;
  for (size_t i = 0; i < order.size();) {
    size_t last = i;
    while (last + 1 < order.size() && order[last + 1].first == order[i].first) ++last;
    if (last > i) {
      any = true;
      members[order[i].second].second = std::move(members[order[last].second].second);
      for (size_t k = i + 1; k <= last; ++k) drop[order[k].second] = true;
    }
    i = last + 1;
  }
  if (!any) return;
  Json::Object kept;
  kept.reserve(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (!drop[i]) kept.push_back(std::move(members[i]));
  }
  members = std::move(kept);
}

void AppendQuoted(std::string_view text, std::string& out) {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  out += '"';
  for (const char c : text) AppendJsonEscaped(c, out);
  out += '"';
}

void Append(const Json& value, int indent, int level, std::string& out) {
  const auto new_line = [&](int at) {
    if (indent == 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * at), ' ');
  };
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_double()) {
    const double number = value.as_double();
    std::string text = std::isfinite(number) ? fmt::format("{}", number) : "null";
    // 1.0 must not come back as the integer 1.
    if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
    out += text;
  } else if (value.is_string()) {
    AppendQuoted(value.as_string(), out);
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.as_array()) {
      if (!first) out += ',';
      first = false;
      new_line(level + 1);
      Append(item, indent, level + 1, out);
    }
    if (!first) new_line(level);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.as_object()) {
      if (!first) out += ',';
      first = false;
      new_line(level + 1);
      AppendQuoted(key, out);
      out += indent == 0 ? ":" : ": ";
      Append(member, indent, level + 1, out);
    }
    if (!first) new_line(level);
    out += '}';
  }
}

}  // namespace

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

Json& Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (auto& [name, old] : as_object()) {
    if (name == key) return old = std::move(value);
  }
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

std::string_view Json::TypeName() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_int()) return "integer";
  if (is_double()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

Result<Json> ParseJson(std::string_view text, std::string_view what) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const simdjson::padded_string padded(text);
  od::parser parser;
  od::document document;
  if (const simdjson::error_code error = parser.iterate(padded).get(document); error != simdjson::SUCCESS) {
    return Malformed(what, simdjson::error_message(error));
  }
  TreeBuilder builder(what);
  Json root;
  od::json_type type = od::json_type::null;
  if (const simdjson::error_code error = document.type().get(type); error != simdjson::SUCCESS) {
    return Malformed(what, simdjson::error_message(error));
  }
  // On-Demand has no value view of a scalar document.
  if (type == od::json_type::object || type == od::json_type::array) {
    od::value value;
    if (const simdjson::error_code error = document.get_value().get(value); error != simdjson::SUCCESS) {
      return Malformed(what, simdjson::error_message(error));
    }
    RETURN_IF_ERROR(builder.Build(value, 0, root));
  } else {
    return Malformed(what, "expected an object or an array");
  }
  // The location is an error exactly when nothing is left.
  if (document.current_location().error() == simdjson::SUCCESS) {
    return Malformed(what, "text after the end of the document");
  }
  return root;
}

std::string WriteJson(const Json& value, int indent) {
  std::string out;
  Append(value, indent, 0, out);
  return out;
}

std::string JsonQuote(std::string_view text) {
  std::string out;
  AppendQuoted(text, out);
  return out;
}

void AppendJsonEscaped(char c, std::string& out) {
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\b': out += "\\b"; break;
    case '\f': out += "\\f"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
  }
}

bool IsJsonNumber(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t start = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - start;
  };
  const bool leading_zero = text.substr(at).starts_with('0');
  const size_t whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

}  // namespace nunspark
