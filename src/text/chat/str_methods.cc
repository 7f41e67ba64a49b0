// Methods of str that make new strings. On Markup they escape their arguments and give Markup, as MarkupSafe does.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/text_search.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

bool EscapeForMarkup(Runtime& runtime, Call& call) {
  if (!IsMarkup(call.self)) return true;
  for (Value& argument : call.args) {
    if (!argument.is_string()) continue;
    argument = Escape(runtime, argument);
    if (argument.failed()) return false;
  }
  return true;
}

Value Result(Runtime& runtime, const Call& call, std::string text) {
  return runtime.String(std::move(text), IsMarkup(call.self));
}

template <std::string (*Map)(std::string_view)>
Value MapCase(Runtime& runtime, Call& call) {
  return Result(runtime, call, Map(Text(call.self)));
}

Value CaseFoldMethod(Runtime& runtime, Call& call) { return runtime.String(CaseFold(Text(call.self))); }

template <bool kLeft, bool kRight>
Value Strip(Runtime& runtime, Call& call) {
  if (!EscapeForMarkup(runtime, call)) return Value::Failed();
  std::string_view text = Text(call.self);
  if (!call.has(0) || call.args[0].is_none()) {
    if (kLeft) text = StripLeft(text, IsSpace);
    if (kRight) text = StripRight(text, IsSpace);
  } else {
    if (!call.args[0].is_string()) {
      return runtime.TypeError(fmt::format("strip arg must be None or str, not {}", TypeName(call.args[0])));
    }
    std::vector<uint32_t> set;
    for (size_t i = 0; i < Text(call.args[0]).size();) set.push_back(NextCodePoint(Text(call.args[0]), &i));
    std::sort(set.begin(), set.end());
    auto in_set = [&set](uint32_t c) { return std::binary_search(set.begin(), set.end(), c); };
    if (!runtime.StepBytes(text.size() + set.size() * 4)) return Value::Failed();
    if (kLeft) text = StripLeft(text, in_set);
    if (kRight) text = StripRight(text, in_set);
  }
  if (!runtime.StepBytes((Text(call.self).size() - text.size()) * kPerCharacter)) return Value::Failed();
  return Result(runtime, call, std::string(text));
}

enum class Side : uint8_t { kLeft, kRight, kCenter };

template <Side kTextAt>
Value Justify(Runtime& runtime, Call& call) {
  if (!EscapeForMarkup(runtime, call)) return Value::Failed();
  int64_t width = 0;
  std::string_view fill = " ";
  if (!IntegerArgument(runtime, call, 0, 0, &width)) return Value::Failed();
  if (call.has(1) && !TextArgument(runtime, call, 1, &fill)) return Value::Failed();
  if (CountCharacters(fill) != 1) return runtime.TypeError("The fill character must be exactly one character long");
  const auto& text = call.self.as<StringObject>();
  const int64_t pad = std::max<int64_t>(0, width - text.length);
  if (!runtime.CheckBytes(pad)) return Value::Failed();
  // An odd rest goes to the left only when the width is odd too, as in CPython.
  const int64_t left = kTextAt == Side::kLeft ? 0 : kTextAt == Side::kRight ? pad : pad / 2 + (pad & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text.text;
  for (int64_t i = left; i < pad; ++i) out += fill;
  return Result(runtime, call, std::move(out));
}

Value ZeroFill(Runtime& runtime, Call& call) {
  int64_t width = 0;
  if (!IntegerArgument(runtime, call, 0, 0, &width)) return Value::Failed();
  const auto& text = call.self.as<StringObject>();
  const int64_t pad = std::max<int64_t>(0, width - text.length);
  if (!runtime.CheckBytes(pad)) return Value::Failed();
  const bool has_sign = text.text.starts_with('+') || text.text.starts_with('-');
  std::string out = text.text.substr(0, has_sign ? 1 : 0);
  out.append(static_cast<size_t>(pad), '0');
  out += text.text.substr(has_sign ? 1 : 0);
  return Result(runtime, call, std::move(out));
}

Value ExpandTabs(Runtime& runtime, Call& call) {
  int64_t size = 8;
  if (!IntegerArgument(runtime, call, 0, 8, &size)) return Value::Failed();
  const std::string_view text = Text(call.self);
  std::string out;
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = NextCodePoint(text, &i);
    if (c == '\t') {
      if (size <= 0) continue;
      const int64_t spaces = size - column % size;
      if (!runtime.CheckBytes(spaces + static_cast<int64_t>(out.size()))) return Value::Failed();
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += text.substr(begin, i - begin);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return Result(runtime, call, std::move(out));
}

Value Replace(Runtime& runtime, Call& call) {
  if (!EscapeForMarkup(runtime, call)) return Value::Failed();
  std::string_view from, to;
  int64_t count = -1;
  if (!TextArgument(runtime, call, 0, &from) || !TextArgument(runtime, call, 1, &to) ||
      !IntegerArgument(runtime, call, 2, -1, &count)) {
    return Value::Failed();
  }
  const std::string_view text = Text(call.self);
  // The most that the result can be, before it is made.
  const size_t places = from.empty() ? text.size() + 1 : text.size() / from.size();
  const size_t limited = count >= 0 ? std::min(places, static_cast<size_t>(count)) : places;
  if (to.size() > from.size() && limited > 0) {
    const auto bound =
        static_cast<int64_t>(text.size()) + static_cast<int64_t>(limited) * static_cast<int64_t>(to.size());
    if (bound > runtime.limits().output_bytes) {
      size_t found = 0;
      for (size_t at = FindFirst(text, from); at != std::string_view::npos && found < limited && !from.empty();
           at = FindFirst(text, from, at + from.size())) {
        ++found;
      }
      if (from.empty()) found = limited;
      if (!runtime.CheckBytes(static_cast<int64_t>(text.size() + found * (to.size() - from.size()))))
        return Value::Failed();
    }
  }
  int64_t replaced = 0;
  std::string result = ReplaceAll(text, from, to, count, &replaced);
  return runtime.Step(replaced * 2) ? Result(runtime, call, std::move(result)) : Value::Failed();
}

Value RemovePrefix(Runtime& runtime, Call& call) {
  std::string_view prefix, text = Text(call.self);
  if (!TextArgument(runtime, call, 0, &prefix)) return Value::Failed();
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return runtime.String(std::string(text));
}

Value RemoveSuffix(Runtime& runtime, Call& call) {
  std::string_view suffix, text = Text(call.self);
  if (!TextArgument(runtime, call, 0, &suffix)) return Value::Failed();
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return runtime.String(std::string(text));
}

Value ToList(Runtime& runtime, const Call& call, const std::vector<std::string_view>& parts) {
  Values items;
  if (!runtime.CheckItems(static_cast<int64_t>(parts.size()))) return Value::Failed();
  for (std::string_view part : parts) {
    JINJA_TRY(Value text, Result(runtime, call, std::string(part)));
    items.push_back(std::move(text));
  }
  return runtime.List(std::move(items));
}

// split() at white space with a limit: the last part keeps its inner and trailing white space (left: leading).
std::vector<std::string_view> SplitSpaces(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  if (from_right) {
    std::string_view rest = StripRight(text, IsSpace);
    while (!rest.empty() && limit-- != 0) {
      const std::string_view before = StripRight(rest, [](uint32_t c) { return !IsSpace(c); });
      parts.push_back(rest.substr(before.size()));
      rest = StripRight(before, IsSpace);
    }
    if (!rest.empty()) parts.push_back(rest);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::string_view rest = StripLeft(text, IsSpace);
  while (!rest.empty() && limit-- != 0) {
    const std::string_view after = StripLeft(rest, [](uint32_t c) { return !IsSpace(c); });
    parts.push_back(rest.substr(0, rest.size() - after.size()));
    rest = StripLeft(after, IsSpace);
  }
  if (!rest.empty()) parts.push_back(rest);
  return parts;
}

template <bool kFromRight>
Value Split(Runtime& runtime, Call& call) {
  int64_t limit = -1;
  if (!IntegerArgument(runtime, call, 1, -1, &limit)) return Value::Failed();
  const std::string_view text = Text(call.self);
  if (!call.has(0) || call.args[0].is_none()) return ToList(runtime, call, SplitSpaces(text, limit, kFromRight));
  std::string_view separator;
  if (!call.args[0].is_string()) {
    return runtime.TypeError(fmt::format("must be str or None, not {}", TypeName(call.args[0])));
  }
  separator = Text(call.args[0]);
  if (separator.empty()) return runtime.ValueError("empty separator");
  std::vector<std::string_view> parts;
  std::string_view rest = text;
  while (limit-- != 0) {
    const size_t at = kFromRight ? FindLast(rest, separator) : FindFirst(rest, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(kFromRight ? rest.substr(at + separator.size()) : rest.substr(0, at));
    rest = kFromRight ? rest.substr(0, at) : rest.substr(at + separator.size());
  }
  parts.push_back(rest);
  if (kFromRight) std::reverse(parts.begin(), parts.end());
  return ToList(runtime, call, parts);
}

Value SplitLinesMethod(Runtime& runtime, Call& call) {
  return ToList(runtime, call, SplitLines(Text(call.self), FlagArgument(runtime, call, 0)));
}

template <bool kFromRight>
Value Partition(Runtime& runtime, Call& call) {
  if (!EscapeForMarkup(runtime, call)) return Value::Failed();
  if (!call.args[0].is_string()) return runtime.TypeError(fmt::format("must be str, not {}", TypeName(call.args[0])));
  const std::string_view text = Text(call.self), separator = Text(call.args[0]);
  if (separator.empty()) return runtime.ValueError("empty separator");
  const size_t at = kFromRight ? FindLast(text, separator) : FindFirst(text, separator);
  std::string_view parts[3] = {text, "", ""};
  if (at != std::string_view::npos) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  } else if (kFromRight) {
    std::swap(parts[0], parts[2]);
  }
  Values items;
  for (std::string_view part : parts) {
    JINJA_TRY(Value item, Result(runtime, call, std::string(part)));
    items.push_back(std::move(item));
  }
  return runtime.Tuple(std::move(items));
}

Value Join(Runtime& runtime, Call& call) {
  const bool markup = IsMarkup(call.self);
  const std::string_view separator = Text(call.self);
  Cursor cursor;
  if (!runtime.IsIterable(call.args[0])) return runtime.TypeError("can only join an iterable");
  if (!cursor.Start(runtime, call.args[0])) return Value::Failed();
  std::string out;
  Value item;
  for (int64_t i = 0; cursor.Next(runtime, &item); ++i) {
    if (i > 0) out += separator;
    if (markup) {
      JINJA_TRY(item, Escape(runtime, item));
    } else if (!item.is_string()) {
      return runtime.TypeError(fmt::format("sequence item {}: expected str instance, {} found", i, TypeName(item)));
    }
    out += Text(item);
    if (!runtime.CheckBytes(static_cast<int64_t>(out.size())) || !runtime.Step()) return Value::Failed();
  }
  return runtime.failed() ? Value::Failed() : Result(runtime, call, std::move(out));
}

Value MakeTranslation(Runtime& runtime, Call& call) {
  auto code = [](const Value& text) {
    size_t i = 0;
    return Value::Int(NextCodePoint(Text(text), &i));
  };
  auto* table = new DictObject();
  Value result = runtime.Adopt(table);
  if (!call.has(1)) {
    if (!call.args[0].is_dict())
      return runtime.TypeError("if you give only one argument to maketrans it must be a dict");
    for (const DictObject::Entry& entry : call.args[0].as<DictObject>().entries) {
      if (entry.key.is_string() && entry.key.as<StringObject>().length != 1) {
        return runtime.ValueError("string keys in translate table must be of length 1");
      }
      if (!entry.key.is_string() && !entry.key.is_integer()) {
        return runtime.TypeError("keys in translate table must be strings or integers");
      }
      if (!runtime.SetKey(*table, entry.key.is_string() ? code(entry.key) : entry.key, entry.value))
        return Value::Failed();
    }
    return result;
  }
  std::string_view from, to, removed;
  if (!TextArgument(runtime, call, 0, &from) || !TextArgument(runtime, call, 1, &to)) return Value::Failed();
  if (CountCharacters(from) != CountCharacters(to)) {
    return runtime.ValueError("the first two maketrans arguments must have equal length");
  }
  for (size_t i = 0, j = 0; i < from.size();) {
    const Value key = Value::Int(NextCodePoint(from, &i));
    if (!runtime.SetKey(*table, key, Value::Int(NextCodePoint(to, &j)))) return Value::Failed();
  }
  if (call.has(2) && !TextArgument(runtime, call, 2, &removed)) return Value::Failed();
  for (size_t i = 0; i < removed.size();) {
    if (!runtime.SetKey(*table, Value::Int(NextCodePoint(removed, &i)), Value::None())) return Value::Failed();
  }
  return result;
}

Value Translate(Runtime& runtime, Call& call) {
  const std::string_view text = Text(call.self);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = NextCodePoint(text, &i);
    JINJA_TRY(const Value to, runtime.GetItem(call.args[0], Value::Int(c)));
    if (to.is_undefined()) {
      out += text.substr(begin, i - begin);
    } else if (to.is_string()) {
      out += Text(to);
    } else if (to.kind() == Kind::kInt && to.small_int() >= 0 && to.small_int() < 0x110000) {
      AppendCodePoint(static_cast<uint32_t>(to.small_int()), out);
    } else if (!to.is_none()) {
      return runtime.TypeError("character mapping must return integer, None or str");
    }
    if (!runtime.CheckBytes(static_cast<int64_t>(out.size())) || !runtime.Step()) return Value::Failed();
  }
  return Result(runtime, call, std::move(out));
}

Value Format(Runtime& runtime, Call& call) {
  Arguments arguments{std::move(call.rest), std::move(call.keywords)};
  return BraceFormat(runtime, Text(call.self), arguments, Value::Missing(), IsMarkup(call.self));
}

Value FormatMap(Runtime& runtime, Call& call) {
  return BraceFormat(runtime, Text(call.self), {}, call.args[0], IsMarkup(call.self));
}

Value Encode(Runtime& runtime, Call&) {
  return runtime.TypeError("str.encode is not supported: templates have no bytes here");
}

constexpr Builtin kMethods[] = {
    {"capitalize", "/", MapCase<Capitalize>, kPerCharacter},
    {"casefold", "/", CaseFoldMethod, kPerCharacter},
    {"center", "/ width fillchar?", Justify<Side::kCenter>},
    {"encode", "encoding? errors?", Encode},
    {"expandtabs", "tabsize?", ExpandTabs, kPerCharacter},
    {"format", "* **", Format},
    {"format_map", "/ mapping", FormatMap},
    {"join", "/ iterable", Join},
    {"ljust", "/ width fillchar?", Justify<Side::kLeft>},
    {"lower", "/", MapCase<Lower>, kPerCharacter},
    {"lstrip", "/ chars?", Strip<true, false>},
    {"maketrans", "/ x y? z?", MakeTranslation},
    {"partition", "/ sep", Partition<false>},
    {"removeprefix", "/ prefix", RemovePrefix},
    {"removesuffix", "/ suffix", RemoveSuffix},
    {"replace", "/ old new count?", Replace},
    {"rjust", "/ width fillchar?", Justify<Side::kRight>},
    {"rpartition", "/ sep", Partition<true>},
    {"rsplit", "sep? maxsplit?", Split<true>, kPerCharacter},
    {"rstrip", "/ chars?", Strip<false, true>},
    {"split", "sep? maxsplit?", Split<false>, kPerCharacter},
    {"splitlines", "keepends?", SplitLinesMethod, kPerCharacter},
    {"strip", "/ chars?", Strip<true, true>},
    {"swapcase", "/", MapCase<SwapCase>, kPerCharacter},
    {"title", "/", MapCase<Title>, kPerCharacter},
    {"translate", "/ table", Translate, kPerCharacter},
    {"upper", "/", MapCase<Upper>, kPerCharacter},
    {"zfill", "/ width", ZeroFill},
};

}  // namespace

std::span<const Builtin> StringMethods() { return kMethods; }

}  // namespace nunspark::text::jinja
