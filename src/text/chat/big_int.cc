#include "text/chat/big_int.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace nunspark::text::jinja {

BigInt::BigInt(int64_t value) : negative_(value < 0) {
  // Negation in unsigned arithmetic, so that the smallest int64 works too.
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) words_.push_back(static_cast<uint32_t>(magnitude));
}

std::optional<BigInt> BigInt::FromDigits(std::string_view digits, uint32_t base) {
  BigInt result;
  for (char c : digits) {
    uint32_t digit = 99;
    if (c >= '0' && c <= '9') digit = static_cast<uint32_t>(c - '0');
    if (c >= 'a' && c <= 'z') digit = static_cast<uint32_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'Z') digit = static_cast<uint32_t>(c - 'A' + 10);
    if (digit >= base) return std::nullopt;
    uint64_t carry = digit;
    for (uint32_t& word : result.words_) {
      carry += static_cast<uint64_t>(word) * base;
      word = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) result.words_.push_back(static_cast<uint32_t>(carry));
    if (result.bit_length() > kMaxBits) return std::nullopt;
  }
  return result;
}

BigInt BigInt::FromDouble(double value) {
  DCHECK(std::isfinite(value));
  BigInt result;
  int exponent = 0;
  double fraction = std::frexp(std::trunc(std::fabs(value)), &exponent);  // in [0.5, 1)
  if (exponent <= 0) return result;
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  const int shift = exponent - 53;
  if (shift <= 0) return BigInt(static_cast<int64_t>(std::trunc(value)));
  result.words_.assign(static_cast<size_t>(shift / 32), 0);
  const int bits = shift % 32;
  result.words_.push_back(static_cast<uint32_t>(mantissa << bits));
  result.words_.push_back(static_cast<uint32_t>(mantissa >> (32 - bits)));
  result.words_.push_back(bits == 0 ? 0 : static_cast<uint32_t>(mantissa >> 32 >> (32 - bits)));
  result.negative_ = value < 0;
  result.Trim();
  return result;
}

void BigInt::Trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
  if (words_.empty()) negative_ = false;
}

int64_t BigInt::bit_length() const {
  if (words_.empty()) return 0;
  return static_cast<int64_t>(words_.size()) * 32 - std::countl_zero(words_.back());
}

int64_t BigInt::bit_count() const {
  int64_t count = 0;
  for (uint32_t word : words_) count += std::popcount(word);
  return count;
}

std::optional<int64_t> BigInt::ToInt64() const {
  if (words_.size() > 2) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = words_.size(); i-- > 0;) magnitude = magnitude << 32 | words_[i];
  constexpr uint64_t kSignBit = uint64_t{1} << 63;
  if (magnitude > (negative_ ? kSignBit : kSignBit - 1)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

std::optional<double> BigInt::ToDouble() const {
  const int64_t bits = bit_length();
  if (bits == 0) return 0.0;
  if (bits > 1024) return std::nullopt;
  auto bit_at = [this](int64_t i) { return (words_[static_cast<size_t>(i / 32)] >> (i % 32)) & 1; };
  // The top 53 bits, then round half to even by the bits below.
  uint64_t mantissa = 0;
  const int64_t low = std::max<int64_t>(0, bits - 53);
  for (int64_t i = bits - 1; i >= low; --i) mantissa = mantissa << 1 | bit_at(i);
  if (low > 0 && bit_at(low - 1)) {
    bool above_half = false;
    for (int64_t i = 0; i < low - 1 && !above_half; ++i) above_half = bit_at(i) != 0;
    if (above_half || (mantissa & 1)) ++mantissa;
  }
  const double value = std::ldexp(static_cast<double>(mantissa), static_cast<int>(low));
  if (!std::isfinite(value)) return std::nullopt;
  return negative_ ? -value : value;
}

std::string BigInt::ToString(uint32_t base) const {
  if (words_.empty()) return "0";
  std::string text;
  std::vector<uint32_t> rest = words_;
  while (!rest.empty()) text.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[DivideByWord(rest, base)]);
  if (negative_) text.push_back('-');
  std::reverse(text.begin(), text.end());
  return text;
}

BigInt BigInt::Negated() const {
  BigInt result = *this;
  result.negative_ = !negative_ && !words_.empty();
  return result;
}

BigInt BigInt::Add(const BigInt& a, const BigInt& b) {
  BigInt result;
  if (a.negative_ == b.negative_) {
    result.words_ = AddMagnitude(a.words_, b.words_);
    result.negative_ = a.negative_;
  } else if (CompareMagnitude(a.words_, b.words_) >= 0) {
    result.words_ = SubMagnitude(a.words_, b.words_);
    result.negative_ = a.negative_;
  } else {
    result.words_ = SubMagnitude(b.words_, a.words_);
    result.negative_ = b.negative_;
  }
  result.Trim();
  return result;
}

BigInt BigInt::Multiply(const BigInt& a, const BigInt& b) {
  BigInt result;
  result.words_.assign(a.words_.size() + b.words_.size(), 0);
  for (size_t i = 0; i < a.words_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.words_.size(); ++j) {
      carry += static_cast<uint64_t>(a.words_[i]) * b.words_[j] + result.words_[i + j];
      result.words_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    result.words_[i + b.words_.size()] = static_cast<uint32_t>(carry);
  }
  result.negative_ = a.negative_ != b.negative_;
  result.Trim();
  return result;
}

void BigInt::DivMod(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder) {
  DCHECK(!b.is_zero());
  BigInt q, r;
  if (b.words_.size() == 1) {
    q.words_ = a.words_;
    const uint32_t rest = DivideByWord(q.words_, b.words_[0]);
    if (rest != 0) r.words_.push_back(rest);
  } else {
    // Bit by bit: at most kMaxBits steps.
    q.words_.assign(a.words_.size(), 0);
    for (int64_t i = a.bit_length() - 1; i >= 0; --i) {
      uint32_t carry = (a.words_[static_cast<size_t>(i / 32)] >> (i % 32)) & 1;
      for (uint32_t& word : r.words_) {
        const uint32_t next = word >> 31;
        word = word << 1 | carry;
        carry = next;
      }
      if (carry) r.words_.push_back(carry);
      if (CompareMagnitude(r.words_, b.words_) >= 0) {
        r.words_ = SubMagnitude(r.words_, b.words_);
        while (!r.words_.empty() && r.words_.back() == 0) r.words_.pop_back();
        q.words_[static_cast<size_t>(i / 32)] |= uint32_t{1} << (i % 32);
      }
    }
  }
  q.negative_ = a.negative_ != b.negative_;
  r.negative_ = a.negative_;
  q.Trim();
  r.Trim();
  // From truncation to floor.
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = Add(q, BigInt(-1));
    r = Add(r, b);
  }
  *quotient = std::move(q);
  *remainder = std::move(r);
}

int BigInt::Compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = CompareMagnitude(a.words_, b.words_);
  return a.negative_ ? -order : order;
}

uint64_t BigInt::Hash() const {
  if (auto small = ToInt64()) return static_cast<uint64_t>(*small);
  uint64_t hash = negative_ ? 0x9E3779B97F4A7C15u : 0;
  for (uint32_t word : words_) hash = (hash ^ word) * 0x100000001B3u;
  return hash;
}

int BigInt::CompareMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

std::vector<uint32_t> BigInt::AddMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> sum;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    carry += i < a.size() ? a[i] : 0;
    carry += i < b.size() ? b[i] : 0;
    sum.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  if (carry != 0) sum.push_back(static_cast<uint32_t>(carry));
  return sum;
}

std::vector<uint32_t> BigInt::SubMagnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> difference = a;
  int64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t word = static_cast<int64_t>(a[i]) - borrow - (i < b.size() ? static_cast<int64_t>(b[i]) : 0);
    borrow = word < 0 ? 1 : 0;
    difference[i] = static_cast<uint32_t>(word + (borrow << 32));
  }
  return difference;
}

uint32_t BigInt::DivideByWord(std::vector<uint32_t>& words, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = words.size(); i-- > 0;) {
    rest = rest << 32 | words[i];
    words[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  while (!words.empty() && words.back() == 0) words.pop_back();
  return static_cast<uint32_t>(rest);
}

}  // namespace nunspark::text::jinja
