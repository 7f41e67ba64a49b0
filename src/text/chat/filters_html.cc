// Filters about HTML and URLs, and MarkupSafe's escaping.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

Value EscapeFilter(Runtime& runtime, Call& call) { return Escape(runtime, call.self); }

Value ForceEscape(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  return runtime.String(EscapeText(Text(text)), true);
}

Value Safe(Runtime& runtime, Call& call) {
  if (IsMarkup(call.self)) return call.self;
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  return runtime.String(std::string(Text(text)), true);
}

// Without "<!-- ... -->" and "<...>", as two passes of non-greedy matches.
std::string WithoutTags(std::string_view text) {
  auto remove = [](std::string_view from, std::string_view open, std::string_view close) {
    std::string out;
    size_t i = 0;
    while (true) {
      const size_t begin = from.find(open, i);
      const size_t end = begin == std::string_view::npos ? begin : from.find(close, begin + open.size());
      if (end == std::string_view::npos) break;
      out += from.substr(i, begin - i);
      i = end + close.size();
    }
    return out += from.substr(i);
  };
  return remove(remove(text, "<!--", "-->"), "<", ">");
}

Value StripTags(Runtime& runtime, Call& call) {
  JINJA_TRY(const Value text, runtime.ToString(call.self));
  const std::string plain = WithoutTags(Text(text));
  std::string out;
  for (std::string_view word : SplitWhitespace(plain)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return runtime.String(UnescapeHtml(out));
}

std::string QuoteUrl(std::string_view text, bool for_query) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool safe =
        (byte < 0x80 && IsAlnum(byte)) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (safe) {
      out.push_back(c);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

Value UrlEncode(Runtime& runtime, Call& call) {
  // Blocks can only be looped over by index, which does not make them iterable in this sense.
  if (call.self.is_string() || call.self.kind() == Kind::kSelf || !runtime.IsIterable(call.self)) {
    JINJA_TRY(const Value text, runtime.ToString(call.self));
    return runtime.String(QuoteUrl(Text(text), false));
  }
  Values pairs;
  if (call.self.is_dict()) {
    for (const DictObject::Entry& entry : call.self.as<DictObject>().entries) {
      pairs.push_back(runtime.Tuple({entry.key, entry.value}));
    }
  } else if (!runtime.Collect(call.self, &pairs)) {
    return Value::Failed();
  }
  std::string out;
  for (const Value& pair : pairs) {
    Values items;
    if (pair.failed() || !runtime.Collect(pair, &items)) return Value::Failed();
    if (items.size() != 2) {
      return runtime.ValueError(items.size() < 2
                                    ? fmt::format("not enough values to unpack (expected 2, got {})", items.size())
                                    : "too many values to unpack (expected 2)");
    }
    JINJA_TRY(const Value key, runtime.ToString(items[0]));
    JINJA_TRY(const Value value, runtime.ToString(items[1]));
    if (!out.empty()) out += '&';
    out += QuoteUrl(Text(key), true) + "=" + QuoteUrl(Text(value), true);
  }
  return runtime.String(std::move(out));
}

Value XmlAttributes(Runtime& runtime, Call& call) {
  if (call.self.is_undefined()) return runtime.FailUndefined(call.self);
  if (!call.self.is_dict()) {
    return runtime.Fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", TypeName(call.self)));
  }
  std::string out;
  for (const DictObject::Entry& entry : call.self.as<DictObject>().entries) {
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    if (!entry.key.is_string()) return runtime.TypeError("expected string or bytes-like object");
    if (Text(entry.key).find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return runtime.ValueError("Invalid character in attribute name: " + StringRepr(Text(entry.key)));
    }
    JINJA_TRY(const Value key, Escape(runtime, entry.key));
    JINJA_TRY(const Value value, Escape(runtime, entry.value));
    if (!out.empty()) out += ' ';
    out += fmt::format("{}=\"{}\"", Text(key), Text(value));
  }
  const bool autospace = !call.has(0) || runtime.Truthy(call.args[0]);
  if (autospace && !out.empty()) out.insert(0, " ");
  return runtime.String(std::move(out), runtime.autoescape);
}

Value Urlize(Runtime& runtime, Call& call) {
  LinkStyle style;
  if (call.has(0) && !call.args[0].is_none() && !IntegerArgument(runtime, call, 0, -1, &style.trim_limit)) {
    return Value::Failed();
  }
  std::vector<std::string> rel;
  if (call.has(3) && runtime.Truthy(call.args[3])) {
    if (!call.args[3].is_string()) return runtime.Fail("AttributeError", "rel must be str");
    for (std::string_view word : SplitWhitespace(Text(call.args[3]))) rel.emplace_back(word);
  }
  if (FlagArgument(runtime, call, 1)) rel.emplace_back("nofollow");
  rel.emplace_back("noopener");  // Jinja2's policy
  std::sort(rel.begin(), rel.end());
  rel.erase(std::unique(rel.begin(), rel.end()), rel.end());
  for (const std::string& word : rel) style.rel += (style.rel.empty() ? " rel=\"" : " ") + EscapeText(word);
  style.rel += '"';
  if (call.has(2) && runtime.Truthy(call.args[2])) {
    JINJA_TRY(const Value target, Escape(runtime, call.args[2]));
    style.target = fmt::format(" target=\"{}\"", Text(target));
  }
  if (call.has(4) && !call.args[4].is_none()) {
    Values schemes;
    if (!runtime.Collect(call.args[4], &schemes)) return Value::Failed();
    for (const Value& scheme : schemes) {
      // A scheme is letters, digits, "+.-" and a colon, with or without slashes.
      std::string_view name = scheme.is_string() ? Text(scheme) : std::string_view();
      const std::string_view whole = name;
      if (name.ends_with("//")) name.remove_suffix(2);
      const bool valid =
          name.size() >= 2 && name.ends_with(':') && std::all_of(name.begin(), name.end() - 1, [](char c) {
            return IsWord(static_cast<unsigned char>(c)) || c == '.' || c == '+' || c == '-';
          });
      if (!valid)
        return runtime.Fail("FilterArgumentError",
                            fmt::format("{} is not a valid URI scheme prefix.", StringRepr(whole)));
      style.schemes.emplace_back(whole);
    }
  }
  JINJA_TRY(const Value escaped, Escape(runtime, call.self));
  if (!runtime.StepBytes(Text(escaped).size() * 16)) return Value::Failed();
  return runtime.String(LinkUrls(Text(escaped), style), runtime.autoescape);
}

constexpr Builtin kFilters[] = {
    {"e", "", EscapeFilter, kPerCharacter},
    {"escape", "", EscapeFilter, kPerCharacter},
    {"forceescape", "", ForceEscape, kPerCharacter},
    {"safe", "", Safe},
    {"striptags", "", StripTags, kPerCharacter},
    {"urlencode", "", UrlEncode, kPerCharacter},
    {"urlize", "trim_url_limit? nofollow? target? rel? extra_schemes?", Urlize, 4 * kPerCharacter},
    {"xmlattr", "autospace?", XmlAttributes, kPerCharacter},
};

void AppendEntity(std::string_view name, std::string_view whole, std::string& out) {
  struct Entity {
    std::string_view name;
    uint32_t code_point;
  };
  static constexpr Entity kEntities[] = {
      {"amp", '&'},      {"lt", '<'},       {"gt", '>'},       {"quot", '"'},      {"apos", '\''},    {"nbsp", 0xA0},
      {"copy", 0xA9},    {"reg", 0xAE},     {"trade", 0x2122}, {"hellip", 0x2026}, {"mdash", 0x2014}, {"ndash", 0x2013},
      {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201C}, {"rdquo", 0x201D},  {"laquo", 0xAB},   {"raquo", 0xBB},
      {"euro", 0x20AC},  {"pound", 0xA3},   {"yen", 0xA5},     {"cent", 0xA2},     {"sect", 0xA7},    {"para", 0xB6},
      {"deg", 0xB0},     {"plusmn", 0xB1},  {"times", 0xD7},   {"divide", 0xF7},   {"middot", 0xB7},  {"bull", 0x2022},
      {"auml", 0xE4},    {"ouml", 0xF6},    {"uuml", 0xFC},    {"Auml", 0xC4},     {"Ouml", 0xD6},    {"Uuml", 0xDC},
      {"szlig", 0xDF},   {"eacute", 0xE9},  {"egrave", 0xE8},  {"agrave", 0xE0},   {"ccedil", 0xE7},  {"ntilde", 0xF1},
      {"larr", 0x2190},  {"rarr", 0x2192},  {"uarr", 0x2191},  {"darr", 0x2193},   {"le", 0x2264},    {"ge", 0x2265},
      {"ne", 0x2260},    {"infin", 0x221E}, {"micro", 0xB5},   {"frac12", 0xBD},   {"sup2", 0xB2},    {"sup3", 0xB3}};
  for (const Entity& entity : kEntities) {
    if (entity.name == name) return AppendCodePoint(entity.code_point, out);
  }
  out += whole;
}

}  // namespace

std::span<const Builtin> HtmlFilters() { return kFilters; }

std::string EscapeText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

Value Escape(Runtime& runtime, const Value& value) {
  if (IsMarkup(value)) return value;
  JINJA_TRY(const Value text, runtime.ToString(value));
  return runtime.String(EscapeText(Text(text)), true);
}

std::string UnescapeHtml(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    constexpr size_t kLongestEntity = 32;
    const size_t end = text[i] == '&' ? text.substr(0, std::min(text.size(), i + kLongestEntity)).find(';', i)
                                      : std::string_view::npos;
    if (end == std::string_view::npos) {
      out.push_back(text[i++]);
      continue;
    }
    const std::string_view whole = text.substr(i, end + 1 - i);
    std::string_view name = whole.substr(1, whole.size() - 2);
    BigInt number;
    if (name.starts_with('#')) {
      const bool hex = name.size() > 1 && (name[1] == 'x' || name[1] == 'X');
      const std::string_view digits = name.substr(hex ? 2 : 1);
      const auto parsed = digits.empty() ? std::nullopt : BigInt::FromDigits(digits, hex ? 16 : 10);
      const int64_t c = parsed ? parsed->ToInt64().value_or(0x110000) : -1;
      if (c < 0) {
        out += text[i++];
        continue;
      }
      // Zero, surrogates and what is beyond Unicode become U+FFFD.
      const bool bad = c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000);
      AppendCodePoint(bad ? 0xFFFD : static_cast<uint32_t>(c), out);
    } else {
      AppendEntity(name, whole, out);
    }
    i = end + 1;
  }
  return out;
}

}  // namespace nunspark::text::jinja
