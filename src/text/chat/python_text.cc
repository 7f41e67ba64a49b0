// str() and repr().
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/ascii.h"
#include "text/chat/interpreter.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// Nodes that a few steps made can be met exponentially often when lists share lists: each one costs.
constexpr int64_t kStepsPerNode = 8;

// What is being printed right now, so that a namespace that holds itself ends as {...}. A stack; usually short.
class Printing {
 public:
  Printing(std::vector<const Object*>& stack, const Object* object)
      : stack_(stack), repeated(std::find(stack.begin(), stack.end(), object) != stack.end()) {
    stack_.push_back(object);
  }
  ~Printing() { stack_.pop_back(); }
  Printing(const Printing&) = delete;
  Printing& operator=(const Printing&) = delete;

 private:
  std::vector<const Object*>& stack_;

 public:
  const bool repeated;
};

class ReprWriter {
 public:
  ReprWriter(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}
  // By value: while a loop is printed its generator runs, which may change the list that holds it.
  bool Write(Value value);

 private:
  bool WriteItems(const Values& items, char open, char close);
  bool WriteDict(const DictObject& dict);
  bool WriteView(const DictViewObject& view);

  Runtime& runtime_;
  std::string& out_;
  std::vector<const Object*> printing_;
};

bool ReprWriter::WriteItems(const Values& items, char open, char close) {
  out_.push_back(open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ", ";
    if (!Write(items[i])) return false;
  }
  if (items.size() == 1 && open == '(') out_.push_back(',');
  out_.push_back(close);
  return true;
}

bool ReprWriter::WriteDict(const DictObject& dict) {
  Printing printing(printing_, &dict);
  if (printing.repeated) {
    out_ += "{...}";
    return true;
  }
  out_.push_back('{');
  const size_t count = dict.entries.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out_ += ", ";
    if (!Write(dict.entries[i].key)) return false;
    out_ += ": ";
    if (!Write(dict.entries[i].value)) return false;
    if (dict.entries.size() != count) {  // a namespace that grew while a generator in it ran
      runtime_.Fail("RuntimeError", "dictionary changed size during iteration");
      return false;
    }
  }
  out_.push_back('}');
  return true;
}

bool ReprWriter::WriteView(const DictViewObject& view) {
  Values items;
  for (const DictObject::Entry& entry : view.dict.as<DictObject>().entries) {
    if (view.part == DictPart::kItems) {
      items.push_back(runtime_.Tuple({entry.key, entry.value}));
      if (items.back().failed()) return false;
    } else {
      items.push_back(view.part == DictPart::kKeys ? entry.key : entry.value);
    }
  }
  out_ += view.part == DictPart::kKeys ? "dict_keys(" : view.part == DictPart::kValues ? "dict_values(" : "dict_items(";
  if (!WriteItems(items, '[', ']')) return false;
  out_.push_back(')');
  return true;
}

bool ReprWriter::Write(Value value) {
  if (!runtime_.Step(kStepsPerNode) || !runtime_.CheckBytes(static_cast<int64_t>(out_.size()))) return false;
  DepthGuard depth(runtime_);
  if (!depth.ok) return false;
  switch (value.kind()) {
    case Kind::kNone: out_ += "None"; return true;
    case Kind::kBool: out_ += value.bool_value() ? "True" : "False"; return true;
    case Kind::kInt: out_ += std::to_string(value.small_int()); return true;
    case Kind::kFloat: out_ += FloatRepr(value.float_value()); return true;
    case Kind::kBig:
      if (!runtime_.StepDigits(value.as<BigObject>().value.bit_length() / 3)) return false;
      out_ += value.as<BigObject>().value.ToString();
      return true;
    case Kind::kString: {
      if (!runtime_.StepBytes(Text(value).size() * kPerCharacter)) return false;
      const std::string quoted = StringRepr(Text(value));
      out_ += value.as<StringObject>().markup ? "Markup(" + quoted + ")" : quoted;
      return true;
    }
    case Kind::kUndefined: out_ += "Undefined"; return true;
    case Kind::kList: {
      Printing printing(printing_, value.object());
      if (!printing.repeated) return WriteItems(value.as<ListObject>().items, '[', ']');
      out_ += "[...]";
      return true;
    }
    case Kind::kTuple: {
      Printing printing(printing_, value.object());
      if (!printing.repeated) return WriteItems(value.as<ListObject>().items, '(', ')');
      out_ += "(...)";
      return true;
    }
    case Kind::kDict: return WriteDict(value.as<DictObject>());
    case Kind::kDictView: return WriteView(value.as<DictViewObject>());
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      out_ += fmt::format("range({}, {}", range.start, range.stop);
      if (range.step != 1) out_ += fmt::format(", {}", range.step);
      out_.push_back(')');
      return true;
    }
    case Kind::kNamespace:
      out_ += "<Namespace ";
      if (!Write(value.as<NamespaceObject>().attributes)) return false;
      out_.push_back('>');
      return true;
    case Kind::kMacro: {
      const MacroInfo& info = value.as<MacroObject>().info();
      out_ += info.anonymous ? "<Macro anonymous>" : "<Macro " + StringRepr(info.name) + ">";
      return true;
    }
    case Kind::kLoop: {
      auto& loop = value.as<LoopObject>();
      const int64_t length = loop.Length(runtime_);
      out_ += fmt::format("<LoopContext {}/{}>", loop.index(), length);
      return length >= 0;
    }
    case Kind::kFunction: {
      const auto& function = value.as<FunctionObject>();
      const std::string_view name = function.builtin->name;
      if (!function.self.missing()) {
        out_ += fmt::format("<built-in method {} of {} object>", name, TypeName(function.self));
      } else if (name == "dict") {
        out_ += "<class 'dict'>";
      } else if (name == "cycler" || name == "joiner" || name == "namespace") {
        const char first = static_cast<char>(name[0] - 'a' + 'A');
        out_ += fmt::format("<class 'jinja2.utils.{}{}'>", first, name.substr(1));
      } else {
        out_ += fmt::format("<function {}>", name);
      }
      return true;
    }
    case Kind::kSelf: out_ += "<TemplateReference None>"; return true;
    case Kind::kIterator:
    case Kind::kCycler:
    case Kind::kJoiner:
    case Kind::kBlock:
    case Kind::kSlice: out_ += "<" + TypeName(value) + " object>"; return true;
    case Kind::kFailed:
    case Kind::kMissing:
    case Kind::kEnv: return false;
  }
  return false;
}

}  // namespace

bool Runtime::AppendStr(const Value& value, std::string& out) {
  if (value.is_string()) {
    out += Text(value);
    return StepBytes(Text(value).size()) && CheckBytes(static_cast<int64_t>(out.size()));
  }
  if (value.is_undefined()) return true;
  return ReprWriter(*this, out).Write(value);
}

bool Runtime::AppendRepr(const Value& value, std::string& out) { return ReprWriter(*this, out).Write(value); }

Value Runtime::ToString(const Value& value) {
  if (value.is_string()) return value;
  std::string text;
  return AppendStr(value, text) ? String(std::move(text)) : Value::Failed();
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string sign;
  if (text[0] == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (count > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02d}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent + 1);
  if (count <= exponent + 1) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string StringRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = NextCodePoint(text, &i);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out.append(text.substr(begin, i - begin));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  out.push_back(quote);
  return out;
}

namespace {

// Decimal digits of any script as ASCII, without surrounding white space and valid underscores. False: malformed.
bool NormalizeNumber(std::string_view text, std::string* ascii) {
  text = StripRight(StripLeft(text, IsSpace), IsSpace);
  bool after_digit = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = NextCodePoint(text, &i);
    if (c == '_') {
      const bool digit_follows = i < text.size() && (IsAlnum(static_cast<unsigned char>(text[i])) || text[i] < 0);
      if (!after_digit || !digit_follows) return false;
      after_digit = false;
      continue;
    }
    const int digit = DecimalValue(c);
    after_digit = digit >= 0 || (c < 0x80 && IsAlnum(c));
    if (digit >= 0) {
      ascii->push_back(static_cast<char>('0' + digit));
    } else if (c < 0x80) {
      ascii->push_back(static_cast<char>(c));
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

bool ParseFloat(std::string_view text, double* value) {
  std::string ascii;
  if (!NormalizeNumber(text, &ascii)) return false;
  std::string_view rest = ascii;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const std::string lower = AsciiLower(rest);
  if (lower == "inf" || lower == "infinity") {
    *value = negative ? -INFINITY : INFINITY;
    return true;
  }
  if (lower == "nan") {
    *value = NAN;
    return true;
  }
  if (lower.empty() || !(lower[0] == '.' || (lower[0] >= '0' && lower[0] <= '9'))) return false;
  double number = 0;
  const auto result = std::from_chars(lower.data(), lower.data() + lower.size(), number);
  if (result.ptr != lower.data() + lower.size()) return false;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large, or too small for any double: strtod tells which.
    number = std::strtod(lower.c_str(), nullptr);
  } else if (result.ec != std::errc()) {
    return false;
  }
  *value = negative ? -number : number;
  return true;
}

bool ParseInteger(std::string_view text, int64_t base, BigInt* value) {
  text = StripRight(StripLeft(text, IsSpace), IsSpace);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  int64_t prefix_base = 0;
  if (text.size() >= 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 32);
    prefix_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  }
  bool zeros_only = false;
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    base = prefix_base;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    zeros_only = text.size() > 1 && text[0] == '0';  // "010" is no literal of Python
  }
  std::string ascii;
  if (text.empty() || IsSpace(static_cast<unsigned char>(text[0])) || !NormalizeNumber(text, &ascii)) return false;
  if (zeros_only && ascii.find_first_not_of('0') != std::string::npos) return false;
  auto number = BigInt::FromDigits(ascii, static_cast<uint32_t>(base));
  if (!number || ascii.empty()) return false;
  *value = negative ? number->Negated() : *number;
  return true;
}

}  // namespace nunspark::text::jinja
