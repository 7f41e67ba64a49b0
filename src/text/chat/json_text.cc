// JSON in and out as Python's json module does it: integers exact at any size, NaN and Infinity known, lone surrogates
// kept, dumps() with its options.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/chat/runtime.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

constexpr int kMaxJsonDepth = 512;

class JsonReader {
 public:
  JsonReader(Runtime& runtime, std::string_view text) : runtime_(runtime), text_(text) {}

  Value Run() {
    SkipSpace();
    JINJA_TRY(Value value, ReadValue(0));
    SkipSpace();
    if (position_ != text_.size()) return Malformed("Extra data");
    return value;
  }

 private:
  Value Malformed(std::string_view what) {
    return runtime_.Fail("JSONDecodeError", fmt::format("{} at byte {}", what, position_));
  }
  void SkipSpace() {
    while (position_ < text_.size() && std::string_view(" \t\n\r").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }
  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool Skip(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  Value ReadValue(int depth);
  Value ReadArray(int depth);
  Value ReadObject(int depth);
  bool ReadMembers(int depth, DictObject* dict);
  Value ReadString();
  Value ReadNumber();
  bool ReadHex4(uint32_t* value);

  Runtime& runtime_;
  std::string_view text_;
  size_t position_ = 0;
};

Value JsonReader::ReadValue(int depth) {
  if (depth > kMaxJsonDepth) return Malformed("nested too deeply");
  if (!runtime_.Step()) return Value::Failed();
  const char c = Peek();
  if (c == '{') return ReadObject(depth);
  if (c == '[') return ReadArray(depth);
  if (c == '"') return ReadString();
  if (Skip("true")) return Value::Bool(true);
  if (Skip("false")) return Value::Bool(false);
  if (Skip("null")) return Value::None();
  if (Skip("NaN")) return Value::Float(NAN);
  if (Skip("Infinity")) return Value::Float(INFINITY);
  if (Skip("-Infinity")) return Value::Float(-INFINITY);
  if (c == '-' || (c >= '0' && c <= '9')) return ReadNumber();
  return Malformed("Expecting value");
}

Value JsonReader::ReadArray(int depth) {
  Values items;
  ++position_;
  SkipSpace();
  if (Skip("]")) return runtime_.List({});
  while (true) {
    SkipSpace();
    JINJA_TRY(Value item, ReadValue(depth + 1));
    items.push_back(std::move(item));
    SkipSpace();
    if (Skip("]")) return runtime_.List(std::move(items));
    if (!Skip(",")) return Malformed("Expecting ',' delimiter");
  }
}

Value JsonReader::ReadObject(int depth) {
  ++position_;
  auto* dict = new DictObject();
  const bool ok = ReadMembers(depth, dict);
  Value value = runtime_.Seal(dict);  // owns it, also when it is not whole
  return ok ? value : Value::Failed();
}

bool JsonReader::ReadMembers(int depth, DictObject* dict) {
  SkipSpace();
  if (Skip("}")) return true;
  while (true) {
    SkipSpace();
    if (Peek() != '"') {
      Malformed("Expecting property name enclosed in double quotes");
      return false;
    }
    const Value key = ReadString();
    if (key.failed()) return false;
    SkipSpace();
    if (!Skip(":")) {
      Malformed("Expecting ':' delimiter");
      return false;
    }
    SkipSpace();
    Value value = ReadValue(depth + 1);
    if (value.failed() || !runtime_.SetKey(*dict, key, std::move(value))) return false;
    SkipSpace();
    if (Skip("}")) return true;
    if (!Skip(",")) {
      Malformed("Expecting ',' delimiter");
      return false;
    }
  }
}

bool JsonReader::ReadHex4(uint32_t* value) {
  const auto digits = text_.substr(std::min(position_, text_.size()), 4);
  const auto number = BigInt::FromDigits(digits, 16);
  if (digits.size() != 4 || !number) return false;
  *value = static_cast<uint32_t>(number->ToInt64().value_or(0));
  position_ += 4;
  return true;
}

Value JsonReader::ReadString() {
  ++position_;
  std::string out;
  while (true) {
    if (position_ >= text_.size()) return Malformed("Unterminated string");
    const char c = text_[position_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) return Malformed("Invalid control character");
    if (c != '\\') {
      // Bad UTF-8 becomes U+FFFD here.
      AppendCodePoint(NextCodePoint(text_, &position_), out);
      continue;
    }
    ++position_;
    const char escape = Peek();
    ++position_;
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(escape); escape != '\0' && i != std::string_view::npos) {
      out.push_back(kTo[i]);
      continue;
    }
    uint32_t unit = 0;
    if (escape != 'u' || !ReadHex4(&unit)) return Malformed("Invalid \\escape");
    if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(position_).starts_with("\\u")) {
      const size_t before = position_;
      uint32_t low = 0;
      position_ += 2;
      if (!ReadHex4(&low)) return Malformed("Invalid \\uXXXX escape");
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
      } else {
        position_ = before;
      }
    }
    AppendCodePoint(unit, out);
  }
  ++position_;
  return runtime_.String(std::move(out));
}

Value JsonReader::ReadNumber() {
  const size_t begin = position_;
  auto digits = [this] {
    const size_t from = position_;
    while (Peek() >= '0' && Peek() <= '9') ++position_;
    return position_ > from;
  };
  if (Peek() == '-') ++position_;
  if (Peek() == '0') {
    ++position_;
  } else if (!digits()) {
    return Malformed("Expecting value");
  }
  bool integral = true;
  if (Peek() == '.') {
    ++position_;
    integral = false;
    if (!digits()) return Malformed("Expecting digits");
  }
  if (Peek() == 'e' || Peek() == 'E') {
    ++position_;
    integral = false;
    if (Peek() == '+' || Peek() == '-') ++position_;
    if (!digits()) return Malformed("Expecting digits");
  }
  const std::string_view number = text_.substr(begin, position_ - begin);
  if (!integral) {
    double value = 0;
    ParseFloat(number, &value);
    return Value::Float(value);
  }
  BigInt value;
  if (!runtime_.StepDigits(static_cast<int64_t>(number.size()))) return Value::Failed();
  if (!ParseInteger(number, 10, &value)) return runtime_.ValueError("an integer of more than 4300 digits");
  return runtime_.Integer(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, std::string& out)
      : runtime_(runtime), style_(style), out_(out) {}
  bool Write(const Value& value, int level);

 private:
  bool WriteString(std::string_view text);
  void NewLine(int level) {
    if (!style_.has_indent) return;
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }
  bool WriteList(const Values& items, int level);
  bool WriteDict(const DictObject& dict, int level);
  bool WriteKey(const Value& key);

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string& out_;
};

bool JsonWriter::WriteString(std::string_view text) {
  if (!runtime_.StepBytes(text.size())) return false;
  out_.push_back('"');
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = NextCodePoint(text, &i);
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    if (const size_t at = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
        at != std::string_view::npos) {
      out_.push_back('\\');
      out_.push_back(kTo[at]);
    } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E && c < 0x10000)) {
      out_ += c == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", c);
    } else if (style_.ensure_ascii && c >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_.append(text.substr(begin, i - begin));
    }
  }
  out_.push_back('"');
  return true;
}

bool JsonWriter::WriteKey(const Value& key) {
  std::string text;
  switch (key.kind()) {
    case Kind::kString: return WriteString(Text(key));
    case Kind::kNone: text = "null"; break;
    case Kind::kBool: text = key.bool_value() ? "true" : "false"; break;
    case Kind::kInt:
    case Kind::kBig:
    case Kind::kFloat: {
      JsonWriter number(runtime_, style_, text);
      if (!number.Write(key, 0)) return false;
      break;
    }
    default:
      runtime_.TypeError(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
      return false;
  }
  return WriteString(text);
}

bool JsonWriter::WriteList(const Values& items, int level) {
  if (items.empty()) {
    out_ += "[]";
    return true;
  }
  out_.push_back('[');
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    NewLine(level + 1);
    if (!Write(items[i], level + 1)) return false;
  }
  NewLine(level);
  out_.push_back(']');
  return true;
}

bool JsonWriter::WriteDict(const DictObject& dict, int level) {
  if (dict.entries.empty()) {
    out_ += "{}";
    return true;
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const DictObject::Entry& entry : dict.entries) entries.emplace_back(entry.key, entry.value);
  if (style_.sort_keys && !runtime_.Sort(entries, false)) return false;
  out_.push_back('{');
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    NewLine(level + 1);
    if (!WriteKey(entries[i].first)) return false;
    out_ += style_.key_separator;
    if (!Write(entries[i].second, level + 1)) return false;
  }
  NewLine(level);
  out_.push_back('}');
  return true;
}

bool JsonWriter::Write(const Value& value, int level) {
  if (!runtime_.Step(8) || !runtime_.CheckBytes(static_cast<int64_t>(out_.size()))) return false;
  DepthGuard depth(runtime_);
  if (!depth.ok) return false;
  switch (value.kind()) {
    case Kind::kNone: out_ += "null"; return true;
    case Kind::kBool: out_ += value.bool_value() ? "true" : "false"; return true;
    case Kind::kInt: out_ += std::to_string(value.small_int()); return true;
    case Kind::kBig:
      if (!runtime_.StepDigits(value.as<BigObject>().value.bit_length() / 3)) return false;
      out_ += value.as<BigObject>().value.ToString();
      return true;
    case Kind::kFloat: {
      const double number = value.float_value();
      out_ += std::isnan(number)   ? "NaN"
              : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                   : FloatRepr(number);
      return true;
    }
    case Kind::kString: return WriteString(Text(value));
    case Kind::kList:
    case Kind::kTuple: return WriteList(value.as<ListObject>().items, level);
    case Kind::kDict: return WriteDict(value.as<DictObject>(), level);
    default:
      runtime_.TypeError(fmt::format("Object of type {} is not JSON serializable", TypeName(value)));
      return false;
  }
}

}  // namespace

bool AppendJson(Runtime& runtime, const Value& value, const JsonStyle& style, std::string& out) {
  return JsonWriter(runtime, style, out).Write(value, 0) && runtime.CheckBytes(static_cast<int64_t>(out.size()));
}

Value ParseJsonValue(Runtime& runtime, std::string_view text) { return JsonReader(runtime, text).Run(); }

Value FromJson(Runtime& runtime, const Json& json) {
  DepthGuard depth(runtime);
  if (!depth.ok || !runtime.Step()) return Value::Failed();
  if (json.is_null()) return Value::None();
  if (json.is_bool()) return Value::Bool(json.as_bool());
  if (json.is_int()) return Value::Int(json.as_int());
  if (json.is_double()) return Value::Float(json.as_double());
  if (json.is_string()) return runtime.String(ToValidText(json.as_string()));
  if (json.is_array()) {
    Values items;
    for (const Json& item : json.as_array()) {
      JINJA_TRY(Value value, FromJson(runtime, item));
      items.push_back(std::move(value));
    }
    return runtime.List(std::move(items));
  }
  auto* dict = new DictObject();
  bool ok = true;
  for (const auto& [name, member] : json.as_object()) {
    Value value = FromJson(runtime, member);
    ok = !value.failed() && runtime.SetText(*dict, ToValidText(name), std::move(value));
    if (!ok) break;
  }
  Value value = runtime.Seal(dict);
  return ok ? value : Value::Failed();
}

bool AddMissing(Runtime& runtime, const Value& context, const Json& defaults) {
  if (!defaults.is_object()) return true;
  auto& variables = context.as<DictObject>();
  for (const auto& [name, value] : defaults.as_object()) {
    if (!value.is_string() || variables.FindText(name) != nullptr) continue;
    const Value text = runtime.String(ToValidText(value.as_string()));
    if (text.failed() || !runtime.SetText(variables, name, text)) return false;
  }
  return true;
}

}  // namespace nunspark::text::jinja
