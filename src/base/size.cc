#include "base/size.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

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
  return InvalidArgumentError(
      fmt::format("'{}' is not a size; write bytes or a number with TB, GB, MB, KB (1.5GB)", text));
}

// Three digits in a unit: 1.05GB, 10.5GB, 105GB. `units` counts the last digit's.
std::string ShortSize(int64_t units, std::string_view name, int decimals) {
  if (decimals == 0) return fmt::format("{}{}", units, name);
  const int64_t scale = decimals == 1 ? 10 : 100;
  return fmt::format("{}.{:0{}}{}", units / scale, units % scale, decimals, name);
}

enum class Round { kDown, kUp };

std::string SizeFlag(int64_t bytes, Round round) {
  constexpr std::pair<std::string_view, int64_t> kNames[] = {
      {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}};
  if (bytes < 1000) return std::to_string(bytes);
  for (const auto& [name, unit] : kNames) {
    for (int decimals = 2; decimals >= 0; --decimals) {
      const int64_t step = unit / (decimals == 2 ? 100 : decimals == 1 ? 10 : 1);
      const int64_t units = bytes / step + (round == Round::kUp && bytes % step != 0 ? 1 : 0);
      if (units < 1000 || (unit == kNames[3].second && decimals == 0)) return ShortSize(units, name, decimals);
    }
  }
  return std::to_string(bytes);
}

}  // namespace

std::string SizeFlagAtLeast(int64_t bytes) { return SizeFlag(bytes, Round::kUp); }
std::string SizeFlagAtMost(int64_t bytes) { return SizeFlag(bytes, Round::kDown); }

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
