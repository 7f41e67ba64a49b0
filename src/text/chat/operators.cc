// Python's operators.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/chat/runtime.h"
#include "text/chat/text_search.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

constexpr std::string_view kOpNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

BigInt ToBig(const Value& value) {
  return value.kind() == Kind::kBig ? value.as<BigObject>().value : BigInt(value.small_int());
}

bool IsMarkup(const Value& value) { return value.is_string() && value.as<StringObject>().markup; }

// False (and failed) when the integer is beyond the range of double.
bool ToDouble(Runtime& runtime, const Value& value, double* number) {
  if (value.is_float()) {
    *number = value.float_value();
  } else if (value.kind() != Kind::kBig) {
    *number = static_cast<double>(value.small_int());
  } else if (auto big = value.as<BigObject>().value.ToDouble()) {
    *number = *big;
  } else {
    runtime.Fail("OverflowError", "int too large to convert to float");
    return false;
  }
  return true;
}

Value ZeroDivision(Runtime& runtime, std::string message) {
  return runtime.Fail("ZeroDivisionError", std::move(message));
}

// a / b, correctly rounded also where the operands are not exact doubles.
Value TrueDivide(Runtime& runtime, const Value& a, const Value& b) {
  const BigInt dividend = ToBig(a), divisor = ToBig(b);
  if (divisor.is_zero()) return ZeroDivision(runtime, "division by zero");
  if (dividend.bit_length() <= 53 && divisor.bit_length() <= 53) {
    return Value::Float(*dividend.ToDouble() / *divisor.ToDouble());
  }
  // Shift so that the quotient has 66 bits or more; a remainder only breaks ties, as one more bit.
  const int64_t shift = std::max<int64_t>(0, 66 - (dividend.bit_length() - divisor.bit_length()));
  BigInt scaled = dividend.is_negative() ? dividend.Negated() : dividend;
  for (int64_t left = shift; left > 0; left -= 32) {
    scaled = BigInt::Multiply(scaled, BigInt(int64_t{1} << std::min<int64_t>(left, 32)));
  }
  BigInt quotient, remainder;
  BigInt::DivMod(scaled, divisor.is_negative() ? divisor.Negated() : divisor, &quotient, &remainder);
  if (!remainder.is_zero()) quotient = BigInt::Add(BigInt::Multiply(quotient, BigInt(2)), BigInt(1));
  const int64_t down = shift + (remainder.is_zero() ? 0 : 1);
  const auto number = quotient.ToDouble();
  const double result = number ? std::ldexp(*number, static_cast<int>(-down)) : INFINITY;
  if (std::isinf(result)) return runtime.Fail("OverflowError", "integer division result too large for a float");
  return Value::Float(dividend.is_negative() != divisor.is_negative() ? -result : result);
}

Value IntegerPower(Runtime& runtime, const BigInt& base, const BigInt& exponent) {
  if (exponent.is_negative()) {
    if (base.is_zero()) return ZeroDivision(runtime, "0.0 cannot be raised to a negative power");
    const auto x = base.ToDouble(), y = exponent.ToDouble();
    if (!x || !y) return runtime.Fail("OverflowError", "int too large to convert to float");
    return Value::Float(std::pow(*x, *y));
  }
  const auto count = exponent.ToInt64();
  if (base.bit_length() <= 1) {  // 0, 1, -1
    if (exponent.is_zero()) return Value::Int(1);
    return runtime.Integer(base.is_negative() && !exponent.is_odd() ? base.Negated() : base);
  }
  if (!count || *count > BigInt::kMaxBits || (base.bit_length() - 1) * *count > BigInt::kMaxBits) {
    return runtime.Fail("LimitError", "an integer of more than 4300 digits is above the limit");
  }
  if (!runtime.Step(1 + base.bit_length() * *count / 2)) return Value::Failed();
  BigInt result(1), square = base;
  for (int64_t rest = *count; rest > 0; rest >>= 1) {
    if (rest & 1) result = BigInt::Multiply(result, square);
    if (rest > 1) square = BigInt::Multiply(square, square);
  }
  return runtime.Integer(result);
}

Value IntegerBinary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.kind() != Kind::kBig && b.kind() != Kind::kBig) {
    if (op == BinaryOp::kDiv) return TrueDivide(runtime, a, b);
    const int64_t x = a.small_int(), y = b.small_int();
    int64_t result = 0;
    if (op == BinaryOp::kAdd && !__builtin_add_overflow(x, y, &result)) return Value::Int(result);
    if (op == BinaryOp::kSub && !__builtin_sub_overflow(x, y, &result)) return Value::Int(result);
    if (op == BinaryOp::kMul && !__builtin_mul_overflow(x, y, &result)) return Value::Int(result);
  }
  const BigInt x = ToBig(a), y = ToBig(b);
  // Words of sums, of products, of quotients bit by bit.
  const bool divides = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv || op == BinaryOp::kMod;
  const int64_t bits = x.bit_length() + y.bit_length(), product = x.bit_length() * y.bit_length();
  if (!runtime.Step(Runtime::kObjectSteps + bits / 4 + product / (divides ? 256 : 1024))) return Value::Failed();
  switch (op) {
    case BinaryOp::kAdd: return runtime.Integer(BigInt::Add(x, y));
    case BinaryOp::kSub: return runtime.Integer(BigInt::Add(x, y.Negated()));
    case BinaryOp::kMul: return runtime.Integer(BigInt::Multiply(x, y));
    case BinaryOp::kDiv: return TrueDivide(runtime, a, b);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (y.is_zero()) {
        return ZeroDivision(runtime,
                            op == BinaryOp::kMod ? "integer modulo by zero" : "integer division or modulo by zero");
      }
      BigInt quotient, remainder;
      BigInt::DivMod(x, y, &quotient, &remainder);
      return runtime.Integer(op == BinaryOp::kMod ? remainder : quotient);
    }
    case BinaryOp::kPow: return IntegerPower(runtime, x, y);
  }
  return Value::Failed();
}

Value FloatPower(Runtime& runtime, double x, double y) {
  if (x == 0 && y < 0) return ZeroDivision(runtime, "0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && std::trunc(y) != y) {
    return runtime.TypeError("complex numbers are not supported");
  }
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) {
    return runtime.Fail("OverflowError", "(34, 'Numerical result out of range')");
  }
  return Value::Float(result);
}

Value FloatBinary(Runtime& runtime, BinaryOp op, double x, double y) {
  switch (op) {
    case BinaryOp::kAdd: return Value::Float(x + y);
    case BinaryOp::kSub: return Value::Float(x - y);
    case BinaryOp::kMul: return Value::Float(x * y);
    case BinaryOp::kPow: return FloatPower(runtime, x, y);
    case BinaryOp::kDiv:
      if (y == 0) return ZeroDivision(runtime, "float division by zero");
      return Value::Float(x / y);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: break;
  }
  if (y == 0) return ZeroDivision(runtime, op == BinaryOp::kMod ? "float modulo" : "float floor division by zero");
  // Python's way: exact remainder first, with the divisor's sign; then the quotient that belongs to it.
  double remainder = std::fmod(x, y);
  double quotient = (x - remainder) / y;
  if (remainder != 0) {
    if ((y < 0) != (remainder < 0)) {
      remainder += y;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, y);
  }
  if (op == BinaryOp::kMod) return Value::Float(remainder);
  if (quotient == 0) return Value::Float(std::copysign(0.0, x / y));
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return Value::Float(floored);
}

Value Repeat(Runtime& runtime, const Value& sequence, const Value& times) {
  int64_t count = 0;
  if (times.kind() == Kind::kBig) {
    return runtime.Fail("OverflowError", "cannot fit 'int' into an index-sized integer");
  }
  count = std::max<int64_t>(0, times.small_int());
  if (sequence.is_string()) {
    const std::string_view text = Text(sequence);
    if (text.empty()) count = 0;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, static_cast<int64_t>(text.size()), &bytes)) bytes = INT64_MAX;
    if (!runtime.CheckBytes(bytes)) return Value::Failed();
    std::string result;
    result.reserve(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < count; ++i) result += text;
    return runtime.String(std::move(result), IsMarkup(sequence));
  }
  const Values& items = sequence.as<ListObject>().items;
  if (items.empty()) count = 0;
  int64_t total = 0;
  if (__builtin_mul_overflow(count, static_cast<int64_t>(items.size()), &total)) total = INT64_MAX;
  if (!runtime.CheckItems(total)) return Value::Failed();
  Values result;
  result.reserve(static_cast<size_t>(total));
  for (int64_t i = 0; i < count; ++i) result.insert(result.end(), items.begin(), items.end());
  return runtime.Sequence(sequence.kind(), std::move(result));
}

Value AddStrings(Runtime& runtime, const Value& a, const Value& b) {
  if (IsMarkup(a) != IsMarkup(b)) {
    // Markup escapes what is added to it, on either side.
    JINJA_TRY(const Value left, Escape(runtime, a));
    JINJA_TRY(const Value right, Escape(runtime, b));
    return runtime.String(std::string(Text(left)) + std::string(Text(right)), true);
  }
  const std::string_view left = Text(a), right = Text(b);
  if (!runtime.CheckBytes(static_cast<int64_t>(left.size() + right.size()))) return Value::Failed();
  std::string sum;
  sum.reserve(left.size() + right.size());
  sum.append(left).append(right);
  return runtime.String(std::move(sum), IsMarkup(a));
}

Value AddLists(Runtime& runtime, const Value& a, const Value& b) {
  const Values &left = a.as<ListObject>().items, &right = b.as<ListObject>().items;
  if (!runtime.CheckItems(static_cast<int64_t>(left.size() + right.size()))) return Value::Failed();
  Values sum;
  sum.reserve(left.size() + right.size());
  sum.insert(sum.end(), left.begin(), left.end());
  sum.insert(sum.end(), right.begin(), right.end());
  return runtime.Sequence(a.kind(), std::move(sum));
}

// -1, 0, 1 for numbers; 2 when NaN is involved. Exact between integers and floats.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_float() || b.is_float()) {
    auto exact = [](const Value& v) {
      return v.kind() != Kind::kBig && std::abs(v.small_int() / 2) < (int64_t{1} << 51);
    };
    const double x = a.is_float() ? a.float_value() : 0, y = b.is_float() ? b.float_value() : 0;
    if (std::isnan(x) || std::isnan(y)) return 2;
    if (a.is_float() && b.is_float()) return x < y ? -1 : x > y;
    if (a.is_float()) return -CompareNumbers(b, a) == -2 ? 2 : -CompareNumbers(b, a);
    // a is an integer, b a float.
    if (std::isinf(y)) return y > 0 ? -1 : 1;
    if (exact(a)) {
      const double integer = static_cast<double>(a.small_int());
      return integer < y ? -1 : integer > y;
    }
    const BigInt whole = BigInt::FromDouble(y);
    const int order = BigInt::Compare(ToBig(a), whole);
    if (order != 0) return order;
    const double fraction = y - std::trunc(y);
    return fraction > 0 ? -1 : fraction < 0;
  }
  if (a.kind() != Kind::kBig && b.kind() != Kind::kBig) {
    return a.small_int() < b.small_int() ? -1 : a.small_int() > b.small_int();
  }
  return BigInt::Compare(ToBig(a), ToBig(b));
}

bool Holds(CompareOp op, int order) {
  switch (op) {
    case CompareOp::kLt: return order < 0;
    case CompareOp::kLe: return order <= 0;
    case CompareOp::kGt: return order == 1;
    case CompareOp::kGe: return order == 0 || order == 1;
    default: return false;
  }
}

}  // namespace

bool Runtime::Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kMissing:
    case Kind::kFailed:
    case Kind::kUndefined: return false;
    case Kind::kBool:
    case Kind::kInt: return value.small_int() != 0;
    case Kind::kFloat: return value.float_value() != 0;
    case Kind::kString: return !Text(value).empty();
    case Kind::kList:
    case Kind::kTuple: return !value.as<ListObject>().items.empty();
    case Kind::kDict: return !value.as<DictObject>().entries.empty();
    case Kind::kDictView: return !value.as<DictViewObject>().dict.as<DictObject>().entries.empty();
    case Kind::kRange: return value.as<RangeObject>().length != 0;
    default: return true;
  }
}

Value Runtime::Binary(BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) return FailUndefined(a);
  if (op == BinaryOp::kMod && a.is_string()) return PercentFormat(*this, a, b);
  auto is_set = [](const Value& v) {
    return v.kind() == Kind::kDictView && v.as<DictViewObject>().part != DictPart::kValues;
  };
  if (op == BinaryOp::kSub && ((is_set(a) && IsIterable(b)) || (is_set(b) && IsIterable(a)))) {
    return TypeError("sets, as of dict.keys(), are not supported");
  }
  if (b.is_undefined()) return FailUndefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return IntegerBinary(*this, op, a, b);
    double x = 0, y = 0;
    if (!ToDouble(*this, a, &x) || !ToDouble(*this, b, &y)) return Value::Failed();
    return FloatBinary(*this, op, x, y);
  }
  auto is_sequence = [](const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); };
  if (op == BinaryOp::kAdd && is_sequence(a)) {
    if (a.kind() != b.kind()) {
      const std::string type = a.is_string() ? "str" : a.is_list() ? "list" : "tuple";
      return TypeError(fmt::format("can only concatenate {} (not \"{}\") to {}", type, TypeName(b), type));
    }
    return a.is_string() ? AddStrings(*this, a, b) : AddLists(*this, a, b);
  }
  if (op == BinaryOp::kMul && (is_sequence(a) || is_sequence(b))) {
    const Value& sequence = is_sequence(a) ? a : b;
    const Value& times = is_sequence(a) ? b : a;
    if (times.is_integer()) return Repeat(*this, sequence, times);
    return TypeError(fmt::format("can't multiply sequence by non-int of type '{}'", TypeName(times)));
  }
  return TypeError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", kOpNames[static_cast<size_t>(op)],
                               TypeName(a), TypeName(b)));
}

Value Runtime::Negate(const Value& value) {
  if (value.is_undefined()) return FailUndefined(value);
  if (value.is_float()) return Value::Float(-value.float_value());
  if (value.is_integer()) return Integer(ToBig(value).Negated());
  return TypeError(fmt::format("bad operand type for unary -: '{}'", TypeName(value)));
}

Value Runtime::Plus(const Value& value) {
  if (value.is_undefined()) return FailUndefined(value);
  if (value.is_bool()) return Value::Int(value.small_int());
  if (value.is_number()) return value;
  return TypeError(fmt::format("bad operand type for unary +: '{}'", TypeName(value)));
}

bool Runtime::Equal(const Value& a, const Value& b) {
  if (!Step()) return false;
  if (a.kind() != b.kind() || !a.is_object()) return KeysEqual(a, b);
  if (a.object() == b.object()) return true;
  switch (a.kind()) {
    case Kind::kString: return StepBytes(Text(a).size()) && Text(a) == Text(b);
    case Kind::kList:
    case Kind::kTuple: {
      const Values &left = a.as<ListObject>().items, &right = b.as<ListObject>().items;
      if (left.size() != right.size()) return false;
      DepthGuard depth(*this);
      if (!depth.ok || !Step(16)) return false;
      for (size_t i = 0; i < left.size(); ++i) {
        if (!Equal(left[i], right[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const auto &left = a.as<DictObject>(), &right = b.as<DictObject>();
      if (left.entries.size() != right.entries.size()) return false;
      DepthGuard depth(*this);
      if (!depth.ok || !Step(16)) return false;
      for (const DictObject::Entry& entry : left.entries) {
        const Value* other = right.Find(entry.key, entry.hash);
        if (other == nullptr || !Equal(entry.value, *other)) return false;
      }
      return true;
    }
    case Kind::kDictView: {
      const auto &left = a.as<DictViewObject>(), &right = b.as<DictViewObject>();
      if (left.part == DictPart::kValues || right.part != left.part) return false;
      const auto &keys = left.dict.as<DictObject>(), &others = right.dict.as<DictObject>();
      if (keys.entries.size() != others.entries.size()) return false;
      for (const DictObject::Entry& entry : keys.entries) {
        const Value* other = others.Find(entry.key, entry.hash);
        if (other == nullptr || (left.part == DictPart::kItems && !Equal(entry.value, *other))) return false;
      }
      return true;
    }
    default: return KeysEqual(a, b);
  }
}

bool Runtime::Ordered(CompareOp op, const Value& a, const Value& b) {
  if (!Step()) return false;
  if (a.is_number() && b.is_number()) {
    // Long integers are copied to be compared.
    for (const Value* number : {&a, &b}) {
      if (number->kind() == Kind::kBig && !Step(number->as<BigObject>().value.bit_length() / 4)) return false;
    }
    return Holds(op, CompareNumbers(a, b));
  }
  if (a.is_undefined() || b.is_undefined()) {
    FailUndefined(a.is_undefined() ? a : b);
    return false;
  }
  if (a.is_string() && b.is_string()) {
    if (!StepBytes(std::min(Text(a).size(), Text(b).size()))) return false;
    const int order = Text(a).compare(Text(b));  // bytes of UTF-8 sort as code points
    return Holds(op, order < 0 ? -1 : order > 0);
  }
  if (a.kind() == b.kind() && (a.is_list() || a.is_tuple())) {
    DepthGuard depth(*this);
    if (!depth.ok || !Step(16)) return false;
    const Values &left = a.as<ListObject>().items, &right = b.as<ListObject>().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      const bool equal = Equal(left[i], right[i]);
      if (failed()) return false;
      if (!equal) return Ordered(op, left[i], right[i]);
    }
    return Holds(op, left.size() < right.size() ? -1 : left.size() > right.size());
  }
  if (a.kind() == Kind::kDictView && b.kind() == Kind::kDictView) {
    TypeError("the order of sets, as of dict.keys(), is not supported");
    return false;
  }
  constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  TypeError(fmt::format("'{}' not supported between instances of '{}' and '{}'", kNames[static_cast<size_t>(op)],
                        TypeName(a), TypeName(b)));
  return false;
}

bool Runtime::Compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq: return Equal(a, b);
    case CompareOp::kNe: return !Equal(a, b);
    case CompareOp::kIn: return Contains(b, a);
    case CompareOp::kNotIn: return !Contains(b, a);
    case CompareOp::kLt:
    case CompareOp::kLe:
    case CompareOp::kGt:
    case CompareOp::kGe: return Ordered(op, a, b);
  }
  return false;
}

bool Runtime::Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString: {
      if (!item.is_string()) {
        TypeError(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
        return false;
      }
      return StepBytes(Text(container).size() + Text(item).size()) &&
             FindFirst(Text(container), Text(item)) != std::string_view::npos;
    }
    case Kind::kDict: {
      uint64_t hash = 0;
      if (!StepKey(item)) return false;
      if (!HashValue(item, &hash)) {
        TypeError(fmt::format("unhashable type: '{}'", TypeName(item)));
        return false;
      }
      return container.as<DictObject>().Find(item, hash) != nullptr;
    }
    case Kind::kDictView: {
      const auto& view = container.as<DictViewObject>();
      if (view.part == DictPart::kKeys) return Contains(view.dict, item);
      break;
    }
    case Kind::kRange: {
      const auto& range = container.as<RangeObject>();
      if (item.kind() != Kind::kInt && item.kind() != Kind::kBool) break;
      const int64_t value = item.small_int();
      const bool inside =
          range.step > 0 ? value >= range.start && value < range.stop : value <= range.start && value > range.stop;
      return inside && (value - range.start) % range.step == 0;
    }
    default: break;
  }
  if (!IsIterable(container)) {
    TypeError(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
    return false;
  }
  Cursor cursor;
  if (!cursor.Start(*this, container)) return false;
  Value candidate;
  while (cursor.Next(*this, &candidate)) {
    if (Equal(candidate, item)) return true;
    if (failed()) return false;
  }
  return false;
}

bool Runtime::Sort(std::vector<std::pair<Value, Value>>& keys_and_items, bool reverse) {
  // Reversed before and after, equal items keep their order, as in Python.
  if (reverse) std::reverse(keys_and_items.begin(), keys_and_items.end());
  std::stable_sort(keys_and_items.begin(), keys_and_items.end(), [this](const auto& a, const auto& b) {
    return !failed() && Step(8) && Ordered(CompareOp::kLt, a.first, b.first);
  });
  if (reverse) std::reverse(keys_and_items.begin(), keys_and_items.end());
  return !failed();
}

}  // namespace nunspark::text::jinja
