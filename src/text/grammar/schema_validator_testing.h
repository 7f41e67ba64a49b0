// A validator of JSON Schema for tests, written from the standard and not from the compiler.
#ifndef NUNSPARK_TEXT_GRAMMAR_SCHEMA_VALIDATOR_TESTING_H_
#define NUNSPARK_TEXT_GRAMMAR_SCHEMA_VALIDATOR_TESTING_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <regex>
#include <string>

#include "base/json.h"
#include "base/utf8.h"

namespace nunspark::text::testing {

// One JSON value of any type; the parser itself takes objects and lists alone.
inline Result<Json> ParseValue(std::string_view text) {
  ASSIGN_OR_RETURN(const Json list, ParseJson("[" + std::string(text) + "]", "value"));
  if (list.as_array().size() != 1) return InvalidArgumentError("expected one value");
  return list.as_array()[0];
}

class SchemaValidator {
 public:
  explicit SchemaValidator(const Json& root) : root_(root) {}

  bool Valid(const Json& value) const { return Valid(value, root_); }

 private:
  static double Length(const std::string& text) {
    double count = 0;
    for (size_t i = 0; i < text.size(); i += DecodeUtf8(text, i).bytes) ++count;
    return count;
  }

  static bool HasType(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_bool();
    if (type == "integer")
      return value.is_int() || (value.is_double() && value.as_double() == std::floor(value.as_double()));
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    return type == "object" && value.is_object();
  }

  static bool GoodDate(const std::string& text) {
    int year = 0;
    unsigned month = 0, day = 0;
    return std::sscanf(text.c_str(), "%4d-%2u-%2u", &year, &month, &day) == 3 && text.size() >= 10 &&
           std::chrono::year_month_day{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)}.ok();
  }

  static bool HasFormat(const std::string& text, const std::string& format) {
    if (format == "date") return text.size() == 10 && GoodDate(text);
    if (format == "date-time") return GoodDate(text) && text[10] == 'T' && HasFormat(text.substr(11), "time");
    if (format == "time") {
      int hour = 0, minute = 0, second = 0;
      return std::sscanf(text.c_str(), "%2d:%2d:%2d", &hour, &minute, &second) == 3 && hour < 24 && minute < 60 &&
             second < 60 && text.find_first_of("Z+-") != std::string::npos;
    }
    if (format == "uuid") return text.size() == 36 && std::count(text.begin(), text.end(), '-') == 4;
    if (format == "email") return std::count(text.begin(), text.end(), '@') == 1;
    if (format == "ipv4") {
      int parts[4];
      return std::sscanf(text.c_str(), "%d.%d.%d.%d", parts, parts + 1, parts + 2, parts + 3) == 4 &&
             std::all_of(parts, parts + 4, [](int part) { return part >= 0 && part < 256; });
    }
    if (format == "uri") return text.find("://") != std::string::npos;
    if (format == "duration") return text.size() > 2 && text[0] == 'P';
    if (format == "hostname") return !text.empty() && text.find("..") == std::string::npos;
    return false;
  }

  const Json& Target(const std::string& reference) const {
    const Json* at = &root_;
    for (size_t begin = 2; begin <= reference.size();) {
      const size_t end = std::min(reference.find('/', begin), reference.size());
      std::string key = reference.substr(begin, end - begin);
      for (const auto& [from, to] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
        for (size_t found = key.find(from); found != std::string::npos; found = key.find(from))
          key.replace(found, 2, to);
      }
      at = at->is_array() ? &at->as_array()[std::stoul(key)] : at->Find(key);
      begin = end + 1;
    }
    return *at;
  }

  bool Valid(const Json& value, const Json& schema) const {
    if (schema.is_bool()) return schema.as_bool();
    const Json* nullable = schema.Find("nullable");
    if (nullable != nullptr && nullable->as_bool() && value.is_null()) return true;
    for (const auto& [key, rule] : schema.as_object()) {
      if (!Holds(value, schema, key, rule)) return false;
    }
    return true;
  }

  bool Holds(const Json& value, const Json& schema, const std::string& key, const Json& rule) const {
    const auto branch = [&](const Json& s) { return Valid(value, s); };
    if (key == "$ref") return Valid(value, Target(rule.as_string()));
    if (key == "allOf") return std::all_of(rule.as_array().begin(), rule.as_array().end(), branch);
    if (key == "anyOf") return std::any_of(rule.as_array().begin(), rule.as_array().end(), branch);
    if (key == "oneOf") return std::count_if(rule.as_array().begin(), rule.as_array().end(), branch) == 1;
    if (key == "const") return value == rule;
    if (key == "enum") return std::find(rule.as_array().begin(), rule.as_array().end(), value) != rule.as_array().end();
    if (key == "type") {
      if (rule.is_string()) return HasType(value, rule.as_string());
      return std::any_of(rule.as_array().begin(), rule.as_array().end(),
                         [&](const Json& type) { return HasType(value, type.as_string()); });
    }
    if (value.is_number()) return NumberHolds(value.as_double(), key, rule);
    if (value.is_string()) return StringHolds(value.as_string(), key, rule);
    if (value.is_array()) return ArrayHolds(value.as_array(), schema, key, rule);
    return !value.is_object() || ObjectHolds(value, schema, key, rule);
  }

  static bool NumberHolds(double value, const std::string& key, const Json& rule) {
    if (key == "minimum") return value >= rule.as_double();
    if (key == "maximum") return value <= rule.as_double();
    if (key == "exclusiveMinimum") return value > rule.as_double();
    if (key == "exclusiveMaximum") return value < rule.as_double();
    if (key == "multipleOf") {
      const double times = value / rule.as_double();
      return std::abs(times - std::round(times)) <= 1e-9 * std::max(1.0, std::abs(times));
    }
    return true;
  }

  static bool StringHolds(const std::string& value, const std::string& key, const Json& rule) {
    if (key == "minLength") return Length(value) >= rule.as_double();
    if (key == "maxLength") return Length(value) <= rule.as_double();
    if (key == "format") return HasFormat(value, rule.as_string());
    if (key != "pattern") return true;
    // A character is one unit, as the standard has it.
    std::wstring wide, pattern;
    for (size_t i = 0; i < value.size(); i += DecodeUtf8(value, i).bytes)
      wide += static_cast<wchar_t>(DecodeUtf8(value, i).code_point);
    for (const char c : rule.as_string()) pattern += static_cast<wchar_t>(c);
    return std::regex_search(wide, std::wregex(pattern, std::regex::ECMAScript));
  }

  bool ArrayHolds(const Json::Array& value, const Json& schema, const std::string& key, const Json& rule) const {
    const double count = static_cast<double>(value.size());
    if (key == "minItems") return count >= rule.as_double();
    if (key == "maxItems") return count <= rule.as_double();
    const Json* prefix = schema.Find("prefixItems");
    const size_t first = prefix == nullptr ? 0 : prefix->as_array().size();
    for (size_t i = 0; i < value.size(); ++i) {
      if (key == "prefixItems" && i < first && !Valid(value[i], rule.as_array()[i])) return false;
      if (key == "items" && i >= first && !Valid(value[i], rule)) return false;
    }
    return true;
  }

  bool ObjectHolds(const Json& value, const Json& schema, const std::string& key, const Json& rule) const {
    const double count = static_cast<double>(value.as_object().size());
    if (key == "minProperties") return count >= rule.as_double();
    if (key == "maxProperties") return count <= rule.as_double();
    if (key == "required") {
      return std::all_of(rule.as_array().begin(), rule.as_array().end(),
                         [&](const Json& name) { return value.Find(name.as_string()) != nullptr; });
    }
    const auto matches = [](const std::string& name, const std::string& pattern) {
      return std::regex_search(name, std::regex(pattern, std::regex::ECMAScript));
    };
    for (const auto& [name, member] : value.as_object()) {
      if (key == "propertyNames" && !Valid(Json(name), rule)) return false;
      if (key == "properties") {
        const Json* property = rule.Find(name);
        if (property != nullptr && !Valid(member, *property)) return false;
      }
      const Json* named = schema.Find("properties");
      const Json* patterns = schema.Find("patternProperties");
      bool known = named != nullptr && named->Find(name) != nullptr;
      for (const auto& [pattern, property] : patterns == nullptr ? Json::Object{} : patterns->as_object()) {
        if (!matches(name, pattern)) continue;
        known = true;
        if (key == "patternProperties" && !Valid(member, property)) return false;
      }
      if (key == "additionalProperties" && !known && !Valid(member, rule)) return false;
    }
    return true;
  }

  const Json& root_;
};

}  // namespace nunspark::text::testing

#endif  // NUNSPARK_TEXT_GRAMMAR_SCHEMA_VALIDATOR_TESTING_H_
