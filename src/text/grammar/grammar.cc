#include "text/grammar/grammar.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

namespace nunspark::text {
namespace {

constexpr size_t kMostExprs = 1 << 20;
constexpr size_t kMostBytes = 1 << 24;
constexpr uint32_t kLastCodePoint = 0x10FFFF;

}  // namespace

std::vector<CharRange> NormalRanges(std::vector<CharRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](CharRange a, CharRange b) { return a.first < b.first; });
  std::vector<CharRange> joined;
  for (const CharRange range : ranges) {
    if (range.first > range.last) continue;
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  std::vector<CharRange> normal;
  for (const CharRange range : joined) {
    const auto add = [&](uint32_t first, uint32_t last) {
      if (first <= last) normal.push_back({first, last});
    };
    add(range.first, std::min(range.last, uint32_t{0xD7FF}));
    add(std::max(range.first, uint32_t{0xE000}), std::min(range.last, kLastCodePoint));
  }
  return normal;
}

std::vector<CharRange> OtherChars(std::span<const CharRange> ranges) {
  std::vector<CharRange> others;
  uint32_t next = 0;
  for (const CharRange range : ranges) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) others.push_back({next, kLastCodePoint});
  return NormalRanges(std::move(others));
}

ExprId Grammar::Add(Expr expr) {
  exprs_.push_back(expr);
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::AddParts(Kind kind, std::span<const ExprId> parts) {
  const auto begin = static_cast<uint32_t>(children_.size());
  children_.insert(children_.end(), parts.begin(), parts.end());
  return Add({.kind = kind, .begin = begin, .count = static_cast<uint32_t>(parts.size())});
}

ExprId Grammar::Literal(std::string_view bytes) {
  const auto begin = static_cast<uint32_t>(text_.size());
  text_ += bytes;
  return Add(
      {.kind = Kind::kLiteral, .spelled = Spelled::kYes, .begin = begin, .count = static_cast<uint32_t>(bytes.size())});
}

ExprId Grammar::Chars(std::vector<CharRange> ranges, Spelled spelled) {
  const std::vector<CharRange> normal = NormalRanges(std::move(ranges));
  const auto begin = static_cast<uint32_t>(ranges_.size());
  ranges_.insert(ranges_.end(), normal.begin(), normal.end());
  return Add({.kind = Kind::kChars, .spelled = spelled, .begin = begin, .count = static_cast<uint32_t>(normal.size())});
}

ExprId Grammar::Bytes(std::span<const CharRange> ranges) {
  const auto begin = static_cast<uint32_t>(ranges_.size());
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  return Add(
      {.kind = Kind::kBytes, .spelled = Spelled::kYes, .begin = begin, .count = static_cast<uint32_t>(ranges.size())});
}

ExprId Grammar::Token(int32_t id) { return Add({.kind = Kind::kToken, .begin = static_cast<uint32_t>(id)}); }

ExprId Grammar::Sequence(std::span<const ExprId> parts) {
  return parts.size() == 1 ? parts[0] : AddParts(Kind::kSequence, parts);
}

ExprId Grammar::Choice(std::span<const ExprId> parts) {
  return parts.size() == 1 ? parts[0] : AddParts(Kind::kChoice, parts);
}

ExprId Grammar::Repeat(ExprId part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  const ExprId id = AddParts(Kind::kRepeat, std::span(&part, 1));
  exprs_[id].min = min;
  exprs_[id].max = max;
  return id;
}

ExprId Grammar::Rule(RuleId rule) { return Add({.kind = Kind::kRule, .begin = rule}); }

RuleId Grammar::NewRule(std::string name) {
  bodies_.push_back(0);
  names_.push_back(std::move(name));
  return static_cast<RuleId>(bodies_.size() - 1);
}

ExprId Grammar::Shared(std::string name, ExprId body) {
  const RuleId rule = NewRule(std::move(name));
  Define(rule, body);
  return Rule(rule);
}

Status Grammar::CheckSize() const {
  if (exprs_.size() <= kMostExprs && text_.size() <= kMostBytes && ranges_.size() <= kMostExprs &&
      children_.size() <= kMostExprs) {
    return Status();
  }
  return ResourceExhaustedError(fmt::format("the grammar is too large: more than {} parts", kMostExprs));
}

}  // namespace nunspark::text
