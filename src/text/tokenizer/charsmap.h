// SentencePiece's precompiled character map: a double-array trie of byte strings and what each becomes.
#ifndef NUNSPARK_TEXT_TOKENIZER_CHARSMAP_H_
#define NUNSPARK_TEXT_TOKENIZER_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

// What a byte of a replacement costs of the work. The longest real one makes 33 bytes of 3.
inline constexpr uint64_t kStepsPerReplacedByte = 4;

class Charsmap {
 public:
  // `blob` as the files hold it: size of the trie, trie, zero-terminated replacements. `where` names it in errors.
  static Result<Charsmap> Parse(std::string_view blob, std::string_view where);

  struct Match {
    size_t bytes;                  // of the text that is replaced
    std::string_view replacement;  // lives as long as the map
  };
  // The longest or shortest key that `text` starts with.
  std::optional<Match> FindLongest(std::string_view text) const;
  std::optional<Match> FindShortest(std::string_view text) const;

  // Appends the text as the Hugging Face `Precompiled` normalizer rewrites it: grapheme by grapheme, or else character
  // by character, a whole unit being replaced when the shortest key that it starts with has a replacement.
  // True when anything changed. REQUIRES: valid UTF-8. Errors: as WorkLimit::Spend.
  Result<bool> RewriteGraphemes(std::string_view text, WorkLimit& work, std::string& out) const;

  int64_t memory_bytes() const;

 private:
  enum class Prefer { kLongest, kShortest };
  std::optional<Match> Find(std::string_view text, Prefer prefer) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_CHARSMAP_H_
