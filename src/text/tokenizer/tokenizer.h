// Text to token ids and back, for every tokenizer file of the supported model families.
//
// A Tokenizer is immutable after Load and may be used by many threads at once. Results are identical to those of the
// Hugging Face `tokenizers` library for the same file (of `sentencepiece` and `tiktoken` for theirs). The file's
// "truncation" and "padding" are not applied: they are settings of a batch, not of the vocabulary.
#ifndef NUNSPARK_TEXT_TOKENIZER_TOKENIZER_H_
#define NUNSPARK_TEXT_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark::text {

using TokenId = int32_t;

enum class AddSpecials { kNo, kYes };   // whether the post-processor's specials (BOS, EOS) are added
enum class SkipSpecials { kNo, kYes };  // whether special tokens leave text when decoded

class DecodeRun;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `path`: a model folder, a tokenizer.json (also .gz), or any other tokenizer file this build knows. A folder's
  // tokenizer_config.json counts too: its added tokens for files that have none of their own, and for LlamaTokenizer
  // classes add_bos_token and add_eos_token, which replace the post-processor.
  // Errors: kNotFound; kDataLoss for a malformed file; kUnsupported names the part that is not known.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);

  // `text` may hold invalid UTF-8: each maximal bad part counts as one U+FFFD. Special tokens that occur in the text
  // are recognised, as the reference does.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, AddSpecials add_specials) const = 0;

  // Two texts with the post-processor's rule for pairs.
  virtual Result<std::vector<TokenId>> EncodePair(std::string_view first, std::string_view second,
                                                  AddSpecials add_specials) const = 0;

  // Ids outside the vocabulary decode to nothing.
  virtual std::string Decode(std::span<const TokenId> ids, SkipSpecials skip_specials) const = 0;

  // The token's own text as the file spells it (byte-level tokens in their visible form). Without data for unknown ids;
  // a token whose text is empty has data.
  virtual std::string_view TokenText(TokenId id) const = 0;
  virtual std::optional<TokenId> FindToken(std::string_view token_text) const = 0;

  // Appends the bytes that `id` adds to a decoded text in which other tokens stand before it: parts of characters too.
  // Errors: kUnsupported when the decoder makes that depend on the token's neighbours.
  virtual Status AppendRunningBytes(TokenId id, std::string& out) const = 0;

  // One more than the largest id, added tokens included.
  virtual TokenId vocab_size() const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;

  // Bytes held in memory, for the memory plan.
  virtual int64_t memory_bytes() const = 0;

  // Incremental decoding, for StreamDecoder. The run must not outlive the tokenizer.
  virtual std::unique_ptr<DecodeRun> NewDecodeRun() const = 0;
};

// Incremental decoding for one stream of tokens: text comes out as soon as it is certain and never ends inside a
// character. The concatenation of all pieces equals Tokenizer::Decode of all ids.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, SkipSpecials skip_specials);
  StreamDecoder(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // Text that became certain with `id` (may be empty). Ids outside the vocabulary are ignored.
  std::string Push(TokenId id);

  // What was held back. No Push may follow.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  const SkipSpecials skip_specials_;
  std::unique_ptr<DecodeRun> run_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_TOKENIZER_H_
