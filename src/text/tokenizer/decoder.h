// Decoders: from the texts of tokens back to text.
//
// A decoder is a chain of steps that take tokens and hand on tokens. The chain runs incrementally, so that streaming
// and one-shot decoding are the same code: each step hands on what is certain and keeps the rest.
#ifndef NUNSPARK_TEXT_TOKENIZER_DECODER_H_
#define NUNSPARK_TEXT_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "text/text_hash.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/splitter.h"

namespace nunspark::text {

// One run of a decoder. Not thread-safe; must not outlive its decoder.
class DecodeRun {
 public:
  virtual ~DecodeRun() = default;
  // The next token; appends the text that became certain.
  virtual void Push(std::string_view token, std::string& out) = 0;
  // No more tokens follow.
  virtual void Finish(std::string& out) = 0;
};

class Decoder {
 public:
  Decoder() = default;  // no decoder: tokens joined by spaces

  // `section` is the file's "decoder". Errors: kDataLoss, kUnsupported.
  static Result<Decoder> FromJson(const JsonSection& section);
  static Decoder ByteLevel();
  // The decoding of a SentencePiece model.
  struct SentencePieceStep {
    // Control tokens by nothing, the unknown one by its surface.
    std::unordered_map<std::string, std::string, TextHasher> replaced;
    bool has_bytes;             // "<0xNN>" tokens are bytes
    bool drops_first_space;     // the dummy prefix
    bool drops_leading_spaces;  // of all leading tokens
  };
  static Decoder SentencePiece(SentencePieceStep step);

  std::unique_ptr<DecodeRun> NewRun() const;

  // Appends the bytes that a token's text adds to a decoded text in which other tokens stand before it; they may be
  // parts of characters. kUnsupported when that depends on its neighbours.
  Status AppendRunningBytes(std::string_view token, std::string& out) const;

  struct ByteLevelStep {};
  struct ByteFallbackStep {};
  struct FuseStep {};
  struct ReplaceStep {
    Pattern pattern;
    std::string content;
  };
  struct StripStep {
    std::string content;  // one character
    int64_t start;
    int64_t stop;
  };
  struct MetaspaceStep {
    std::string replacement;
    bool drops_first;
  };
  using Step =
      std::variant<ByteLevelStep, ByteFallbackStep, FuseStep, ReplaceStep, StripStep, MetaspaceStep, SentencePieceStep>;

 private:
  Status AppendSteps(const JsonSection& section, int depth);

  bool joins_with_spaces_ = true;
  std::vector<Step> steps_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_DECODER_H_
