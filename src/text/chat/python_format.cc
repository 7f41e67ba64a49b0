// str.format, format() and their little language.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/chat/builtin_tables.h"
#include "text/chat/number_format.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// [[fill]align][sign][z][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool no_negative_zero = false;
  bool alternate = false;
  bool zero_padded = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

bool ParseDigits(std::string_view* rest, int64_t* value) {
  bool any = false;
  *value = 0;
  while (!rest->empty() && rest->front() >= '0' && rest->front() <= '9') {
    *value = std::min<int64_t>(*value * 10 + (rest->front() - '0'), int64_t{1} << 40);
    rest->remove_prefix(1);
    any = true;
  }
  return any;
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

bool ParseSpec(Runtime& runtime, std::string_view text, const std::string& type_name, Spec* spec) {
  std::string_view rest = text;
  auto take = [&rest](char c) {
    if (rest.empty() || rest[0] != c) return false;
    rest.remove_prefix(1);
    return true;
  };
  size_t after_first = 0;
  if (!rest.empty()) NextCodePoint(rest, &after_first);
  if (after_first != 0 && after_first < rest.size() && IsAlign(rest[after_first])) {
    spec->fill = rest.substr(0, after_first);
    spec->align = rest[after_first];
    rest.remove_prefix(after_first + 1);
  } else if (!rest.empty() && IsAlign(rest[0])) {
    spec->align = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec->sign = rest[0];
    rest.remove_prefix(1);
    if (spec->sign == '-') spec->sign = 'm';  // given explicitly: not allowed for text
  }
  spec->no_negative_zero = take('z');
  spec->alternate = take('#');
  if (take('0')) {
    spec->zero_padded = true;
    if (spec->align == 0) spec->align = '=';
    if (spec->fill == " ") spec->fill = "0";
  }
  ParseDigits(&rest, &spec->width);
  if (!rest.empty() && (rest[0] == ',' || rest[0] == '_')) {
    spec->grouping = rest[0];
    rest.remove_prefix(1);
    if (!rest.empty() && (rest[0] == ',' || rest[0] == '_')) {
      runtime.ValueError(rest[0] == spec->grouping
                             ? fmt::format("Cannot specify '{}' with '{}'.", spec->grouping, rest[0])
                             : "Cannot specify both ',' and '_'.");
      return false;
    }
  }
  if (take('.') && !ParseDigits(&rest, &spec->precision)) {
    runtime.ValueError("Format specifier missing precision");
    return false;
  }
  if (rest.size() > 1) {
    runtime.ValueError(fmt::format("Invalid format specifier '{}' for object of type '{}'", text, type_name));
    return false;
  }
  if (!rest.empty()) spec->type = rest[0];
  return runtime.CheckBytes(spec->width) && runtime.CheckBytes(spec->precision);
}

// `prefix` is sign and base, kept before padding with '='.
void Pad(const Spec& spec, char default_align, std::string_view prefix, std::string_view body, std::string& out) {
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t length = CountCharacters(prefix) + CountCharacters(body);
  const int64_t pad = std::max<int64_t>(0, spec.width - length);
  const int64_t left = align == '>' || align == '=' ? pad : align == '^' ? pad / 2 : 0;
  if (align == '=') out += prefix;
  for (int64_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += prefix;
  out += body;
  for (int64_t i = left; i < pad; ++i) out += spec.fill;
}

// Separators every `group` digits; with zero padding the zeros are grouped too, up to `min_width` characters.
std::string Group(std::string_view digits, char separator, int group, int64_t min_width) {
  std::string reversed;
  int count = 0;
  size_t left = digits.size();
  while (left > 0 || static_cast<int64_t>(reversed.size()) < min_width) {
    if (count == group) {
      reversed.push_back(separator);
      count = 0;
      continue;
    }
    reversed.push_back(left > 0 ? digits[--left] : '0');
    ++count;
  }
  if (!reversed.empty() && reversed.back() == separator) reversed.push_back('0');
  return {reversed.rbegin(), reversed.rend()};
}

std::string SignOf(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

bool FormatText(Runtime& runtime, std::string_view text, const Spec& spec, std::string& out) {
  if (spec.sign != '-') {
    runtime.ValueError(spec.sign == ' ' ? "Space not allowed in string format specifier"
                                        : "Sign not allowed in string format specifier");
  } else if (spec.alternate) {
    runtime.ValueError("Alternate form (#) not allowed in string format specifier");
  } else if (spec.align == '=' && !spec.zero_padded) {
    runtime.ValueError("'=' alignment not allowed in string format specifier");
  } else if (spec.type != 0 && spec.type != 's') {
    runtime.ValueError(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
  } else if (spec.grouping != 0) {
    runtime.ValueError(fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  }
  if (runtime.failed()) return false;
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, spec.precision));
  Spec padded = spec;
  if (padded.align == '=') padded.align = '<';
  Pad(padded, '<', "", text, out);
  return true;
}

bool FormatFloat(Runtime& runtime, double value, const Spec& spec, std::string& out);

bool FormatInteger(Runtime& runtime, const BigInt& value, const Spec& spec, std::string& out) {
  const std::string_view known = "bcdoxXn";
  if (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    const auto number = value.ToDouble();
    if (!number) {
      runtime.Fail("OverflowError", "int too large to convert to float");
      return false;
    }
    return FormatFloat(runtime, *number, spec, out);
  }
  if (spec.type != 0 && known.find(spec.type) == std::string_view::npos) {
    runtime.ValueError(fmt::format("Unknown format code '{}' for object of type 'int'", spec.type));
    return false;
  }
  if (spec.precision >= 0) {
    runtime.ValueError("Precision not allowed in integer format specifier");
    return false;
  }
  if (spec.type == 'c') {
    const auto c = value.ToInt64();
    if (!c || *c < 0 || *c > 0x10FFFF) {
      runtime.Fail("OverflowError", "%c arg not in range(0x110000)");
      return false;
    }
    std::string text;
    AppendCodePoint(static_cast<uint32_t>(*c), text);
    Pad(spec, '<', "", text, out);
    return true;
  }
  const uint32_t base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  if (spec.grouping == ',' && base != 10) {
    runtime.ValueError(fmt::format("Cannot specify ',' with '{}'.", spec.type));
    return false;
  }
  if (spec.grouping != 0 && spec.type == 'n') {
    runtime.ValueError(fmt::format("Cannot specify '{}' with 'n'.", spec.grouping));
    return false;
  }
  std::string digits = (value.is_negative() ? value.Negated() : value).ToString(base);
  if (spec.type == 'X') digits = Upper(digits);
  std::string prefix = SignOf(spec, value.is_negative());
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  if (spec.grouping != 0) {
    const bool zeros = spec.align == '=' && spec.fill == "0";
    digits =
        Group(digits, spec.grouping, base == 10 ? 3 : 4, zeros ? spec.width - static_cast<int64_t>(prefix.size()) : 0);
  }
  Pad(spec, '>', prefix, digits, out);
  return true;
}

bool FormatFloat(Runtime& runtime, double value, const Spec& spec, std::string& out) {
  if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    runtime.ValueError(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
    return false;
  }
  if (spec.grouping != 0 && spec.type == 'n') {
    runtime.ValueError(fmt::format("Cannot specify '{}' with 'n'.", spec.grouping));
    return false;
  }
  if (!runtime.Step(1 + spec.precision * 4)) return false;
  std::string digits = FloatDigits(std::fabs(value), spec.type, spec.precision, spec.alternate);
  bool negative = std::signbit(value) && !std::isnan(value);
  if (spec.no_negative_zero && digits.find_first_of("123456789") == std::string::npos && std::isfinite(value))
    negative = false;
  const std::string prefix = SignOf(spec, negative);
  if (spec.grouping != 0 && std::isfinite(value)) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    const std::string rest = digits.substr(whole);
    const bool zeros = spec.align == '=' && spec.fill == "0";
    const int64_t min_width = zeros ? spec.width - static_cast<int64_t>(prefix.size() + rest.size()) : 0;
    digits = Group(digits.substr(0, whole), spec.grouping, 3, min_width) + rest;
  }
  Pad(spec, '>', prefix, digits, out);
  return true;
}

// Reads "{...}" fields of a format string.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, const Value& mapping, bool markup)
      : runtime_(runtime), arguments_(arguments), mapping_(mapping), markup_(markup) {}
  bool Format(std::string_view format, int depth, std::string& out);

 private:
  bool Field(std::string_view field, int depth, std::string& out);
  Value Lookup(std::string_view name);
  Value First(std::string_view name);
  // Where the field that begins at `begin` (after its brace) ends, npos when it does not.
  static size_t FieldEnd(std::string_view format, size_t begin);

  Runtime& runtime_;
  const Arguments& arguments_;
  const Value mapping_;
  const bool markup_;
  int64_t next_index_ = 0;
  enum class Numbering : uint8_t { kUnknown, kAutomatic, kManual } numbering_ = Numbering::kUnknown;
};

size_t BraceFormatter::FieldEnd(std::string_view format, size_t begin) {
  int open = 1;
  bool in_brackets = false;
  for (size_t i = begin; i < format.size(); ++i) {
    const char c = format[i];
    // Braces inside an index are part of it.
    if (c == '[' && open == 1) in_brackets = true;
    if (c == ']') in_brackets = false;
    if (in_brackets) continue;
    if (c == '{') ++open;
    if (c == '}' && --open == 0) return i;
  }
  return std::string_view::npos;
}

bool BraceFormatter::Format(std::string_view format, int depth, std::string& out) {
  if (depth < 0) {
    runtime_.ValueError("Max string recursion exceeded");
    return false;
  }
  for (size_t i = 0; i < format.size();) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out.push_back(c);
      ++i;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out.push_back(c);
      i += 2;
      continue;
    }
    if (c == '}' || i + 1 == format.size()) {
      runtime_.ValueError(fmt::format("Single '{}' encountered in format string", c));
      return false;
    }
    const size_t end = FieldEnd(format, i + 1);
    if (end == std::string_view::npos) {
      runtime_.ValueError("expected '}' before end of string");
      return false;
    }
    if (!Field(format.substr(i + 1, end - i - 1), depth, out)) return false;
    if (!runtime_.CheckBytes(static_cast<int64_t>(out.size())) || !runtime_.Step(Runtime::kObjectSteps)) return false;
    i = end + 1;
  }
  return true;
}

Value BraceFormatter::First(std::string_view name) {
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
  if (name.empty() || is_number) {
    const Numbering wanted = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
    if (numbering_ != Numbering::kUnknown && numbering_ != wanted) {
      return runtime_.ValueError(name.empty()
                                     ? "cannot switch from manual field specification to automatic field numbering"
                                     : "cannot switch from automatic field numbering to manual field specification");
    }
    numbering_ = wanted;
    if (!runtime_.StepDigits(static_cast<int64_t>(name.size()))) return Value::Failed();
    BigInt number(next_index_);
    if (name.empty()) {
      ++next_index_;
    } else if (!ParseInteger(name, 10, &number)) {
      return runtime_.ValueError("Too many decimal digits in format string");
    }
    const auto index = number.ToInt64();
    if (!mapping_.missing() || !index || *index >= static_cast<int64_t>(arguments_.positional.size())) {
      return runtime_.Fail(
          "IndexError", fmt::format("Replacement index {} out of range for positional args tuple", number.ToString()));
    }
    return arguments_.positional[static_cast<size_t>(*index)];
  }
  if (!mapping_.missing()) {
    if (mapping_.is_undefined()) return runtime_.FailUndefined(mapping_);
    if (!mapping_.is_dict()) return runtime_.TypeError("format_map() needs a mapping");
    const Value* value = mapping_.as<DictObject>().FindText(name);
    return value != nullptr ? *value : runtime_.Fail("KeyError", StringRepr(name));
  }
  if (!runtime_.Step(static_cast<int64_t>(arguments_.keywords.size() / 8))) return Value::Failed();
  for (const auto& [key, value] : arguments_.keywords) {
    if (key == name) return value;
  }
  return runtime_.Fail("KeyError", StringRepr(name));
}

Value BraceFormatter::Lookup(std::string_view name) {
  const size_t first_end = std::min(name.find_first_of(".["), name.size());
  JINJA_TRY(Value value, First(name.substr(0, first_end)));
  std::string_view rest = name.substr(first_end);
  while (!rest.empty()) {
    if (rest[0] == '.') {
      const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
      if (end == 1) return runtime_.ValueError("Empty attribute in format string");
      JINJA_TRY(value, runtime_.GetAttribute(value, rest.substr(1, end - 1)));
      rest = rest.substr(end);
      continue;
    }
    if (rest[0] != '[') return runtime_.ValueError("Only '.' or '[' may follow ']' in format field specifier");
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return runtime_.ValueError("Missing ']' in format string");
    const std::string_view key = rest.substr(1, end - 1);
    if (key.empty()) return runtime_.ValueError("Empty attribute in format string");
    BigInt number;
    if (!runtime_.StepDigits(static_cast<int64_t>(key.size()))) return Value::Failed();
    const bool is_number =
        key.find_first_not_of("0123456789") == std::string_view::npos && ParseInteger(key, 10, &number);
    JINJA_TRY(const Value index, is_number ? runtime_.Integer(number) : runtime_.String(std::string(key)));
    JINJA_TRY(value, runtime_.GetItem(value, index));
    rest = rest.substr(end + 1);
  }
  return value;
}

bool BraceFormatter::Field(std::string_view field, int depth, std::string& out) {
  // name [!conversion] [:spec]; brackets in the name hide both marks.
  size_t name_end = 0;
  bool in_brackets = false;
  for (; name_end < field.size(); ++name_end) {
    const char c = field[name_end];
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    if (!in_brackets && (c == ':' || c == '!')) break;
    if (c == '{' && !in_brackets) {
      runtime_.ValueError("unexpected '{' in field name");
      return false;
    }
  }
  std::string_view rest = field.substr(name_end);
  char conversion = 0;
  if (rest.starts_with('!')) {
    if (rest.size() < 2) {
      runtime_.ValueError("end of string while looking for conversion specifier");
      return false;
    }
    conversion = rest[1];
    rest = rest.substr(2);
    if (!rest.empty() && rest[0] != ':') {
      runtime_.ValueError("expected ':' after conversion specifier");
      return false;
    }
  }
  Value value = Lookup(field.substr(0, name_end));
  if (value.failed()) return false;
  if (conversion == 's') {
    value = runtime_.ToString(value);
  } else if (conversion == 'r' || conversion == 'a') {
    std::string text;
    if (!runtime_.AppendRepr(value, text)) return false;
    value = runtime_.String(conversion == 'a' ? AsciiRepr(text) : std::move(text));
  } else if (conversion != 0) {
    runtime_.ValueError(fmt::format("Unknown conversion specifier {}", conversion));
    return false;
  }
  if (value.failed()) return false;
  std::string spec;
  if (rest.starts_with(':') && !Format(rest.substr(1), depth - 1, spec)) return false;
  if (!markup_) return FormatValue(runtime_, value, spec, out);
  if (IsMarkup(value)) {
    if (!spec.empty()) {
      runtime_.ValueError("Unsupported format specification for Markup.");
      return false;
    }
    out += Text(value);
    return true;
  }
  std::string text;
  if (!FormatValue(runtime_, value, spec, text)) return false;
  out += EscapeText(text);
  return true;
}

}  // namespace

bool FormatValue(Runtime& runtime, const Value& value, std::string_view spec_text, std::string& out) {
  if (spec_text.empty()) return runtime.AppendStr(value, out);
  Spec spec;
  if (!value.is_string() && !value.is_number()) {
    runtime.TypeError(fmt::format("unsupported format string passed to {}.__format__", TypeName(value)));
    return false;
  }
  if (!ParseSpec(runtime, spec_text, TypeName(value), &spec)) return false;
  if (value.is_string()) return FormatText(runtime, Text(value), spec, out);
  if (value.is_float()) return FormatFloat(runtime, value.float_value(), spec, out);
  if (value.kind() == Kind::kBig && !runtime.StepDigits(value.as<BigObject>().value.bit_length() / 3)) return false;
  return FormatInteger(runtime, value.kind() == Kind::kBig ? value.as<BigObject>().value : BigInt(value.small_int()),
                       spec, out);
}

Value BraceFormat(Runtime& runtime, std::string_view format, const Arguments& arguments, const Value& mapping,
                  bool markup) {
  std::string out;
  if (!BraceFormatter(runtime, arguments, mapping, markup).Format(format, 1, out)) return Value::Failed();
  return runtime.String(std::move(out), markup);
}

}  // namespace nunspark::text::jinja
