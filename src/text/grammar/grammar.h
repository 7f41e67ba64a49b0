// A context-free grammar over bytes and special tokens: expressions in an arena, rules that name them.
//
// Filled by the parsers (GBNF, JSON Schema, patterns), then compiled by Automaton::Compile. Not thread-safe.
#ifndef NUNSPARK_TEXT_GRAMMAR_GRAMMAR_H_
#define NUNSPARK_TEXT_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark::text {

using ExprId = uint32_t;
using RuleId = uint32_t;

struct CharRange {
  uint32_t first;  // code points or bytes, both ends included
  uint32_t last;
};

// Ranges in order, without overlaps or neighbours, and without surrogates.
std::vector<CharRange> NormalRanges(std::vector<CharRange> ranges);
// Every code point that is in none of `ranges`, which are as NormalRanges gives them.
std::vector<CharRange> OtherChars(std::span<const CharRange> ranges);

inline constexpr uint32_t kUnlimited = UINT32_MAX;
inline constexpr uint32_t kMaxRepetition = 1'000'000;

// Whether tokens that only markup should use (GrammarVocabulary::Options::spelled_only) may be what matches: where a
// grammar spells the text out they may, in the middle of a JSON string they may not.
enum class Spelled : uint8_t { kNo, kYes };

class Grammar {
 public:
  enum class Kind : uint8_t { kLiteral, kChars, kBytes, kToken, kSequence, kChoice, kRepeat, kRule };

  // kLiteral: text. kChars, kBytes: ranges. kToken: id. kSequence, kChoice: children. kRepeat: one child, min, max.
  // kRule: id.
  struct Expr {
    Kind kind;
    Spelled spelled = Spelled::kNo;
    uint32_t begin = 0;  // of its text, ranges or children; or the id
    uint32_t count = 0;
    uint32_t min = 0;
    uint32_t max = 0;
  };

  ExprId Empty() { return Sequence({}); }
  ExprId Never() { return Choice({}); }
  ExprId Literal(std::string_view bytes);
  // One character of `ranges`, in UTF-8.
  ExprId Chars(std::vector<CharRange> ranges, Spelled spelled = Spelled::kYes);
  ExprId Bytes(std::span<const CharRange> ranges);
  ExprId Token(int32_t id);
  ExprId Sequence(std::span<const ExprId> parts);
  ExprId Sequence(std::initializer_list<ExprId> parts) { return Sequence(std::span(parts.begin(), parts.size())); }
  ExprId Choice(std::span<const ExprId> parts);
  ExprId Choice(std::initializer_list<ExprId> parts) { return Choice(std::span(parts.begin(), parts.size())); }
  // max kUnlimited: no end.
  ExprId Repeat(ExprId part, uint32_t min, uint32_t max);
  ExprId Optional(ExprId part) { return Repeat(part, 0, 1); }
  ExprId Rule(RuleId rule);

  // A rule that gets its expression later, so that it may refer to itself. `name` is for messages.
  RuleId NewRule(std::string name);
  void Define(RuleId rule, ExprId body) { bodies_[rule] = body; }
  // A rule for an expression that is used in many places.
  ExprId Shared(std::string name, ExprId body);

  // kResourceExhausted once the grammar has become larger than any that is compiled.
  Status CheckSize() const;

  const Expr& expr(ExprId id) const { return exprs_[id]; }
  std::string_view text(const Expr& e) const { return std::string_view(text_).substr(e.begin, e.count); }
  std::span<const CharRange> ranges(const Expr& e) const { return std::span(ranges_).subspan(e.begin, e.count); }
  std::span<const ExprId> children(const Expr& e) const { return std::span(children_).subspan(e.begin, e.count); }
  ExprId body(RuleId rule) const { return bodies_[rule]; }
  const std::string& name(RuleId rule) const { return names_[rule]; }
  size_t expr_count() const { return exprs_.size(); }
  size_t rule_count() const { return bodies_.size(); }

 private:
  ExprId Add(Expr expr);
  ExprId AddParts(Kind kind, std::span<const ExprId> parts);

  std::vector<Expr> exprs_;
  std::string text_;
  std::vector<CharRange> ranges_;
  std::vector<ExprId> children_;
  std::vector<ExprId> bodies_;
  std::vector<std::string> names_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_GRAMMAR_H_
