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
#include "text/tokenizer/splitter.h"

namespace nunspark::text {

// A sequence of steps, chosen once when the file is read.
class Normalizer {
 public:
  Normalizer() = default;  // no steps: the text as it is

  // `section` is the file's "normalizer". Errors: kDataLoss, kUnsupported.
  static Result<Normalizer> FromJson(const JsonSection& section);

  bool empty() const { return steps_.empty(); }

  // Bytes that Prepend steps put before a text, which belong to its first character.
  uint32_t PrefixBytes() const;

  // The normal form of `text` (valid UTF-8). It may be `text` itself or lie in `storage`.
  // Errors: as Regex::FindMatches; kResourceExhausted when the text grows beyond kTextBytesMax.
  Result<std::string_view> Run(std::string_view text, std::string& storage) const;

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
  using Step = std::variant<NormalForm, Prepend, Replace, Strip, Lowercase, Precompiled>;

  Status AppendSteps(const JsonSection& section, int depth);

  // Each writes the normal form of `text` to `out` (empty before) and gives true, or gives false for "unchanged".
  static Result<bool> Apply(const NormalForm& step, std::string_view text, std::string& out);
  static Result<bool> Apply(const Prepend& step, std::string_view text, std::string& out);
  static Result<bool> Apply(const Replace& step, std::string_view text, std::string& out);
  static Result<bool> Apply(const Strip& step, std::string_view text, std::string& out);
  static Result<bool> Apply(const Lowercase& step, std::string_view text, std::string& out);
  static Result<bool> Apply(const Precompiled& step, std::string_view text, std::string& out);

  std::vector<Step> steps_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_NORMALIZER_H_
