#include "text/grammar/json_grammar.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "base/utf8.h"

namespace nunspark::text {
namespace {

constexpr uint32_t kMostIndent = 20;
constexpr uint32_t kMostExponentDigits = 2;

struct ShortEscape {
  char32_t character;
  std::string_view written;
};
constexpr ShortEscape kShortEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                         {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};

const std::vector<CharRange> kUnescaped{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};

bool AllZeros(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }

std::vector<CharRange> Both(std::span<const CharRange> a, std::span<const CharRange> b) {
  std::vector<CharRange> both;
  for (const CharRange x : a) {
    for (const CharRange y : b) {
      const uint32_t first = std::max(x.first, y.first);
      const uint32_t last = std::min(x.last, y.last);
      if (first <= last) both.push_back({first, last});
    }
  }
  return both;
}

}  // namespace

std::optional<Decimal> Decimal::From(const Json& number) {
  if (!std::isfinite(number.as_double())) return std::nullopt;  // what "1e999" is read as
  std::string text = number.is_int() ? fmt::format("{}", number.as_int()) : fmt::format("{}", number.as_double());
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  const size_t e = text.find('e');
  if (e != std::string::npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  if (exponent > 40 || exponent < -40) return std::nullopt;
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point) + (point < text.size() ? text.substr(point + 1) : "");
  auto whole = static_cast<int>(point) + exponent;
  if (whole <= 0) {
    digits.insert(0, static_cast<size_t>(1 - whole), '0');
    whole = 1;
  }
  if (static_cast<size_t>(whole) > digits.size()) digits.resize(static_cast<size_t>(whole), '0');
  decimal.whole = digits.substr(0, static_cast<size_t>(whole));
  decimal.fraction = digits.substr(static_cast<size_t>(whole));
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size() - 1));
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.is_zero()) decimal.negative = false;
  if (decimal.whole.size() > kMostIntegerDigits || decimal.fraction.size() > kMostFractionDigits) return std::nullopt;
  return decimal;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else if (const int whole = a.whole.compare(b.whole); whole != 0) {
    order = whole < 0 ? -1 : 1;
  } else if (const int fraction = a.fraction.compare(b.fraction); fraction != 0) {
    order = fraction < 0 ? -1 : 1;
  }
  return a.negative ? -order : order;
}

ExprId JsonGrammar::space() {
  if (!space_.has_value()) {
    const ExprId indent = g_.Repeat(g_.Chars({{' ', ' '}, {'\t', '\t'}}), 0, kMostIndent);
    space_ = g_.Shared("space", g_.Choice({g_.Empty(), g_.Literal(" "), g_.Sequence({g_.Literal("\n"), indent})}));
  }
  return *space_;
}

ExprId JsonGrammar::comma() {
  if (!comma_.has_value()) comma_ = g_.Shared("comma", g_.Sequence({g_.Literal(","), space()}));
  return *comma_;
}

ExprId JsonGrammar::colon() {
  if (!colon_.has_value()) {
    colon_ = g_.Shared("colon", g_.Sequence({g_.Literal(":"), g_.Optional(g_.Literal(" "))}));
  }
  return *colon_;
}

ExprId JsonGrammar::value() {
  if (!value_.has_value()) {
    const RuleId rule = g_.NewRule("value");
    value_ = g_.Rule(rule);
    const ExprId member = g_.Sequence({string(), colon(), *value_});
    const ExprId members = g_.Sequence({member, g_.Repeat(g_.Sequence({comma(), member}), 0, kUnlimited)});
    object_ = g_.Shared("object", ObjectOf(members, true));
    const ExprId items = g_.Sequence({*value_, g_.Repeat(g_.Sequence({comma(), *value_}), 0, kUnlimited)});
    array_ = g_.Shared("array", ArrayOf(items, true));
    g_.Define(rule, g_.Choice({*object_, *array_, string(), number(), boolean(), null()}));
  }
  return *value_;
}

ExprId JsonGrammar::object() {
  value();
  return *object_;
}

ExprId JsonGrammar::array() {
  value();
  return *array_;
}

ExprId JsonGrammar::string() {
  if (!string_.has_value()) string_ = g_.Shared("string", StringOf(0, kUnlimited));
  return *string_;
}

ExprId JsonGrammar::number() {
  if (!number_.has_value()) {
    const ExprId fraction = g_.Optional(g_.Sequence({g_.Literal("."), Digits(1, kMostFractionDigits)}));
    const ExprId exponent =
        g_.Optional(g_.Sequence({g_.Chars({{'e', 'e'}, {'E', 'E'}}), g_.Optional(g_.Chars({{'+', '+'}, {'-', '-'}})),
                                 Digits(1, kMostExponentDigits)}));
    number_ = g_.Shared("number", g_.Sequence({integer(), fraction, exponent}));
  }
  return *number_;
}

ExprId JsonGrammar::integer() {
  if (!integer_.has_value()) {
    const ExprId digits = g_.Sequence({DigitBetween('1', '9'), Digits(0, kMostIntegerDigits - 1)});
    integer_ = g_.Shared("integer", g_.Sequence({g_.Optional(g_.Literal("-")), g_.Choice({g_.Literal("0"), digits})}));
  }
  return *integer_;
}

ExprId JsonGrammar::boolean() { return g_.Choice({g_.Literal("true"), g_.Literal("false")}); }
ExprId JsonGrammar::null() { return g_.Literal("null"); }

ExprId JsonGrammar::character() {
  if (!character_.has_value()) {
    const auto hex = [&](std::vector<CharRange> ranges) { return g_.Chars(std::move(ranges), Spelled::kNo); };
    const ExprId any = hex({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    const ExprId d = hex({{'d', 'd'}, {'D', 'D'}});
    const ExprId whole =
        g_.Choice({g_.Sequence({hex({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}), any}),
                   g_.Sequence({d, hex({{'0', '7'}})})});
    const ExprId high = g_.Sequence({d, hex({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), any, any});
    const ExprId low = g_.Sequence({d, hex({{'c', 'f'}, {'C', 'F'}}), any, any});
    const ExprId code = g_.Choice({g_.Sequence({whole, any, any}), g_.Sequence({high, g_.Literal("\\u"), low})});
    const ExprId escaped = g_.Sequence(
        {g_.Literal("\\"),
         g_.Choice(
             {hex({{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
              g_.Sequence({g_.Literal("u"), code})})});
    character_ = g_.Shared("character", g_.Choice({g_.Chars(kUnescaped, Spelled::kNo), escaped}));
  }
  return *character_;
}

ExprId JsonGrammar::StringOf(uint32_t min, uint32_t max) {
  return g_.Sequence({g_.Literal("\""), g_.Repeat(character(), min, max), g_.Literal("\"")});
}

ExprId JsonGrammar::OneWay(std::vector<CharRange> ranges) {
  const std::vector<CharRange> normal = NormalRanges(std::move(ranges));
  std::vector<ExprId> choices;
  std::vector<CharRange> plain = Both(normal, kUnescaped);
  if (!plain.empty()) choices.push_back(g_.Chars(std::move(plain), Spelled::kNo));
  for (const ShortEscape& escape : kShortEscapes) {
    const bool wanted = std::any_of(normal.begin(), normal.end(), [&](CharRange r) {
      return r.first <= escape.character && escape.character <= r.last;
    });
    if (wanted) choices.push_back(g_.Literal(escape.written));
  }
  return g_.Choice(choices);
}

ExprId JsonGrammar::KeyExcept(std::span<const std::string> names) {
  struct Node {
    std::map<uint32_t, size_t> children;
    bool is_name = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (size_t i = 0; i < name.size();) {
      const Utf8Char c = DecodeUtf8(name, i);
      i += c.bytes;
      const auto [child, is_new] = nodes[at].children.try_emplace(c.code_point, nodes.size());
      at = child->second;
      if (is_new) nodes.emplace_back();
    }
    nodes[at].is_name = true;
  }
  const ExprId rest =
      g_.Shared("key", g_.Sequence({g_.Repeat(OneWay({{0, 0x10FFFF}}), 0, kUnlimited), g_.Literal("\"")}));
  std::vector<RuleId> rules;
  for (size_t i = 0; i < nodes.size(); ++i) rules.push_back(g_.NewRule("key"));
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<ExprId> choices;
    std::vector<CharRange> taken;
    for (const auto& [character, child] : nodes[i].children) {
      taken.push_back({character, character});
      choices.push_back(g_.Sequence({OneWay({{character, character}}), g_.Rule(rules[child])}));
    }
    choices.push_back(g_.Sequence({OneWay(OtherChars(NormalRanges(taken))), rest}));
    if (!nodes[i].is_name) choices.push_back(g_.Literal("\""));
    g_.Define(rules[i], g_.Choice(choices));
  }
  return g_.Sequence({g_.Literal("\""), g_.Rule(rules[0])});
}

ExprId JsonGrammar::Constant(const Json& value) {
  std::vector<ExprId> parts;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) {
      if (!parts.empty()) parts.push_back(comma());
      parts.push_back(Constant(item));
    }
    return ArrayOf(parts.empty() ? std::nullopt : std::optional(g_.Sequence(parts)), parts.empty());
  }
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      if (!parts.empty()) parts.push_back(comma());
      parts.insert(parts.end(), {g_.Literal(JsonQuote(key)), colon(), Constant(member)});
    }
    return ObjectOf(parts.empty() ? std::nullopt : std::optional(g_.Sequence(parts)), parts.empty());
  }
  if (value.is_double() && !std::isfinite(value.as_double())) return g_.Never();  // no text is this number
  return g_.Literal(WriteJson(value));
}

ExprId JsonGrammar::Enclosed(char open, std::optional<ExprId> inner, bool may_be_empty, char close) {
  std::vector<ExprId> contents;
  if (inner.has_value()) contents.push_back(g_.Sequence({*inner, space()}));
  if (may_be_empty) contents.push_back(g_.Empty());
  return g_.Sequence(
      {g_.Literal(std::string_view(&open, 1)), space(), g_.Choice(contents), g_.Literal(std::string_view(&close, 1))});
}

ExprId JsonGrammar::ObjectOf(std::optional<ExprId> members, bool may_be_empty) {
  return Enclosed('{', members, may_be_empty, '}');
}

ExprId JsonGrammar::ArrayOf(std::optional<ExprId> items, bool may_be_empty) {
  return Enclosed('[', items, may_be_empty, ']');
}

// ---- numbers between bounds ----

ExprId JsonGrammar::DigitBetween(char low, char high) {
  if (low > high) return g_.Never();
  return g_.Chars({{static_cast<uint32_t>(low), static_cast<uint32_t>(high)}});
}

ExprId JsonGrammar::Digits(uint32_t min, uint32_t max) {
  return max == 0 ? g_.Empty() : g_.Repeat(DigitBetween('0', '9'), min, max);
}

// Numbers of as many digits as both bounds have.
ExprId JsonGrammar::SameLength(std::string_view low, std::string_view high) {
  if (low.empty()) return g_.Empty();
  const auto rest = static_cast<uint32_t>(low.size() - 1);
  if (AllZeros(low) && high.find_first_not_of('9') == std::string_view::npos) return Digits(rest + 1, rest + 1);
  const std::string zeros(rest, '0');
  const std::string nines(rest, '9');
  if (low[0] == high[0]) {
    return g_.Sequence({g_.Literal(low.substr(0, 1)), SameLength(low.substr(1), high.substr(1))});
  }
  return g_.Choice(
      {g_.Sequence({g_.Literal(low.substr(0, 1)), SameLength(low.substr(1), nines)}),
       g_.Sequence({DigitBetween(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), Digits(rest, rest)}),
       g_.Sequence({g_.Literal(high.substr(0, 1)), SameLength(zeros, high.substr(1))})});
}

// REQUIRES: no leading zeros.
ExprId JsonGrammar::WholeBetween(std::string low, std::string high) {
  std::vector<ExprId> choices;
  for (size_t length = low.size(); length <= high.size(); ++length) {
    const std::string from = length == low.size() ? low : "1" + std::string(length - 1, '0');
    const std::string to = length == high.size() ? high : std::string(length, '9');
    if (from <= to) choices.push_back(SameLength(from, to));
  }
  return g_.Choice(choices);
}

ExprId JsonGrammar::IntegerBetween(std::optional<Decimal> low, std::optional<Decimal> high) {
  const std::string most(kMostIntegerDigits, '9');
  const Decimal from = low.value_or(Decimal{.negative = true, .whole = most});
  const Decimal to = high.value_or(Decimal{.whole = most});
  std::vector<ExprId> choices;
  if (Compare(from, to) > 0) return g_.Never();
  if (from.negative) {
    choices.push_back(g_.Sequence({g_.Literal("-"), WholeBetween(to.negative ? to.whole : "1", from.whole)}));
  }
  if (!to.negative) choices.push_back(WholeBetween(from.negative ? "0" : from.whole, to.whole));
  return g_.Choice(choices);
}

// What may follow digits after the point that equal those of `low` so far; `low` has the others. At least `least`, 0 or
// 1, digits and at most `left`.
ExprId JsonGrammar::FractionTailFrom(std::string_view low, bool exclusive, uint32_t least, uint32_t left) {
  if (left < least) return g_.Never();
  if (AllZeros(low)) {
    if (!exclusive) return Digits(least, left);
    return left == 0 ? g_.Never() : g_.Sequence({Digits(0, left - 1), DigitBetween('1', '9')});
  }
  if (left == 0) return g_.Never();
  return g_.Choice(
      {g_.Sequence({g_.Literal(low.substr(0, 1)), FractionTailFrom(low.substr(1), exclusive, 0, left - 1)}),
       g_.Sequence({DigitBetween(static_cast<char>(low[0] + 1), '9'), Digits(0, left - 1)})});
}

ExprId JsonGrammar::FractionTailTo(std::string_view high, bool exclusive, uint32_t least, uint32_t left) {
  if (left < least) return g_.Never();
  if (AllZeros(high)) {
    if (exclusive) return g_.Never();
    return left == 0 ? g_.Empty() : g_.Repeat(g_.Literal("0"), least, left);
  }
  if (left == 0) return g_.Empty();
  return g_.Choice(
      {least == 0 ? g_.Empty() : g_.Never(),
       g_.Sequence({DigitBetween('0', static_cast<char>(high[0] - 1)), Digits(0, left - 1)}),
       g_.Sequence({g_.Literal(high.substr(0, 1)), FractionTailTo(high.substr(1), exclusive, 0, left - 1)})});
}

// Both bounds have equalled the digits so far. REQUIRES: low and high of the same length, low < high, or equal and
// neither exclusive.
ExprId JsonGrammar::FractionTail(std::string_view low, std::string_view high, bool low_exclusive, bool high_exclusive,
                                 uint32_t least, uint32_t left) {
  if (left < least) return g_.Never();
  if (low.empty()) return left == 0 ? g_.Empty() : g_.Repeat(g_.Literal("0"), least, left);
  std::vector<ExprId> choices;
  if (AllZeros(low) && !low_exclusive && least == 0) choices.push_back(g_.Empty());
  if (left == 0) return g_.Choice(choices);
  const ExprId low_digit = g_.Literal(low.substr(0, 1));
  if (low[0] == high[0]) {
    choices.push_back(g_.Sequence(
        {low_digit, FractionTail(low.substr(1), high.substr(1), low_exclusive, high_exclusive, 0, left - 1)}));
  } else {
    choices.push_back(g_.Sequence({low_digit, FractionTailFrom(low.substr(1), low_exclusive, 0, left - 1)}));
    choices.push_back(g_.Sequence(
        {DigitBetween(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), Digits(0, left - 1)}));
    choices.push_back(
        g_.Sequence({g_.Literal(high.substr(0, 1)), FractionTailTo(high.substr(1), high_exclusive, 0, left - 1)}));
  }
  return g_.Choice(choices);
}

// REQUIRES: 0 <= low <= high.
ExprId JsonGrammar::Positive(const Bound& low, const Bound& high, uint32_t digits) {
  // What follows the whole part, given what follows the point.
  const auto dotted = [&](ExprId tail, bool may_be_whole) {
    return g_.Choice({may_be_whole ? g_.Empty() : g_.Never(), g_.Sequence({g_.Literal("."), tail})});
  };
  const std::string& a = low.value.whole;
  const std::string& b = high.value.whole;
  const bool low_whole = low.value.fraction.empty() && !low.exclusive;
  std::vector<ExprId> choices;
  if (a == b) {
    const size_t length = std::max(low.value.fraction.size(), high.value.fraction.size());
    std::string from = low.value.fraction;
    std::string to = high.value.fraction;
    from.resize(length, '0');
    to.resize(length, '0');
    const bool none = from == to && (low.exclusive || high.exclusive);
    const ExprId tail = none ? g_.Never() : FractionTail(from, to, low.exclusive, high.exclusive, 1, digits);
    return g_.Sequence({g_.Literal(a), dotted(tail, low_whole && !none)});
  }
  choices.push_back(
      g_.Sequence({g_.Literal(a), dotted(FractionTailFrom(low.value.fraction, low.exclusive, 1, digits), low_whole)}));
  Decimal after{.whole = a};
  size_t at = after.whole.size();
  while (at > 0 && after.whole[at - 1] == '9') after.whole[--at] = '0';
  at == 0 ? after.whole.insert(0, "1") : after.whole.replace(at - 1, 1, 1, static_cast<char>(after.whole[at - 1] + 1));
  Decimal before{.whole = b};
  at = before.whole.size();
  while (at > 0 && before.whole[at - 1] == '0') before.whole[--at] = '9';
  before.whole[at - 1] = static_cast<char>(before.whole[at - 1] - 1);
  before.whole.erase(0, std::min(before.whole.find_first_not_of('0'), before.whole.size() - 1));
  if (Compare(after, before) <= 0) {
    choices.push_back(g_.Sequence(
        {WholeBetween(after.whole, before.whole), dotted(digits == 0 ? g_.Never() : Digits(1, digits), true)}));
  }
  choices.push_back(g_.Sequence({g_.Literal(b), dotted(FractionTailTo(high.value.fraction, high.exclusive, 1, digits),
                                                       !high.exclusive || !high.value.fraction.empty())}));
  return g_.Choice(choices);
}

ExprId JsonGrammar::NumberBetween(const std::optional<Bound>& low, const std::optional<Bound>& high,
                                  uint32_t fraction_digits) {
  const std::string most(kMostIntegerDigits, '9');
  const Bound from = low.value_or(Bound{{.negative = true, .whole = most}});
  const Bound to = high.value_or(Bound{{.whole = most}});
  const int order = Compare(from.value, to.value);
  if (order > 0 || (order == 0 && (from.exclusive || to.exclusive))) return g_.Never();
  const auto mirrored = [](Bound bound) {
    bound.value.negative = false;
    return bound;
  };
  std::vector<ExprId> choices;
  if (from.value.negative) {
    const Bound least = to.value.negative || to.value.is_zero() ? mirrored(to) : Bound{};
    choices.push_back(g_.Sequence({g_.Literal("-"), Positive(least, mirrored(from), fraction_digits)}));
  }
  if (!to.value.negative) choices.push_back(Positive(from.value.negative ? Bound{} : from, to, fraction_digits));
  return g_.Choice(choices);
}

}  // namespace nunspark::text
