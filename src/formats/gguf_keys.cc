#include "formats/gguf_keys.h"

#include <cmath>

#include <fmt/format.h>

namespace nunspark {
namespace {

constexpr std::string_view kArchitectureKey = "general.architecture";
constexpr size_t kMaxArchitectureBytes = 64;

}  // namespace

Result<GgufKeys> GgufKeys::Of(const GgufFile& file) {
  GgufKeys keys(file);
  ASSIGN_OR_RETURN(const std::string_view architecture, keys.Text(kArchitectureKey));
  keys.architecture_ = std::string(architecture);
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (keys.architecture_.empty() || keys.architecture_.size() > kMaxArchitectureBytes ||
      keys.architecture_.find_first_not_of(kAllowed) != std::string::npos) {
    return keys.Wrong(kArchitectureKey, "the name of a model type",
                      keys.architecture_.empty() ? "none" : QuoteName(keys.architecture_));
  }
  return keys;
}

std::string GgufKeys::Name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

Result<std::optional<int64_t>> GgufKeys::Int(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number = value->is_array() ? std::nullopt : value->Int();
  if (number.has_value() && *number >= min && *number <= max) return number;
  return Wrong(key, fmt::format("an integer from {} to {}", min, max),
               number.has_value() ? fmt::format("{}", *number) : value->TypeName());
}

Result<std::optional<double>> GgufKeys::Number(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number = value->is_array() ? std::nullopt : value->Number();
  if (number.has_value() && std::isfinite(*number)) return number;
  return Wrong(key, "a finite number", number.has_value() ? fmt::format("{}", *number) : value->TypeName());
}

Result<std::vector<double>> GgufKeys::Numbers(std::string_view key) const {
  std::vector<double> numbers;
  const GgufValue* const value = Find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) return Wrong(key, "an array of numbers", value->TypeName());
  for (size_t i = 0; i < value->size(); ++i) {
    const std::optional<double> number = value->Number(i);
    if (!number.has_value() || !std::isfinite(*number)) {
      return Wrong(key, "finite numbers", number.has_value() ? fmt::format("{}", *number) : value->TypeName());
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::optional<bool>> GgufKeys::Flag(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array() || value->type() != GgufType::kBool) return Wrong(key, "a bool", value->TypeName());
  return value->Bool();
}

Result<std::string_view> GgufKeys::Text(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::string_view();
  if (value->is_array() || value->type() != GgufType::kString) return Wrong(key, "a string", value->TypeName());
  return *value->Text();
}

Result<std::vector<std::string_view>> GgufKeys::Texts(std::string_view key) const {
  std::vector<std::string_view> texts;
  const GgufValue* const value = Find(key);
  if (value == nullptr) return texts;
  // An empty array has no elements whose type would matter; writers put any there.
  if (!value->is_array() || (value->type() != GgufType::kString && value->size() > 0)) {
    return Wrong(key, "an array of strings", value->TypeName());
  }
  texts.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) texts.emplace_back(*value->Text(i));
  return texts;
}

Result<std::string_view> GgufKeys::Bytes(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::string_view();
  if (value->is_array() && (value->type() == GgufType::kU8 || value->type() == GgufType::kI8)) return value->bytes();
  return Wrong(key, "an array of bytes", value->TypeName());
}

Status GgufKeys::Wrong(std::string_view key, std::string_view expected, std::string_view found) const {
  return DataLossError(fmt::format("{}: key {}: expected {}, found {}", what(), QuoteName(key), expected, found));
}

}  // namespace nunspark
