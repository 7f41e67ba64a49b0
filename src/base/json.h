// JSON in and out. Parsing is simdjson On-Demand; the tree below is for documents that are looked at in random order
// (config.json, chat contexts). Huge documents with one shape (safetensors headers, manifest.json, tokenizer.json) are
// read with simdjson directly by their own parsers and never become a tree.
#ifndef NUNSPARK_BASE_JSON_H_
#define NUNSPARK_BASE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

// A JSON value. Objects keep the order of their members; a repeated key keeps the last value (as Python does).
// Integers that fit int64 stay integers, other numbers are doubles.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;                                             // null
  Json(std::nullptr_t) {}                                       // NOLINT: implicit on purpose, as are all below
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}      // NOLINT
  Json(int64_t value) : value_(value) {}                        // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // REQUIRES: the matching is_...(). as_double also takes integers.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<double>(value_); }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // Member of an object; nullptr when this is no object or has no such member.
  const Json* Find(std::string_view key) const;
  // Sets or replaces a member. REQUIRES: is_object() or is_null() (which becomes an object).
  Json& Set(std::string_view key, Json value);

  // "null", "boolean", "integer", "number", "string", "array", "object": for error messages.
  std::string_view TypeName() const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Parses one whole document (UTF-8; trailing white space only). `what` names the document in errors (a path).
// Errors: kDataLoss with what and the place; nesting beyond 512 levels is refused.
Result<Json> ParseJson(std::string_view text, std::string_view what);

// Compact ("{"a":1}") when indent is 0, else pretty with that many spaces a level. Strings are written as UTF-8 with
// only the escapes JSON requires; doubles are the shortest text that reads back equal (NaN and infinities become null).
std::string WriteJson(const Json& value, int indent = 0);

// `text` as a JSON string literal, quotes included. Invalid UTF-8 becomes U+FFFD.
std::string JsonQuote(std::string_view text);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_JSON_H_
