// Pre-tokenizers: how a text is cut into the pieces that the model sees.
#ifndef NUNSPARK_TEXT_TOKENIZER_PRE_TOKENIZER_H_
#define NUNSPARK_TEXT_TOKENIZER_PRE_TOKENIZER_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/splitter.h"

namespace nunspark::text {

// The prepend_scheme of Metaspace pre-tokenizers and decoders, older add_prefix_space included.
enum class PrependScheme { kAlways, kFirst, kNever };
Result<PrependScheme> PrependSchemeFromJson(const JsonSection& section);

// A text on its way through the steps. `text` may point into `storage` or to the caller's memory.
struct PieceList {
  std::string_view text;
  std::vector<Span> pieces;  // into text, in order, none empty
  // A piece that begins below this offset begins at the original text's first character (prefixes that were added
  // count as part of it). Only Metaspace's "first" asks.
  uint32_t origin_end = 0;

  WorkLimit work;
  std::string storage;
  std::string storage_spare;
  std::vector<Span> pieces_spare;
  std::vector<Span> matches;
};

// A sequence of steps, chosen once when the file is read.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // no steps: one piece

  // `section` is the file's "pre_tokenizer". Errors: kDataLoss, kUnsupported.
  static Result<PreTokenizer> FromJson(const JsonSection& section);
  // For formats that name a pattern instead: every match and every gap is a piece.
  static PreTokenizer IsolateMatches(Pattern pattern);

  // True when the last step maps bytes to visible characters.
  bool EndsWithByteLevel() const;
  // Leaves that mapping out, for a model whose keys are raw bytes. REQUIRES: EndsWithByteLevel().
  void KeepRawBytes();

  // Cuts `text` (valid UTF-8, at most kTextBytesMax). `origin_end` as in PieceList. `text` must outlive the use of
  // `list`. Errors: as Regex::FindMatches; kResourceExhausted when steps make the text too long for `list.work`.
  Status Run(std::string_view text, uint32_t origin_end, PieceList& list) const;

 private:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior;
    Invert invert;
  };
  // Prefixes every piece with a space, if asked to; cuts with GPT-2's pattern, if asked to; then maps bytes.
  struct AddPrefixSpace {};
  struct MapBytes {};
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
  };
  enum class CharacterSet { kDigit, kPunctuation, kWhiteSpace };
  struct SplitOnCharacters {
    CharacterSet set;
    SplitBehavior behavior;
  };
  // \w+|[^\w\s]+, everything else removed.
  struct WordsAndSigns {};
  using Step = std::variant<Split, AddPrefixSpace, MapBytes, Metaspace, SplitOnCharacters, WordsAndSigns>;

  Status AppendSteps(const JsonSection& section, int depth);
  Status AppendByteLevel(const JsonSection& section);
  Status AppendMetaspace(const JsonSection& section);

  static Status Apply(const Split& step, PieceList& list);
  static Status Apply(const AddPrefixSpace& step, PieceList& list);
  static Status Apply(const MapBytes& step, PieceList& list);
  static Status Apply(const Metaspace& step, PieceList& list);
  static Status Apply(const SplitOnCharacters& step, PieceList& list);
  static Status Apply(const WordsAndSigns& step, PieceList& list);

  std::vector<Step> steps_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_PRE_TOKENIZER_H_
