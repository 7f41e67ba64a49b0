// Reading small JSON objects with errors that name the file, the field, what was expected and what was found.
#ifndef NUNSPARK_TEXT_TOKENIZER_JSON_SECTION_H_
#define NUNSPARK_TEXT_TOKENIZER_JSON_SECTION_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark::text {

// Of the lists of steps in tokenizer.json, which may hold lists themselves.
inline constexpr int kStepDepthMax = 16;
inline constexpr size_t kStepsMax = 256;

// A value inside a document together with its place. Borrows the value.
class JsonSection {
 public:
  // `where` is the place as a reader would write it: "tokenizer.json: pre_tokenizer".
  JsonSection(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json& value() const { return value_; }
  const std::string& where() const { return where_; }

  // A member; a missing or null one gives nothing.
  std::optional<JsonSection> Member(std::string_view key) const;

  // Members of a kind. Errors: kDataLoss when this is no object, the member is missing or of another kind.
  Result<JsonSection> Required(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  Result<std::string> StringOr(std::string_view key, std::string_view fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;
  Result<int64_t> Int(std::string_view key, int64_t low, int64_t high) const;
  Result<int64_t> IntOr(std::string_view key, int64_t low, int64_t high, int64_t fallback) const;
  // A string of exactly one character.
  Result<std::string> Character(std::string_view key) const;
  // The elements of an array member, at most `count_max`.
  Result<std::vector<JsonSection>> Array(std::string_view key, size_t count_max) const;

  // "<where>: expected <expected>, found <kind of this value>".
  Status Mismatch(std::string_view expected) const;
  // "<where>: <reason>".
  Status Malformed(std::string_view reason) const;
  Status Unsupported(std::string_view reason) const;

 private:
  const Json& value_;
  std::string where_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_JSON_SECTION_H_
