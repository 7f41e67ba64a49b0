// Filters that give text.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// A filter that maps str(value); Markup stays Markup.
template <std::string (*Map)(std::string_view)>
Value MapText(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  return runtime.String(Map(Text(text)), IsMarkup(text));
}

// Jinja2's own title(): words begin after white space, hyphens and opening brackets only.
std::string TitleWords(std::string_view text) {
  auto separates = [](uint32_t c) { return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t next = i;
    const uint32_t first = NextCodePoint(text, &next);
    size_t end = next;
    while (end < text.size()) {
      size_t after = end;
      if (separates(NextCodePoint(text, &after)) != separates(first)) break;
      end = after;
    }
    out += Upper(text.substr(i, next - i));
    out += Lower(text.substr(next, end - next));
    i = end;
  }
  return out;
}

Value StringFilter(Runtime& runtime, Call& call) { return runtime.ToString(call.self); }

Value Trim(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  return runtime.InvokeBuiltin(*FindMethod(Kind::kString, "strip"), text,
                               {call.has(0) ? Values{call.args[0]} : Values{}, {}});
}

Value Center(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  const Value width = call.has(0) ? call.args[0] : Value::Int(80);
  return runtime.InvokeBuiltin(*FindMethod(Kind::kString, "center"), text, {{width}, {}});
}

Value Replace(Runtime& runtime, Call& call) {
  JINJA_TRY(Value text, runtime.ToString(call.self));
  JINJA_TRY(Value from, runtime.ToString(call.args[0]));
  JINJA_TRY(Value to, runtime.ToString(call.args[1]));
  if (runtime.autoescape) {
    if (IsMarkup(from) || (IsMarkup(to) && !IsMarkup(text))) {
      JINJA_TRY(text, Escape(runtime, text));
    }
  } else {
    // str() of Markup is plain.
    if (IsMarkup(text)) {
      JINJA_TRY(text, runtime.String(std::string(Text(text))));
    }
  }
  const bool has_count = call.has(2) && !call.args[2].is_none();
  Values arguments = {from, to};
  if (has_count) arguments.push_back(call.args[2]);
  return runtime.InvokeBuiltin(*FindMethod(Kind::kString, "replace"), text, {std::move(arguments), {}});
}

Value FormatFilter(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value format, runtime.ToString(call.self));
  if (!call.rest.empty() && !call.keywords.empty()) {
    return runtime.Fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  }
  if (call.keywords.empty()) {
    JINJA_TRY(const Value arguments, runtime.Tuple(std::move(call.rest)));
    return PercentFormat(runtime, format, arguments);
  }
  auto* dict = new DictObject();
  const Value arguments = runtime.Adopt(dict);
  for (auto& [name, value] : call.keywords) {
    if (!runtime.SetText(*dict, name, std::move(value))) return Value::Failed();
  }
  return PercentFormat(runtime, format, arguments);
}

Value Indent(Runtime& runtime, Call& call) {
  Value text = call.self;
  if (!text.is_string()) {
    // s += newline happens before anything else, and lists allow it.
    if (text.is_undefined()) return runtime.FailUndefined(text);
    if (text.is_list()) return runtime.Fail("AttributeError", "'list' object has no attribute 'splitlines'");
    return runtime.TypeError(fmt::format("unsupported operand type(s) for +=: '{}' and 'str'", TypeName(text)));
  }
  std::string indention(4, ' ');
  if (call.has(0) && call.args[0].is_string()) {
    indention = Text(call.args[0]);
  } else if (call.has(0)) {
    int64_t width = 0;
    if (call.args[0].is_undefined()) return runtime.FailUndefined(call.args[0]);
    if (!call.args[0].is_integer()) {
      return runtime.TypeError(fmt::format("can't multiply sequence by non-int of type '{}'", TypeName(call.args[0])));
    }
    if (!runtime.ToIndex(call.args[0], &width) || !runtime.CheckBytes(width)) return Value::Failed();
    indention.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  const bool first = FlagArgument(runtime, call, 1), blank = FlagArgument(runtime, call, 2);
  const std::string_view source = Text(text);
  std::string out;
  // The newline that Jinja2 appends keeps a trailing one and ends the last line.
  const std::string with_end = std::string(source) + "\n";
  const auto lines = SplitLines(with_end, false);
  if (!runtime.CheckBytes(static_cast<int64_t>(with_end.size() + lines.size() * indention.size())) ||
      !runtime.StepBytes(with_end.size() + lines.size() * indention.size())) {
    return Value::Failed();
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indented = i == 0 ? first : blank || !lines[i].empty();
    if (indented) out += indention;
    out += lines[i];
  }
  return runtime.String(std::move(out), IsMarkup(text));
}

Value Truncate(Runtime& runtime, Call& call) {
  int64_t length = 255, leeway = 5;
  if (!IntegerArgument(runtime, call, 0, 255, &length)) return Value::Failed();
  const bool kill_words = FlagArgument(runtime, call, 1);
  Value end = call.has(2) ? call.args[2] : runtime.String("...");
  const int64_t end_length = runtime.Length(end);
  if (call.has(3) && !call.args[3].is_none() && !IntegerArgument(runtime, call, 3, 5, &leeway)) return Value::Failed();
  if (end_length < 0) return Value::Failed();
  if (length < end_length) {
    return runtime.Fail("AssertionError", fmt::format("expected length >= {}, got {}", end_length, length));
  }
  if (leeway < 0) return runtime.Fail("AssertionError", fmt::format("expected leeway >= 0, got {}", leeway));
  const int64_t actual = runtime.Length(call.self);
  if (actual < 0) return Value::Failed();
  if (actual <= length + leeway) return call.self;
  JINJA_TRY(Value head, runtime.Slice(call.self, Value::None(), Value::Int(length - end_length), Value::None()));
  if (!kill_words) {
    if (!head.is_string())
      return runtime.Fail("AttributeError", fmt::format("'{}' object has no attribute 'rsplit'", TypeName(head)));
    const std::string_view text = Text(head);
    const size_t space = text.rfind(' ');
    if (space != std::string_view::npos) {
      JINJA_TRY(head, runtime.String(std::string(text.substr(0, space)), IsMarkup(head)));
    }
  }
  return runtime.Binary(BinaryOp::kAdd, head, end);
}

Value WordCount(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < Text(text).size();) {
    const bool word = IsWord(NextCodePoint(Text(text), &i));
    count += word && !in_word;
    in_word = word;
  }
  return Value::Int(count);
}

Value WordWrap(Runtime& runtime, Call& call) {
  WrapStyle style;
  if (!call.self.is_string()) {
    if (call.self.is_undefined()) return runtime.FailUndefined(call.self);
    return runtime.Fail("AttributeError",
                        fmt::format("'{}' object has no attribute 'splitlines'", TypeName(call.self)));
  }
  if (!IntegerArgument(runtime, call, 0, 79, &style.width)) return Value::Failed();
  if (call.has(1)) style.break_long_words = FlagArgument(runtime, call, 1);
  if (call.has(3)) style.break_on_hyphens = FlagArgument(runtime, call, 3);
  std::string joint = "\n";
  if (call.has(2) && runtime.Truthy(call.args[2])) {
    if (!call.args[2].is_string()) return runtime.TypeError("wrapstring must be str");
    joint = Text(call.args[2]);
  }
  std::string out;
  const auto lines = SplitLines(Text(call.self), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += joint;
    if (style.width <= 0) return runtime.ValueError(fmt::format("invalid width {} (must be > 0)", style.width));
    if (!runtime.StepBytes(lines[i].size() * 16)) return Value::Failed();
    const auto wrapped = WrapText(lines[i], style);
    for (size_t j = 0; j < wrapped.size(); ++j) {
      if (j > 0) out += joint;
      out += wrapped[j];
      if (!runtime.CheckBytes(static_cast<int64_t>(out.size()))) return Value::Failed();
    }
  }
  return runtime.String(std::move(out));
}

bool SeparatorArguments(Runtime& runtime, const Value& argument, JsonStyle* style) {
  Values separators;
  if (!runtime.Collect(argument, &separators)) return false;
  if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
    runtime.ValueError("separators must be two strings");
    return false;
  }
  style->item_separator = Text(separators[0]);
  style->key_separator = Text(separators[1]);
  return true;
}

// transformers' tojson: json.dumps without HTML escaping.
Value ToJson(Runtime& runtime, Call& call) {
  JsonStyle style;
  style.ensure_ascii = FlagArgument(runtime, call, 0);
  if (call.has(1) && !call.args[1].is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    if (call.args[1].is_string()) {
      style.indent = Text(call.args[1]);
    } else {
      int64_t width = 0;
      if (!call.args[1].is_integer()) return runtime.TypeError("can't multiply sequence by non-int");
      if (!runtime.ToIndex(call.args[1], &width) || !runtime.CheckBytes(width)) return Value::Failed();
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    }
  }
  if (call.has(2) && !call.args[2].is_none() && !SeparatorArguments(runtime, call.args[2], &style))
    return Value::Failed();
  style.sort_keys = FlagArgument(runtime, call, 3);
  std::string out;
  if (!AppendJson(runtime, call.self, style, out)) return Value::Failed();
  return runtime.String(std::move(out));
}

Value Pprint(Runtime& runtime, Call& call) {
  std::string out;
  return PrettyPrint(runtime, call.self, out) ? runtime.String(std::move(out)) : Value::Failed();
}

constexpr Builtin kFilters[] = {
    {"capitalize", "", MapText<Capitalize>, kPerCharacter},
    {"center", "width?", Center},
    {"format", "* **", FormatFilter},
    {"indent", "width? first? blank?", Indent, kPerCharacter},
    {"lower", "", MapText<Lower>, kPerCharacter},
    {"pprint", "", Pprint},
    {"replace", "old new count?", Replace},
    {"string", "", StringFilter},
    {"title", "", MapText<TitleWords>, kPerCharacter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJson},
    {"trim", "chars?", Trim},
    {"truncate", "length? killwords? end? leeway?", Truncate, kPerCharacter},
    {"upper", "", MapText<Upper>, kPerCharacter},
    {"wordcount", "", WordCount, kPerCharacter},
    {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", WordWrap, kPerCharacter},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kFilters; }

}  // namespace nunspark::text::jinja
