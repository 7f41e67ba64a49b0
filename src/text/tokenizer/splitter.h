// Finding the matches of a tokenizer file's pattern, however they are best found, and cutting at them.
#ifndef NUNSPARK_TEXT_TOKENIZER_SPLITTER_H_
#define NUNSPARK_TEXT_TOKENIZER_SPLITTER_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nunspark/status.h"
#include "text/tokenizer/json_section.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/scanner.h"
#include "text/tokenizer/span.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

// A pattern as files have it: {"String": ...} or {"Regex": ...}.
class Pattern {
 public:
  // `section` is the value of a "pattern" member.
  static Result<Pattern> FromJson(const JsonSection& section);
  static Pattern Literal(std::string text) { return Pattern(std::move(text)); }
  static Pattern Scan(Scanner scanner) { return Pattern(scanner); }
  static Result<Pattern> FromRegex(std::string_view regex, std::string_view where);

  // Appends the matches inside text[piece]. Errors: as Regex::FindMatches.
  Status FindMatches(std::string_view text, Span piece, WorkLimit& work, std::vector<Span>& matches) const;

 private:
  using Kind = std::variant<std::string, Scanner, Regex>;
  explicit Pattern(Kind kind) : kind_(std::move(kind)) {}

  Kind kind_;
};

// What becomes of the matches when a text is cut at them.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<SplitBehavior> SplitBehaviorFromJson(const JsonSection& section, std::string_view key, SplitBehavior fallback);

// Whether the matches are the delimiters or what lies between them is.
enum class Invert { kNo, kYes };

// Appends the parts of `piece`, given the matches inside it. Empty parts are left out.
void CutAtMatches(Span piece, const std::vector<Span>& matches, SplitBehavior behavior, Invert invert,
                  std::vector<Span>& parts);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_SPLITTER_H_
