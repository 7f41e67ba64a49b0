#include "text/grammar/json_pattern.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"

namespace nunspark::text {
namespace {

constexpr int kMostDepth = 100;
constexpr size_t kMostPatternBytes = 1 << 16;

using Ranges = std::vector<CharRange>;
const Ranges kDigits{{'0', '9'}};
const Ranges kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpaces{{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                     {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

uint32_t Plus(uint32_t a, uint32_t b) {
  return a == kUnlimited || b == kUnlimited || a + b > kMaxRepetition ? kUnlimited : a + b;
}
uint32_t Times(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kUnlimited || b == kUnlimited || uint64_t{a} * b > kMaxRepetition ? kUnlimited : a * b;
}

class PatternParser {
 public:
  PatternParser(std::string_view pattern, JsonGrammar& json, Grammar& grammar)
      : pattern_(pattern), json_(json), grammar_(grammar) {}

  Result<JsonPattern> Parse() {
    if (pattern_.size() > kMostPatternBytes) {
      return ResourceExhaustedError(
          fmt::format("expected at most {} bytes, found {}", kMostPatternBytes, pattern_.size()));
    }
    ASSIGN_OR_RETURN(const JsonPattern all, ParseChoice(0));
    if (at_ < pattern_.size()) return Fail("unmatched ')'");
    return all;
  }

 private:
  Status Fail(std::string_view what) const {
    return InvalidArgumentError(fmt::format("column {} of the pattern: {}", at_ + 1, what));
  }
  Status Unknown(std::string_view what) const {
    return UnsupportedError(fmt::format("column {} of the pattern: {} cannot be honoured", at_ + 1, what));
  }

  char Peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  Result<JsonPattern> ParseChoice(int depth) {
    if (depth > kMostDepth) return Fail(fmt::format("groups are nested more than {} deep", kMostDepth));
    std::vector<ExprId> choices;
    JsonPattern all{0, kUnlimited, 0};
    do {
      ASSIGN_OR_RETURN(const JsonPattern one, ParseSequence(depth));
      choices.push_back(one.expr);
      all.least = std::min(all.least, one.least);
      all.most = std::max(all.most, one.most);
    } while (Take("|"));
    all.expr = grammar_.Choice(choices);
    return all;
  }

  Result<JsonPattern> ParseSequence(int depth) {
    std::vector<ExprId> parts;
    JsonPattern all{0, 0, 0};
    const auto add = [&](const JsonPattern& part) {
      parts.push_back(part.expr);
      all.least = Plus(all.least, part.least);
      all.most = Plus(all.most, part.most);
    };
    const auto anything = [&] {
      return JsonPattern{grammar_.Repeat(json_.OneWay({{0, 0x10FFFF}}), 0, kUnlimited), 0, kUnlimited};
    };
    if (!Take("^") && depth == 0) add(anything());
    bool ended = false;
    while (at_ < pattern_.size() && Peek() != '|' && Peek() != ')') {
      if (ended) return Unknown("'$' before other parts");
      if (Peek() == '^') return Unknown("'^' behind other parts");
      if (Take("$")) {
        ended = true;
        continue;
      }
      ASSIGN_OR_RETURN(JsonPattern part, ParseAtom(depth));
      RETURN_IF_ERROR(ParseRepetition(part));
      add(part);
      RETURN_IF_ERROR(grammar_.CheckSize());
    }
    if (depth == 0 && !ended) add(anything());
    all.expr = grammar_.Sequence(parts);
    return all;
  }

  Result<JsonPattern> ParseAtom(int depth) {
    if (Take("(")) {
      if (Peek() == '?' && !Take("?:")) return Unknown("a group that begins with '?'");
      // An anchor in a group would mean the whole string's end, which other parts of the pattern must allow for.
      if (Peek() == '^') return Unknown("'^' in a group");
      ASSIGN_OR_RETURN(const JsonPattern group, ParseChoice(depth + 1));
      if (!Take(")")) return Fail("expected ')'");
      return group;
    }
    Ranges ranges;
    if (Take("[")) {
      ASSIGN_OR_RETURN(ranges, ParseClass());
    } else if (Take(".")) {
      ranges = OtherChars(kLineEnds);
    } else if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
      return Fail("nothing to repeat");
    } else {
      bool is_class = false;
      ASSIGN_OR_RETURN(ranges, ParseChar(is_class));
    }
    return JsonPattern{json_.OneWay(ranges), 1, 1};
  }

  Status ParseRepetition(JsonPattern& part) {
    uint32_t min = 0;
    uint32_t max = kUnlimited;
    if (Take("*")) {
    } else if (Take("+")) {
      min = 1;
    } else if (Take("?")) {
      max = 1;
    } else if (Take("{")) {
      ASSIGN_OR_RETURN(min, ParseCount());
      max = min;
      if (Take(",")) {
        max = kUnlimited;
        if (Peek() != '}') {
          ASSIGN_OR_RETURN(max, ParseCount());
        }
      }
      if (!Take("}")) return Fail("expected '}'");
      if (max < min) return Fail("a repetition whose limits are in the wrong order");
    } else {
      return Status();
    }
    Take("?");  // lazy: the same strings
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') return Fail("nothing to repeat");
    part = {grammar_.Repeat(part.expr, min, max), Times(part.least, min), Times(part.most, max)};
    return Status();
  }

  Result<uint32_t> ParseCount() {
    if (Peek() < '0' || Peek() > '9') return Fail("expected a number");
    uint32_t count = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      count = 10 * count + static_cast<uint32_t>(Peek() - '0');
      if (count > kMaxRepetition) return Fail(fmt::format("a repetition of more than {} times", kMaxRepetition));
    }
    return count;
  }

  Result<Ranges> ParseClass() {
    const bool others = Take("^");
    Ranges ranges;
    while (Peek() != ']') {
      if (at_ >= pattern_.size()) return Fail("expected ']'");
      bool first_is_class = false;
      ASSIGN_OR_RETURN(Ranges first, ParseChar(first_is_class));
      if (Peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        ++at_;
        bool last_is_class = false;
        ASSIGN_OR_RETURN(const Ranges last, ParseChar(last_is_class));
        if (first_is_class || last_is_class) return Fail("a range from or to a class");
        if (last[0].first < first[0].first) return Fail("a range whose end comes before its beginning");
        first = {{first[0].first, last[0].first}};
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    ++at_;
    Ranges normal = NormalRanges(std::move(ranges));
    return others ? OtherChars(normal) : normal;
  }

  Result<Ranges> ParseChar(bool& is_class) {
    if (!Take("\\")) {
      const Utf8Char c = DecodeUtf8(pattern_, at_);
      at_ += c.bytes;
      return Ranges{{c.code_point, c.code_point}};
    }
    if (at_ >= pattern_.size()) return Fail("expected an escape, found the end");
    const char kind = Peek();
    is_class = true;
    switch (kind) {
      case 'd': ++at_; return kDigits;
      case 'w': ++at_; return kWord;
      case 's': ++at_; return kSpaces;
      case 'D': ++at_; return OtherChars(kDigits);
      case 'W': ++at_; return OtherChars(kWord);
      case 'S': ++at_; return OtherChars(kSpaces);
      default: break;
    }
    is_class = false;
    const auto one = [](uint32_t c) { return Ranges{{c, c}}; };
    switch (kind) {
      case 't': ++at_; return one('\t');
      case 'n': ++at_; return one('\n');
      case 'r': ++at_; return one('\r');
      case 'f': ++at_; return one('\f');
      case 'v': ++at_; return one('\v');
      case 'x':
      case 'u': {
        ++at_;
        uint32_t value = 0;
        for (int i = kind == 'x' ? 2 : 4; i > 0; --i, ++at_) {
          const char c = Peek();
          const auto lower = static_cast<char>(c | 0x20);
          const bool digit = c >= '0' && c <= '9';
          if (!digit && (lower < 'a' || lower > 'f')) return Fail("expected a hexadecimal digit");
          value = value << 4 | static_cast<uint32_t>(digit ? c - '0' : lower - 'a' + 10);
        }
        if (value >= 0xD800 && value <= 0xDFFF) return Unknown("half of a character");
        return one(value);
      }
      default: break;
    }
    if (kind == '0' && (at_ + 1 == pattern_.size() || pattern_[at_ + 1] < '0' || pattern_[at_ + 1] > '9')) {
      ++at_;
      return one(0);
    }
    const bool letter = (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z') || (kind >= '0' && kind <= '9');
    if (letter) return Unknown(fmt::format("\\{}", kind));
    const Utf8Char c = DecodeUtf8(pattern_, at_);
    at_ += c.bytes;
    return one(c.code_point);
  }

  const std::string_view pattern_;
  JsonGrammar& json_;
  Grammar& grammar_;
  size_t at_ = 0;
};

}  // namespace

Result<JsonPattern> AddPattern(std::string_view pattern, JsonGrammar& json, Grammar& grammar) {
  return PatternParser(pattern, json, grammar).Parse();
}

}  // namespace nunspark::text
