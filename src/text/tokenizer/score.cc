#include "text/tokenizer/score.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace nunspark::text {
namespace {

constexpr int kPowerMax = 308;

// The nearest doubles of 1e0 to 1e308.
const std::array<double, kPowerMax + 1>& Powers() {
  static const auto* const kPowers = [] {
    auto* powers = new std::array<double, kPowerMax + 1>();
    char text[8] = "1e";
    for (int i = 0; i <= kPowerMax; ++i) {
      std::snprintf(text + 2, sizeof(text) - 2, "%d", i);
      (*powers)[static_cast<size_t>(i)] = std::strtod(text, nullptr);
    }
    return powers;
  }();
  return *kPowers;
}

std::optional<double> Scale(bool negative, uint64_t digits, int64_t exponent) {
  double value = static_cast<double>(digits);
  while (value != 0 && exponent < -kPowerMax) {
    value /= 1e308;
    exponent += kPowerMax;
  }
  if (value != 0) {
    if (exponent > kPowerMax) return std::nullopt;
    const double power = Powers()[static_cast<size_t>(std::abs(exponent))];
    value = exponent >= 0 ? value * power : value / power;
    if (std::isinf(value)) return std::nullopt;
  }
  return negative ? -value : value;
}

// Decimal digits into 64 bits; further ones are ignored but counted where they shift the value.
class Significand {
 public:
  void AddInteger(char c) {
    if (!Add(c)) ++exponent_;
  }
  void AddFraction(char c) {
    if (Add(c)) --exponent_;
  }
  // Dropped digits of the integer part do not stop those of the fraction; a dropped fraction digit does.
  void StartFraction() { full_ = false; }
  uint64_t digits() const { return digits_; }
  int64_t exponent() const { return exponent_; }

 private:
  bool Add(char c) {
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (full_ || digits_ > (UINT64_MAX - digit) / 10) {
      full_ = true;
      return false;
    }
    digits_ = digits_ * 10 + digit;
    return true;
  }

  uint64_t digits_ = 0;
  int64_t exponent_ = 0;
  bool full_ = false;
};

}  // namespace

std::optional<double> ParseScore(std::string_view text) {
  size_t at = 0;
  const auto is_digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) ++at;
  if (!is_digit()) return std::nullopt;
  const size_t first_digit = at;
  Significand significand;
  for (; is_digit(); ++at) significand.AddInteger(text[at]);
  if (text[first_digit] == '0' && at - first_digit > 1) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!is_digit()) return std::nullopt;
    significand.StartFraction();
    for (; is_digit(); ++at) significand.AddFraction(text[at]);
  }
  int64_t exponent = significand.exponent();
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool minus = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (!is_digit()) return std::nullopt;
    int64_t given = 0;
    for (; is_digit(); ++at) given = given < 1000000 ? given * 10 + (text[at] - '0') : given;
    exponent += minus ? -given : given;
  }
  if (at != text.size()) return std::nullopt;
  return Scale(negative, significand.digits(), exponent);
}

}  // namespace nunspark::text
