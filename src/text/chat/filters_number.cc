// Filters about numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/chat/builtin_tables.h"

namespace nunspark::text::jinja {
namespace {

Value Abs(Runtime& runtime, Call& call) {
  const Value& value = call.self;
  if (value.is_float()) return Value::Float(std::fabs(value.float_value()));
  if (!value.is_integer()) {
    return runtime.TypeError(fmt::format("bad operand type for abs(): '{}'", TypeName(value)));
  }
  const bool negative = value.kind() == Kind::kBig ? value.as<BigObject>().value.is_negative() : value.small_int() < 0;
  return negative ? runtime.Negate(value) : runtime.Plus(value);
}

// int(float): kMissing for NaN (a ValueError, which the int filter catches).
Value Truncated(Runtime& runtime, double number) {
  if (std::isnan(number)) return Value::Missing();
  if (std::isinf(number)) return runtime.Fail("OverflowError", "cannot convert float infinity to integer");
  return runtime.Integer(BigInt::FromDouble(number));
}

Value ToInteger(Runtime& runtime, Call& call) {
  const Value& value = call.self;
  const Value otherwise = call.has(0) ? call.args[0] : Value::Int(0);
  if (value.is_integer()) return runtime.Plus(value);
  if (value.is_undefined()) return runtime.FailUndefined(value);
  double number = 0;
  if (value.is_float()) {
    number = value.float_value();
  } else if (value.is_string()) {
    const Value base = call.has(1) ? call.args[1] : Value::Int(10);
    BigInt integer;
    const bool valid_base = (base.kind() == Kind::kInt || base.kind() == Kind::kBool) &&
                            (base.small_int() == 0 || (base.small_int() >= 2 && base.small_int() <= 36));
    if (!runtime.StepDigits(static_cast<int64_t>(Text(value).size()))) return Value::Failed();
    if (valid_base && ParseInteger(Text(value), base.small_int(), &integer)) return runtime.Integer(integer);
    if (!ParseFloat(Text(value), &number)) return otherwise;
  } else {
    return otherwise;
  }
  Value truncated = Truncated(runtime, number);
  return truncated.missing() ? otherwise : truncated;
}

Value ToFloat(Runtime& runtime, Call& call) {
  const Value& value = call.self;
  if (value.is_float()) return value;
  if (value.is_undefined()) return runtime.FailUndefined(value);
  double number = 0;
  if (value.kind() == Kind::kBig) {
    const auto big = value.as<BigObject>().value.ToDouble();
    if (!big) return runtime.Fail("OverflowError", "int too large to convert to float");
    return Value::Float(*big);
  }
  if (value.is_integer()) return Value::Float(static_cast<double>(value.small_int()));
  if (value.is_string() && ParseFloat(Text(value), &number)) return Value::Float(number);
  return call.has(0) ? call.args[0] : Value::Float(0);
}

// Half to even at 10^digits, exactly. REQUIRES: digits > 0.
BigInt RoundInteger(const BigInt& value, int64_t digits) {
  BigInt unit(1);
  for (int64_t i = 0; i < digits; ++i) unit = BigInt::Multiply(unit, BigInt(10));
  BigInt quotient, remainder;
  BigInt::DivMod(value, unit, &quotient, &remainder);
  const int half = BigInt::Compare(BigInt::Multiply(remainder, BigInt(2)), unit);
  if (half > 0 || (half == 0 && quotient.is_odd())) quotient = BigInt::Add(quotient, BigInt(1));
  return BigInt::Multiply(quotient, unit);
}

Value RoundFloat(Runtime& runtime, double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return Value::Float(value);
  if (digits < -308) return Value::Float(0.0 * value);
  if (!runtime.Step(32 + std::abs(digits) * 16)) return Value::Failed();
  if (digits < 0) {
    // The fraction below the unit digit can only break a tie.
    const double whole = std::trunc(value);
    BigInt integer = BigInt::FromDouble(whole);
    if (value != whole) {
      // One more decimal digit that stands for "a little more".
      integer = BigInt::Add(BigInt::Multiply(integer, BigInt(10)), BigInt(value > 0 ? 1 : -1));
      BigInt quotient, remainder;
      BigInt::DivMod(RoundInteger(integer, 1 - digits), BigInt(10), &quotient, &remainder);
      integer = quotient;
    } else {
      integer = RoundInteger(integer, -digits);
    }
    const double rounded = integer.ToDouble().value_or(INFINITY);
    if (std::isinf(rounded)) return runtime.Fail("OverflowError", "rounded value too large to represent");
    return Value::Float(std::copysign(rounded, value));
  }
  // printf rounds the exact decimal expansion, half to even.
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return Value::Float(std::strtod(buffer, nullptr));
}

Value RoundCommon(Runtime& runtime, const Value& value, const Value& precision) {
  if (value.is_undefined() || !value.is_number()) {
    return runtime.TypeError(fmt::format("type {} doesn't define __round__ method", TypeName(value)));
  }
  if (precision.is_none()) {
    if (value.is_integer()) return runtime.Plus(value);
    JINJA_TRY(const Value rounded, RoundFloat(runtime, value.float_value(), 0));
    Value integer = Truncated(runtime, rounded.float_value());
    return integer.missing() ? runtime.ValueError("cannot convert float NaN to integer") : integer;
  }
  int64_t digits = 0;
  if (!runtime.ToIndex(precision, &digits)) return Value::Failed();
  if (value.is_float()) return RoundFloat(runtime, value.float_value(), digits);
  if (digits >= 0) return runtime.Plus(value);
  if (digits < -BigInt::kMaxBits / 4) return Value::Int(0);
  const BigInt integer = value.kind() == Kind::kBig ? value.as<BigObject>().value : BigInt(value.small_int());
  // The power of ten digit by digit, then a division.
  if (!runtime.Step(Runtime::kObjectSteps + digits * digits / 32 - digits * integer.bit_length() / 64)) {
    return Value::Failed();
  }
  return runtime.Integer(RoundInteger(integer, -digits));
}

Value Round(Runtime& runtime, Call& call) {
  const Value precision = call.has(0) ? call.args[0] : Value::Int(0);
  const std::string method = !call.has(1) ? "common" : call.args[1].is_string() ? std::string(Text(call.args[1])) : "";
  if (method == "common") return RoundCommon(runtime, call.self, precision);
  if (method != "ceil" && method != "floor") {
    return runtime.Fail("FilterArgumentError", "method must be common, ceil or floor");
  }
  JINJA_TRY(const Value unit, runtime.Binary(BinaryOp::kPow, Value::Int(10), precision));
  JINJA_TRY(const Value scaled, runtime.Binary(BinaryOp::kMul, call.self, unit));
  Value whole = scaled;
  if (scaled.is_float()) {
    const double number = scaled.float_value();
    whole = Truncated(runtime, method == "ceil" ? std::ceil(number) : std::floor(number));
    if (whole.missing()) return runtime.ValueError("cannot convert float NaN to integer");
  } else if (!scaled.is_integer()) {
    return runtime.TypeError(fmt::format("must be real number, not {}", TypeName(scaled)));
  }
  if (whole.failed()) return whole;
  return runtime.Binary(BinaryOp::kDiv, whole, unit);
}

Value FileSize(Runtime& runtime, Call& call) {
  double bytes = 0;
  if (call.self.is_undefined()) return runtime.FailUndefined(call.self);
  if (call.self.is_string()) {
    if (!ParseFloat(Text(call.self), &bytes)) {
      return runtime.ValueError("could not convert string to float: " + StringRepr(Text(call.self)));
    }
  } else if (call.self.is_number()) {
    JINJA_TRY(const Value number, runtime.InvokeBuiltin(*FindFilter("float"), call.self, {}));
    bytes = number.float_value();
  } else {
    return runtime.TypeError(
        fmt::format("float() argument must be a string or a real number, not '{}'", TypeName(call.self)));
  }
  const bool binary = FlagArgument(runtime, call, 0);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.String("1 Byte");
  if (bytes < base) {
    const Value whole = Truncated(runtime, bytes);
    if (whole.failed()) return whole;
    std::string text;
    runtime.AppendStr(whole, text);
    return runtime.String(text + " Bytes");
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  char prefix = 'Y';
  for (char candidate : kPrefixes) {
    unit *= base;
    prefix = candidate;
    if (bytes < unit) break;
  }
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.1f", base * bytes / unit);
  std::string number = buffer;
  if (std::isnan(bytes)) number = "nan";
  return runtime.String(fmt::format("{} {}{}", number, binary && prefix == 'k' ? 'K' : prefix, binary ? "iB" : "B"));
}

constexpr Builtin kFilters[] = {
    {"abs", "", Abs},
    {"filesizeformat", "binary?", FileSize},
    {"float", "default?", ToFloat, kPerCharacter},
    {"int", "default? base?", ToInteger, kPerCharacter},
    {"round", "precision? method?", Round},
};

}  // namespace

std::span<const Builtin> NumberFilters() { return kFilters; }

}  // namespace nunspark::text::jinja
