#include "text/tokenizer/splitter.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/tokenizer/valid_utf8.h"

namespace nunspark::text {
namespace {

constexpr size_t kLiteralBytesMax = 64 * 1024;

void FindLiteral(const std::string& literal, std::string_view text, Span piece, std::vector<Span>& matches) {
  const std::string_view subject = text.substr(0, piece.end);
  if (literal.empty()) {  // matches everywhere, as an empty regular expression does
    for (uint32_t at = piece.begin; at < piece.end; at += ValidUtf8Length(text[at])) matches.push_back({at, at});
    matches.push_back({piece.end, piece.end});
    return;
  }
  const uint32_t bytes = static_cast<uint32_t>(literal.size());
  for (size_t at = subject.find(literal, piece.begin); at != std::string_view::npos;
       at = subject.find(literal, at + bytes)) {
    const uint32_t begin = static_cast<uint32_t>(at);
    matches.push_back({begin, begin + bytes});
  }
}

struct Part {
  Span span;
  bool is_match;
};

// Matches and the gaps between them, in order.
std::vector<Part> AllParts(Span piece, const std::vector<Span>& matches, Invert invert) {
  std::vector<Part> parts;
  uint32_t at = piece.begin;
  for (const Span& match : matches) {
    if (match.begin != at) parts.push_back({{at, match.begin}, false});
    parts.push_back({match, true});
    at = match.end;
  }
  if (at != piece.end) parts.push_back({{at, piece.end}, false});
  if (invert == Invert::kYes) {
    for (Part& part : parts) part.is_match = !part.is_match;
  }
  return parts;
}

void Append(Span span, std::vector<Span>& parts) {
  if (span.begin != span.end) parts.push_back(span);
}

// The common case needs no list of parts: everything is kept, matches and gaps alike.
void CutIsolated(Span piece, const std::vector<Span>& matches, std::vector<Span>& parts) {
  uint32_t at = piece.begin;
  for (const Span& match : matches) {
    Append({at, match.begin}, parts);
    Append(match, parts);
    at = match.end;
  }
  Append({at, piece.end}, parts);
}

}  // namespace

Result<Pattern> Pattern::FromJson(const JsonSection& section) {
  if (section.Member("String").has_value()) {
    ASSIGN_OR_RETURN(std::string literal, section.String("String"));
    if (literal.size() > kLiteralBytesMax) return section.Malformed("the pattern is too long");
    return Literal(std::move(literal));
  }
  if (section.Member("Regex").has_value()) {
    ASSIGN_OR_RETURN(const std::string regex, section.String("Regex"));
    return FromRegex(regex, section.where());
  }
  return section.Mismatch("object with a member 'String' or 'Regex'");
}

Result<Pattern> Pattern::FromRegex(std::string_view regex, std::string_view where) {
  const Scanner scanner = FindScanner(regex);
  if (scanner != nullptr) return Pattern(scanner);
  ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(regex, where));
  return Pattern(std::move(compiled));
}

Status Pattern::FindMatches(std::string_view text, Span piece, WorkLimit& work, std::vector<Span>& matches) const {
  if (const auto* scanner = std::get_if<Scanner>(&kind_)) {
    (*scanner)(text, piece, matches);
    return Status();
  }
  if (const auto* literal = std::get_if<std::string>(&kind_)) {
    FindLiteral(*literal, text, piece, matches);
    return Status();
  }
  return std::get<Regex>(kind_).FindMatches(text, piece, work, matches);
}

Result<SplitBehavior> SplitBehaviorFromJson(const JsonSection& section, std::string_view key, SplitBehavior fallback) {
  if (!section.Member(key).has_value()) return fallback;
  ASSIGN_OR_RETURN(const std::string name, section.String(key));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return section.Malformed(
      fmt::format("{}: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                  "Contiguous, found '{}'",
                  key, name));
}

void CutAtMatches(Span piece, const std::vector<Span>& matches, SplitBehavior behavior, Invert invert,
                  std::vector<Span>& parts) {
  if (behavior == SplitBehavior::kIsolated) {
    CutIsolated(piece, matches, parts);
    return;
  }
  std::vector<Part> all = AllParts(piece, matches, invert);
  if (behavior == SplitBehavior::kRemoved) {
    for (const Part& part : all) {
      if (!part.is_match) Append(part.span, parts);
    }
    return;
  }
  // The rest joins some neighbours: a match to the part before it or after it, or equals to equals. Empty matches
  // count as neighbours; only what comes out empty is dropped.
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(all.begin(), all.end());
  std::vector<Span> joined;
  bool previous_is_match = false;
  for (const Part& part : all) {
    const bool joins = behavior == SplitBehavior::kContiguous ? part.is_match == previous_is_match
                                                              : part.is_match && !previous_is_match;
    previous_is_match = part.is_match;
    if (!joins || joined.empty()) {
      joined.push_back(part.span);
    } else if (behavior == SplitBehavior::kMergedWithNext) {
      joined.back().begin = part.span.begin;
    } else {
      joined.back().end = part.span.end;
    }
  }
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(joined.begin(), joined.end());
  for (const Span& span : joined) Append(span, parts);
}

}  // namespace nunspark::text
