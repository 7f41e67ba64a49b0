#include "base/size.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/ascii.h"

namespace nunspark {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr Unit kUnits[] = {{"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"t", 1e12},
                           {"g", 1e9},   {"m", 1e6},  {"k", 1e3},  {"b", 1}};

Status BadSize(std::string_view text) {
  return InvalidArgumentError(fmt::format("'{}' is not a size; write bytes or a number with TB, GB, MB, KB (1.5GB)", text));
}

}  // namespace

Result<int64_t> ParseSize(std::string_view text) {
  const std::string lower = AsciiLower(AsciiTrim(text));
  const size_t digits = lower.find_first_not_of("0123456789.");
  const std::string_view number = std::string_view(lower).substr(0, digits);
  const std::string_view unit_name =
      digits == std::string::npos ? std::string_view() : AsciiTrim(std::string_view(lower).substr(digits));
  if (number.empty()) return BadSize(text);

  if (unit_name.empty()) {
    int64_t bytes = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
    if (error != std::errc() || end != number.data() + number.size()) return BadSize(text);
    return bytes;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) return BadSize(text);
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_name) continue;
    const double bytes = std::floor(value * unit.bytes + 0.5);
    if (!(bytes < 9.2e18)) return BadSize(text);
    return static_cast<int64_t>(bytes);
  }
  return BadSize(text);
}

std::string FormatSize(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (value < 1e6) return fmt::format("{:.1f} KB", value / 1e3);
  if (value < 1e9) return fmt::format("{:.1f} MB", value / 1e6);
  if (value < 1e12) return fmt::format("{:.2f} GB", value / 1e9);
  return fmt::format("{:.2f} TB", value / 1e12);
}

}  // namespace nunspark
