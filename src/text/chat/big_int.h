// Integers as Python has them: exact at any size that a template may reasonably reach.
//
// Sign and magnitude in base 2^32, without leading zero words; zero is never negative. Schoolbook algorithms: the size
// limit of the callers (kMaxBits) keeps them short. Plain value, thread-compatible.
#ifndef NUNSPARK_TEXT_CHAT_BIG_INT_H_
#define NUNSPARK_TEXT_CHAT_BIG_INT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nunspark::text::jinja {

class BigInt {
 public:
  // Python refuses to print integers of more than 4300 digits; nothing larger is ever made here.
  static constexpr int64_t kMaxBits = 14285;

  BigInt() = default;
  explicit BigInt(int64_t value);

  // Digits of `base` (2 to 36) without sign, prefix or separators. nullopt on another character or above kMaxBits.
  static std::optional<BigInt> FromDigits(std::string_view digits, uint32_t base);
  // Toward zero, exact. REQUIRES: value is finite.
  static BigInt FromDouble(double value);

  bool is_negative() const { return negative_; }
  bool is_zero() const { return words_.empty(); }
  bool is_odd() const { return !words_.empty() && (words_[0] & 1) != 0; }
  int64_t bit_length() const;
  int64_t bit_count() const;
  std::optional<int64_t> ToInt64() const;
  // Nearest double, ties to even; nullopt when beyond the range of double (Python's OverflowError).
  std::optional<double> ToDouble() const;
  std::string ToString(uint32_t base = 10) const;

  BigInt Negated() const;
  static BigInt Add(const BigInt& a, const BigInt& b);
  static BigInt Multiply(const BigInt& a, const BigInt& b);
  // Floor division and modulo, the remainder having the divisor's sign. REQUIRES: b is not zero.
  static void DivMod(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder);
  // -1, 0, 1.
  static int Compare(const BigInt& a, const BigInt& b);
  friend bool operator==(const BigInt&, const BigInt&) = default;

  // Equal for equal integers and, for those that fit, the int64 itself.
  uint64_t Hash() const;

 private:
  static int CompareMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);
  static std::vector<uint32_t> AddMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);
  static std::vector<uint32_t> SubMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);
  // Divides in place by one word and returns the remainder.
  static uint32_t DivideByWord(std::vector<uint32_t>& words, uint32_t divisor);
  void Trim();

  std::vector<uint32_t> words_;  // least significant first
  bool negative_ = false;
};

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_BIG_INT_H_
