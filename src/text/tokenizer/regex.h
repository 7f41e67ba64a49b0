// Regular expressions of tokenizer files that have no hand-written scanner: Oniguruma with our Unicode 16 classes.
#ifndef NUNSPARK_TEXT_TOKENIZER_REGEX_H_
#define NUNSPARK_TEXT_TOKENIZER_REGEX_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"
#include "text/tokenizer/span.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

// A compiled pattern. Immutable; may be used by many threads.
class Regex {
 public:
  // `where` names the field in errors. Errors: kDataLoss for a pattern that does not compile; kUnsupported for a
  // property that the table does not have.
  static Result<Regex> Compile(std::string_view pattern, std::string_view where);

  // Appends the non-overlapping matches inside text[piece] from left to right; an empty match directly after a match is
  // skipped. The piece is the whole subject. Errors: kResourceExhausted when the pattern backtracks without end, in one
  // search or, as WorkLimit::Spend says, in all.
  Status FindMatches(std::string_view text, Span piece, WorkLimit& work, std::vector<Span>& matches) const;

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
};

// The pattern with \p{..}, \w, \s, \d, \b and their negations written as explicit ranges of Unicode 16, since the
// library's own tables are older. Errors: as Compile.
Result<std::string> RewriteClasses(std::string_view pattern, std::string_view where);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_REGEX_H_
