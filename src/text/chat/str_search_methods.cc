// Methods of str that look for something or ask what the characters are.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/text_search.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// The part of `self` between the optional start and end arguments (code points), as Python cuts it.
struct Window {
  std::string_view text;
  int64_t start = 0;    // code points before it
  bool exists = false;  // false when start lies behind the end: then not even "" is found
};

bool BoundArgument(Runtime& runtime, const Call& call, size_t i, int64_t otherwise, int64_t* value) {
  *value = otherwise;
  if (!call.has(i) || call.args[i].is_none()) return true;
  if (!call.args[i].is_integer()) {
    runtime.TypeError("slice indices must be integers or None or have an __index__ method");
    return false;
  }
  if (call.args[i].kind() == Kind::kBig) {
    *value = call.args[i].as<BigObject>().value.is_negative() ? INT64_MIN / 2 : INT64_MAX / 2;
  } else {
    *value = call.args[i].small_int();
  }
  return true;
}

bool CutWindow(Runtime& runtime, const Call& call, Window* window) {
  const auto& self = call.self.as<StringObject>();
  int64_t start = 0, end = 0;
  if (!BoundArgument(runtime, call, 1, 0, &start) || !BoundArgument(runtime, call, 2, self.length, &end)) return false;
  if (end > self.length) end = self.length;
  if (end < 0) end = std::max<int64_t>(0, end + self.length);
  if (start < 0) start = std::max<int64_t>(0, start + self.length);
  window->start = start;
  window->exists = start <= end;
  if (!window->exists) return true;
  const size_t first = ByteOffset(self.text, start);
  const std::string_view rest = std::string_view(self.text).substr(first);
  window->text = rest.substr(0, ByteOffset(rest, end - start));
  return true;
}

// The index of the match, -1 when there is none, -2 when failed.
template <bool kFromRight>
int64_t Locate(Runtime& runtime, Call& call) {
  Window window;
  if (!call.args[0].is_string()) {
    runtime.TypeError(fmt::format("must be str, not {}", TypeName(call.args[0])));
    return -2;
  }
  if (!CutWindow(runtime, call, &window)) return -2;
  if (!window.exists) return -1;
  const std::string_view wanted = Text(call.args[0]);
  const size_t at = kFromRight ? FindLast(window.text, wanted) : FindFirst(window.text, wanted);
  if (at == std::string_view::npos) return -1;
  return window.start + CountCharacters(window.text.substr(0, at));
}

template <bool kFromRight>
Value FindMethodOf(Runtime& runtime, Call& call) {
  const int64_t index = Locate<kFromRight>(runtime, call);
  return index == -2 ? Value::Failed() : Value::Int(index);
}

template <bool kFromRight>
Value Index(Runtime& runtime, Call& call) {
  const int64_t index = Locate<kFromRight>(runtime, call);
  if (index == -1) return runtime.ValueError("substring not found");
  return index == -2 ? Value::Failed() : Value::Int(index);
}

Value Count(Runtime& runtime, Call& call) {
  Window window;
  if (!call.args[0].is_string()) return runtime.TypeError(fmt::format("must be str, not {}", TypeName(call.args[0])));
  if (!CutWindow(runtime, call, &window)) return Value::Failed();
  if (!window.exists) return Value::Int(0);
  const std::string_view wanted = Text(call.args[0]);
  if (wanted.empty()) return Value::Int(CountCharacters(window.text) + 1);
  int64_t count = 0;
  for (size_t at = FindFirst(window.text, wanted); at != std::string_view::npos;
       at = FindFirst(window.text, wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <bool kAtEnd>
Value StartsOrEnds(Runtime& runtime, Call& call) {
  Window window;
  if (!CutWindow(runtime, call, &window)) return Value::Failed();
  const Value& wanted = call.args[0];
  auto matches = [&](std::string_view affix) {
    return window.exists && (kAtEnd ? window.text.ends_with(affix) : window.text.starts_with(affix));
  };
  if (wanted.is_string()) return Value::Bool(matches(Text(wanted)));
  const std::string_view name = kAtEnd ? "endswith" : "startswith";
  if (!wanted.is_tuple()) {
    return runtime.TypeError(fmt::format("{} first arg must be str or a tuple of str, not {}", name, TypeName(wanted)));
  }
  for (const Value& item : wanted.as<ListObject>().items) {
    if (!item.is_string()) {
      return runtime.TypeError(fmt::format("tuple for {} must only contain str, not {}", name, TypeName(item)));
    }
    if (!runtime.StepBytes(Text(item).size())) return Value::Failed();
    if (matches(Text(item))) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool (*Is)(uint32_t)>
Value All(Runtime&, Call& call) {
  const std::string_view text = Text(call.self);
  for (size_t i = 0; i < text.size();) {
    if (!Is(NextCodePoint(text, &i))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value IsPrintableMethod(Runtime& runtime, Call& call) {
  return Text(call.self).empty() ? Value::Bool(true) : All<IsPrintable>(runtime, call);
}

Value IsAscii(Runtime&, Call& call) { return Value::Bool(call.self.as<StringObject>().ascii()); }

Value IsIdentifier(Runtime&, Call& call) {
  const std::string_view text = Text(call.self);
  for (size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const uint32_t c = NextCodePoint(text, &i);
    if (first ? !IsIdentifierStart(c) : !IsIdentifierPart(c)) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

// At least one cased character, and all of them of this case.
template <bool (*Wanted)(uint32_t), bool (*Other)(uint32_t)>
Value AllCased(Runtime&, Call& call) {
  const std::string_view text = Text(call.self);
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = NextCodePoint(text, &i);
    if (Other(c) || IsTitle(c)) return Value::Bool(false);
    any = any || Wanted(c);
  }
  return Value::Bool(any);
}

Value IsTitleMethod(Runtime&, Call& call) {
  const std::string_view text = Text(call.self);
  bool any = false, after_letter = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = NextCodePoint(text, &i);
    if (IsUpper(c) || IsTitle(c)) {
      if (after_letter) return Value::Bool(false);
      any = after_letter = true;
    } else if (IsLower(c)) {
      if (!after_letter) return Value::Bool(false);
      any = true;
    } else {
      after_letter = false;
    }
  }
  return Value::Bool(any);
}

constexpr Builtin kMethods[] = {
    {"count", "/ sub start? end?", Count},
    {"endswith", "/ suffix start? end?", StartsOrEnds<true>},
    {"find", "/ sub start? end?", FindMethodOf<false>},
    {"index", "/ sub start? end?", Index<false>},
    {"isalnum", "/", All<IsAlnum>, kPerCharacter},
    {"isalpha", "/", All<IsAlpha>, kPerCharacter},
    {"isascii", "/", IsAscii},
    {"isdecimal", "/", All<IsDecimal>, kPerCharacter},
    {"isdigit", "/", All<IsDigit>, kPerCharacter},
    {"isidentifier", "/", IsIdentifier, kPerCharacter},
    {"islower", "/", AllCased<IsLower, IsUpper>, kPerCharacter},
    {"isnumeric", "/", All<IsNumeric>, kPerCharacter},
    {"isprintable", "/", IsPrintableMethod, kPerCharacter},
    {"isspace", "/", All<IsSpace>, kPerCharacter},
    {"istitle", "/", IsTitleMethod, kPerCharacter},
    {"isupper", "/", AllCased<IsUpper, IsLower>, kPerCharacter},
    {"rfind", "/ sub start? end?", FindMethodOf<true>},
    {"rindex", "/ sub start? end?", Index<true>},
    {"startswith", "/ prefix start? end?", StartsOrEnds<false>},
};

}  // namespace

std::span<const Builtin> StringSearchMethods() { return kMethods; }

}  // namespace nunspark::text::jinja
