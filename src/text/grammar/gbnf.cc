#include "text/grammar/gbnf.h"

#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"

namespace nunspark::text {
namespace {

constexpr size_t kMostSourceBytes = 1 << 20;
constexpr int kMostDepth = 200;

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view source, Grammar& grammar) : source_(source), grammar_(grammar) {}

  Result<ExprId> Parse() {
    if (source_.size() > kMostSourceBytes) {
      return ResourceExhaustedError(
          fmt::format("expected a grammar of at most {} bytes, found {}", kMostSourceBytes, source_.size()));
    }
    if (!IsValidUtf8(source_)) return InvalidArgumentError("the grammar is not valid UTF-8");
    for (SkipSpace(); at_ < source_.size(); SkipSpace()) {
      RETURN_IF_ERROR(ParseRule());
      RETURN_IF_ERROR(grammar_.CheckSize());
    }
    for (const NamedRule& rule : rules_) {
      if (rule.defined) continue;
      at_ = rule.first_use;
      return Fail(fmt::format("there is no rule '{}'", grammar_.name(rule.id)));
    }
    const auto root = by_name_.find("root");
    if (root == by_name_.end()) return InvalidArgumentError("the grammar has no rule 'root'");
    return grammar_.Rule(rules_[root->second].id);
  }

 private:
  struct NamedRule {
    RuleId id;
    size_t first_use;
    bool defined = false;
  };

  Status Fail(std::string_view what) const {
    size_t line = 1;
    size_t line_begin = 0;
    for (size_t i = 0; i < at_ && i < source_.size(); ++i) {
      if (source_[i] != '\n') continue;
      ++line;
      line_begin = i + 1;
    }
    size_t column = 1;
    for (size_t i = line_begin; i < at_ && i < source_.size(); i += DecodeUtf8(source_, i).bytes) ++column;
    return InvalidArgumentError(fmt::format("grammar, line {}, column {}: {}", line, column, what));
  }

  Status Expected(std::string_view what) const {
    if (at_ >= source_.size()) return Fail(fmt::format("expected {}, found the end", what));
    const std::string_view found = source_.substr(at_, DecodeUtf8(source_, at_).bytes);
    return Fail(
        fmt::format("expected {}, found {}", what, found == "\n" ? "a line break" : fmt::format("'{}'", found)));
  }

  char Peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }
  bool Take(std::string_view text) {
    if (!source_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  void SkipSpace() {
    while (at_ < source_.size()) {
      if (source_[at_] == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (source_[at_] == ' ' || source_[at_] == '\t' || source_[at_] == '\n' || source_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view PeekName() const {
    size_t end = at_;
    while (end < source_.size() && IsNameChar(source_[end])) ++end;
    return source_.substr(at_, end - at_);
  }

  // Whether a name is followed by "::=": then another rule begins here.
  bool AtRule() {
    const size_t back = at_;
    at_ += PeekName().size();
    const bool any = at_ > back;
    SkipSpace();
    const bool rule = any && source_.substr(at_).starts_with("::=");
    at_ = back;
    return rule;
  }

  NamedRule& Named(std::string_view name) {
    const auto [at, is_new] = by_name_.try_emplace(std::string(name), rules_.size());
    if (is_new) rules_.push_back({grammar_.NewRule(std::string(name)), at_});
    return rules_[at->second];
  }

  Status ParseRule() {
    const std::string_view name = PeekName();
    if (name.empty()) return Expected("the name of a rule");
    const size_t begin = at_;
    const size_t index = static_cast<size_t>(&Named(name) - rules_.data());
    if (rules_[index].defined) return Fail(fmt::format("the rule '{}' is there already", name));
    at_ = begin + name.size();
    SkipSpace();
    if (!Take("::=")) return Expected("'::='");
    ASSIGN_OR_RETURN(const ExprId body, ParseChoice(0));
    if (at_ < source_.size() && !AtRule()) return Expected("a name with '::=', '|' or the end");
    rules_[index].defined = true;
    grammar_.Define(rules_[index].id, body);
    return Status();
  }

  Result<ExprId> ParseChoice(int depth) {
    if (depth > kMostDepth) return Fail(fmt::format("groups are nested more than {} deep", kMostDepth));
    std::vector<ExprId> choices;
    do {
      ASSIGN_OR_RETURN(const ExprId sequence, ParseSequence(depth));
      choices.push_back(sequence);
    } while (Take("|"));
    return grammar_.Choice(choices);
  }

  Result<ExprId> ParseSequence(int depth) {
    std::vector<ExprId> parts;
    for (SkipSpace(); at_ < source_.size(); SkipSpace()) {
      ExprId part = 0;
      if (Peek() == '"') {
        ASSIGN_OR_RETURN(part, ParseString());
      } else if (Peek() == '[') {
        ASSIGN_OR_RETURN(part, ParseClass());
      } else if (Take(".")) {
        part = grammar_.Chars({{0, 0x10FFFF}});
      } else if (Take("(")) {
        ASSIGN_OR_RETURN(part, ParseChoice(depth + 1));
        if (!Take(")")) return Expected("')'");
      } else if (IsNameChar(Peek()) && !AtRule()) {
        const std::string_view name = PeekName();
        part = grammar_.Rule(Named(name).id);
        at_ += name.size();
      } else {
        break;
      }
      ASSIGN_OR_RETURN(part, ParseRepetitions(part));
      parts.push_back(part);
    }
    return grammar_.Sequence(parts);
  }

  Result<ExprId> ParseRepetitions(ExprId part) {
    for (int count = 0;; ++count) {
      const size_t begin = at_;
      SkipSpace();
      uint32_t min = 0;
      uint32_t max = kUnlimited;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Take("{")) {
        RETURN_IF_ERROR(ParseCounts(min, max));
      } else {
        at_ = begin;
        return part;
      }
      if (count >= kMostDepth) return Fail(fmt::format("more than {} repetitions in a row", kMostDepth));
      part = grammar_.Repeat(part, min, max);
    }
  }

  Status ParseCounts(uint32_t& min, uint32_t& max) {
    SkipSpace();
    if (Peek() == ',') {
      min = 0;
    } else {
      ASSIGN_OR_RETURN(min, ParseCount());
    }
    SkipSpace();
    max = min;
    if (Take(",")) {
      SkipSpace();
      max = kUnlimited;
      if (Peek() != '}') {
        ASSIGN_OR_RETURN(max, ParseCount());
      }
      SkipSpace();
    }
    if (Peek() != '}') return Expected("'}'");
    if (max < min) return Fail(fmt::format("a repetition from {} to {} times is none", min, max));
    ++at_;
    return Status();
  }

  Result<uint32_t> ParseCount() {
    if (Peek() < '0' || Peek() > '9') return Expected("a number");
    uint32_t count = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      count = 10 * count + static_cast<uint32_t>(Peek() - '0');
      if (count > kMaxRepetition) return Fail(fmt::format("a repetition of more than {} times", kMaxRepetition));
      ++at_;
    }
    return count;
  }

  Result<ExprId> ParseString() {
    ++at_;
    std::string text;
    while (Peek() != '"') {
      if (at_ >= source_.size() || Peek() == '\n') return Expected("'\"'");
      ASSIGN_OR_RETURN(const uint32_t c, ParseChar());
      AppendUtf8(c, text);
    }
    ++at_;
    return grammar_.Literal(text);
  }

  Result<ExprId> ParseClass() {
    ++at_;
    const bool others = Take("^");
    std::vector<CharRange> ranges;
    while (Peek() != ']') {
      if (at_ >= source_.size()) return Expected("']'");
      const size_t begin = at_;
      ASSIGN_OR_RETURN(const uint32_t first, ParseChar());
      uint32_t last = first;
      if (Peek() == '-' && at_ + 1 < source_.size() && source_[at_ + 1] != ']') {
        ++at_;
        ASSIGN_OR_RETURN(last, ParseChar());
      }
      if (last < first) {
        at_ = begin;
        return Fail("a range whose end comes before its beginning");
      }
      ranges.push_back({first, last});
    }
    ++at_;
    std::vector<CharRange> normal = NormalRanges(std::move(ranges));
    return grammar_.Chars(others ? OtherChars(normal) : std::move(normal));
  }

  Result<uint32_t> ParseChar() {
    if (!Take("\\")) {
      const Utf8Char c = DecodeUtf8(source_, at_);
      at_ += c.bytes;
      return c.code_point;
    }
    const char kind = Peek();
    if (at_ < source_.size()) ++at_;
    switch (kind) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<uint32_t>(kind);
      case 'x': return ParseHex(2);
      case 'u': return ParseHex(4);
      case 'U': return ParseHex(8);
      default: break;
    }
    --at_;
    return Expected("an escape: one of n r t \\ \" [ ] - ^ x u U");
  }

  Result<uint32_t> ParseHex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value << 4 | static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value << 4 | static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return Expected(fmt::format("{} hexadecimal digits", digits));
      }
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return Fail("an escape that is no character");
    return value;
  }

  const std::string_view source_;
  Grammar& grammar_;
  size_t at_ = 0;
  std::vector<NamedRule> rules_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace

Result<ExprId> AddGbnf(std::string_view source, Grammar& grammar) { return GbnfParser(source, grammar).Parse(); }

}  // namespace nunspark::text
