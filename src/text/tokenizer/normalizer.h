// Normalizers: how a text is rewritten before it is cut.
#ifndef NUNSPARK_TEXT_TOKENIZER_NORMALIZER_H_
#define NUNSPARK_TEXT_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/splitter.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

// A sequence of steps, chosen once when the file is read.
class Normalizer {
 public:
  Normalizer() = default;  // no steps: the text as it is

  // `section` is the file's "normalizer". Errors: kDataLoss, kUnsupported.
  static Result<Normalizer> FromJson(const JsonSection& section);

  // The normalizer of a SentencePiece model.
  static Normalizer FromSentencePiece(std::shared_ptr<const SpmNormalizer> normalizer);

  bool empty() const { return steps_.empty(); }

  struct Normalized {
    std::string_view text;
    // Characters that begin below this offset stand for the original's first one (or were put before it); 0: none do.
    uint32_t origin_end;
  };
  // The normal form of `text` (valid UTF-8). It may be `text` itself or lie in `storage`.
  // Errors: as Regex::FindMatches; kResourceExhausted when the text grows beyond kTextBytesMax or the work allows.
  Result<Normalized> Run(std::string_view text, WorkLimit& work, std::string& storage) const;

  int64_t memory_bytes() const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  struct Lowercase {};
  struct Precompiled {
    std::shared_ptr<const Charsmap> map;  // shared: steps are copied with the normalizer, the map is large
  };
  struct SentencePiece {
    std::shared_ptr<const SpmNormalizer> normalizer;  // shared as above
  };
  using Step = std::variant<NormalForm, Prepend, Replace, Strip, Lowercase, Precompiled, SentencePiece>;

  Status AppendSteps(const JsonSection& section, int depth);

  // Each writes the normal form of `text` to `out` (empty before) unless it gives false: there is nothing to change.
  // `origin_end` as in Normalized, of `text` and then of `out`.
  static Result<bool> Apply(const NormalForm& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const Prepend& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const Replace& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const Strip& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const Lowercase& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const Precompiled& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);
  static Result<bool> Apply(const SentencePiece& step, std::string_view text, std::string& out, uint32_t& origin_end,
                            WorkLimit& work);

  std::vector<Step> steps_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_NORMALIZER_H_
