// "..." % arguments.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/chat/builtin_tables.h"
#include "text/chat/number_format.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

struct Conversion {
  bool left = false, plus = false, blank = false, alternate = false, zero = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& arguments)
      : runtime_(runtime), format_(Text(format)), markup_(IsMarkup(format)), arguments_(arguments) {
    // What Python takes for a mapping: anything with [] but tuples and strings.
    is_mapping_ = arguments.is_dict() || arguments.is_list() || arguments.kind() == Kind::kRange ||
                  arguments.kind() == Kind::kSelf || arguments.is_undefined();
  }
  Value Run();

 private:
  bool ParseConversion(Conversion* conversion, Value* keyed);
  bool ParseStar(int64_t* value);
  bool NextArgument(Value* argument);
  bool Convert(const Conversion& conversion, const Value& value);
  bool ConvertInteger(const Conversion& conversion, const Value& value);
  bool ConvertFloat(const Conversion& conversion, const Value& value);
  bool ConvertCharacter(const Conversion& conversion, const Value& value);
  bool ToInteger(char type, const Value& value, BigInt* integer);
  void Pad(const Conversion& conversion, std::string_view sign, std::string_view body, bool numeric);
  char Peek() const { return position_ < format_.size() ? format_[position_] : '\0'; }

  Runtime& runtime_;
  const std::string_view format_;
  const bool markup_;
  const Value arguments_;
  bool is_mapping_;
  size_t position_ = 0;
  size_t used_ = 0;
  std::string out_;
};

Value PercentFormatter::Run() {
  while (position_ < format_.size()) {
    const char c = format_[position_++];
    if (c != '%') {
      out_.push_back(c);
      continue;
    }
    Conversion conversion;
    Value keyed = Value::Missing();
    if (!ParseConversion(&conversion, &keyed)) return Value::Failed();
    if (conversion.type == '%') {
      out_.push_back('%');
      continue;
    }
    Value value = keyed;
    if (value.missing() && !NextArgument(&value)) return Value::Failed();
    if (!Convert(conversion, value)) return Value::Failed();
    if (!runtime_.CheckBytes(static_cast<int64_t>(out_.size())) || !runtime_.Step(Runtime::kObjectSteps))
      return Value::Failed();
  }
  const size_t count = arguments_.is_tuple() ? arguments_.as<ListObject>().items.size() : 1;
  if (used_ < count && !is_mapping_) return runtime_.TypeError("not all arguments converted during string formatting");
  return runtime_.String(std::move(out_), markup_);
}

bool PercentFormatter::NextArgument(Value* argument) {
  if (arguments_.is_tuple()) {
    const Values& items = arguments_.as<ListObject>().items;
    if (used_ < items.size()) {
      *argument = items[used_++];
      return true;
    }
  } else if (used_ == 0) {
    ++used_;
    *argument = arguments_;
    return true;
  }
  runtime_.TypeError("not enough arguments for format string");
  return false;
}

bool PercentFormatter::ParseStar(int64_t* value) {
  if (Peek() == '*') {
    ++position_;
    Value argument;
    if (!NextArgument(&argument)) return false;
    if (!argument.is_integer()) {
      runtime_.TypeError("* wants int");
      return false;
    }
    return runtime_.ToIndex(argument, value);
  }
  *value = 0;
  while (Peek() >= '0' && Peek() <= '9') {
    *value = *value * 10 + (Peek() - '0');
    ++position_;
    if (*value > (int64_t{1} << 40)) {
      runtime_.ValueError("width too big");
      return false;
    }
  }
  return true;
}

bool PercentFormatter::ParseConversion(Conversion* conversion, Value* keyed) {
  if (Peek() == '(') {
    if (!is_mapping_) {
      runtime_.TypeError("format requires a mapping");
      return false;
    }
    int open = 1;
    const size_t begin = ++position_;
    while (position_ < format_.size() && open > 0) {
      const char c = format_[position_++];
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (open > 0) {
      runtime_.ValueError("incomplete format key");
      return false;
    }
    const std::string_view key = format_.substr(begin, position_ - 1 - begin);
    if (arguments_.is_undefined()) return !runtime_.FailUndefined(arguments_).failed();
    const Value* found = arguments_.is_dict() ? arguments_.as<DictObject>().FindText(key) : nullptr;
    if (!arguments_.is_dict()) {
      runtime_.TypeError(fmt::format("{} indices must be integers or slices, not str", TypeName(arguments_)));
      return false;
    }
    if (found == nullptr) {
      runtime_.Fail("KeyError", StringRepr(key));
      return false;
    }
    *keyed = *found;
    used_ = 1;
  }
  for (; position_ < format_.size(); ++position_) {
    const char c = format_[position_];
    if (c == '-') {
      conversion->left = true;
    } else if (c == '+') {
      conversion->plus = true;
    } else if (c == ' ') {
      conversion->blank = true;
    } else if (c == '#') {
      conversion->alternate = true;
    } else if (c == '0') {
      conversion->zero = true;
    } else {
      break;
    }
  }
  if (!ParseStar(&conversion->width)) return false;
  if (conversion->width < 0) {
    conversion->left = true;
    conversion->width = -conversion->width;
  }
  if (Peek() == '.') {
    ++position_;
    if (!ParseStar(&conversion->precision)) return false;
    conversion->precision = std::max<int64_t>(0, conversion->precision);
  }
  if (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++position_;
  if (position_ >= format_.size()) {
    runtime_.ValueError("incomplete format");
    return false;
  }
  conversion->type = format_[position_++];
  return runtime_.CheckBytes(conversion->width) && runtime_.CheckBytes(conversion->precision);
}

void PercentFormatter::Pad(const Conversion& conversion, std::string_view sign, std::string_view body, bool numeric) {
  const int64_t length = CountCharacters(sign) + CountCharacters(body);
  const auto pad = static_cast<size_t>(std::max<int64_t>(0, conversion.width - length));
  const bool zeros = numeric && conversion.zero && !conversion.left;
  if (!conversion.left && !zeros) out_.append(pad, ' ');
  out_ += sign;
  if (zeros) out_.append(pad, '0');
  out_ += body;
  if (conversion.left) out_.append(pad, ' ');
}

bool PercentFormatter::Convert(const Conversion& conversion, const Value& value) {
  switch (conversion.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text;
      if (conversion.type == 's' ? !runtime_.AppendStr(value, text) : !runtime_.AppendRepr(value, text)) return false;
      if (conversion.type == 'a') text = AsciiRepr(text);
      if (markup_ && !(conversion.type == 's' && IsMarkup(value))) text = EscapeText(text);
      if (conversion.precision >= 0) text.resize(ByteOffset(text, conversion.precision));
      Pad(conversion, "", text, false);
      return true;
    }
    case 'c': return ConvertCharacter(conversion, value);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X': return ConvertInteger(conversion, value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return ConvertFloat(conversion, value);
    default:
      runtime_.ValueError(fmt::format("unsupported format character '{}' (0x{:x}) at index {}", conversion.type,
                                      static_cast<unsigned char>(conversion.type), position_ - 1));
      return false;
  }
}

bool PercentFormatter::ToInteger(char type, const Value& value, BigInt* integer) {
  if (value.is_integer()) {
    if (value.kind() == Kind::kBig && !runtime_.StepDigits(value.as<BigObject>().value.bit_length() / 3)) return false;
    *integer = value.kind() == Kind::kBig ? value.as<BigObject>().value : BigInt(value.small_int());
    return true;
  }
  const bool hex = type == 'o' || type == 'x' || type == 'X';
  if (value.is_undefined() && !hex) return !runtime_.FailUndefined(value).failed();
  if (!value.is_float() || hex) {
    runtime_.TypeError(
        fmt::format("%{} format: {} is required, not {}", type, hex ? "an integer" : "a real number", TypeName(value)));
    return false;
  }
  if (!std::isfinite(value.float_value())) {
    runtime_.Fail(
        std::isnan(value.float_value()) ? "ValueError" : "OverflowError",
        fmt::format("cannot convert float {} to integer", std::isnan(value.float_value()) ? "NaN" : "infinity"));
    return false;
  }
  *integer = BigInt::FromDouble(value.float_value());
  return true;
}

bool PercentFormatter::ConvertInteger(const Conversion& conversion, const Value& value) {
  BigInt integer;
  if (!ToInteger(conversion.type, value, &integer)) return false;
  const char type = conversion.type;
  const uint32_t base = type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  std::string digits = (integer.is_negative() ? integer.Negated() : integer).ToString(base);
  if (type == 'X') digits = Upper(digits);
  if (conversion.precision > static_cast<int64_t>(digits.size())) {
    digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
  }
  std::string sign = integer.is_negative() ? "-" : conversion.plus ? "+" : conversion.blank ? " " : "";
  if (conversion.alternate && base != 10) sign += std::string("0") + type;
  Pad(conversion, sign, digits, true);
  return true;
}

bool PercentFormatter::ConvertFloat(const Conversion& conversion, const Value& value) {
  double number = 0;
  if (value.is_undefined()) return !runtime_.FailUndefined(value).failed();
  if (value.is_float()) {
    number = value.float_value();
  } else if (value.is_integer()) {
    BigInt integer;
    ToInteger('d', value, &integer);
    const auto converted = integer.ToDouble();
    if (!converted) {
      runtime_.Fail("OverflowError", "int too large to convert to float");
      return false;
    }
    number = *converted;
  } else {
    runtime_.TypeError(fmt::format("must be real number, not {}", TypeName(value)));
    return false;
  }
  const bool negative = std::signbit(number) && !std::isnan(number);
  if (!runtime_.Step(1 + conversion.precision * 4)) return false;
  const std::string digits =
      FloatDigits(std::fabs(number), conversion.type, conversion.precision, conversion.alternate);
  Pad(conversion, negative ? "-" : conversion.plus ? "+" : conversion.blank ? " " : "", digits, true);
  return true;
}

bool PercentFormatter::ConvertCharacter(const Conversion& conversion, const Value& value) {
  std::string text;
  if (value.is_string()) {
    if (value.as<StringObject>().length != 1) {
      runtime_.TypeError("%c requires int or char");
      return false;
    }
    text = Text(value);
  } else if (value.is_integer()) {
    const int64_t c = value.kind() == Kind::kBig ? -1 : value.small_int();
    if (c < 0 || c > 0x10FFFF) {
      runtime_.Fail("OverflowError", "%c arg not in range(0x110000)");
      return false;
    }
    AppendCodePoint(static_cast<uint32_t>(c), text);
  } else {
    runtime_.TypeError("%c requires int or char");
    return false;
  }
  if (markup_) text = EscapeText(text);
  Pad(conversion, "", text, false);
  return true;
}

}  // namespace

Value PercentFormat(Runtime& runtime, const Value& format, const Value& arguments) {
  return PercentFormatter(runtime, format, arguments).Run();
}

}  // namespace nunspark::text::jinja
