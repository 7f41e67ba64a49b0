// The tokenizer that all file formats are read into: normalise, cut, model, post-process; and back.
#ifndef NUNSPARK_TEXT_TOKENIZER_PIPELINE_H_
#define NUNSPARK_TEXT_TOKENIZER_PIPELINE_H_

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {

// What a loader fills in. The model refers to one of the two vocabularies, so they have addresses of their own.
struct PipelineParts {
  std::unique_ptr<Vocabulary> vocabulary = std::make_unique<Vocabulary>();
  std::unique_ptr<Vocabulary> raw_keys;  // of byte-level models: the tokens as bytes
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<bool> control_ids;  // specials that are no added tokens, of SentencePiece models
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  Result<std::vector<TokenId>> Encode(std::string_view text, AddSpecials add_specials) const override;
  Result<std::vector<TokenId>> EncodePair(std::string_view first, std::string_view second,
                                          AddSpecials add_specials) const override;
  std::string Decode(std::span<const TokenId> ids, SkipSpecials skip_specials) const override;
  std::string_view TokenText(TokenId id) const override;
  std::optional<TokenId> FindToken(std::string_view token_text) const override;
  Status AppendRunningBytes(TokenId id, std::string& out) const override;
  TokenId vocab_size() const override;
  bool IsSpecial(TokenId id) const override;
  int64_t memory_bytes() const override;
  std::unique_ptr<DecodeRun> NewDecodeRun() const override;

  // For the rules of tokenizer_config.json, before the tokenizer is shared.
  void set_post_processor(PostProcessor post_processor) { parts_.post_processor = std::move(post_processor); }

 private:
  struct Work;
  Status EncodeText(std::string_view text, std::vector<TokenId>& ids) const;
  Status EncodeNormalized(std::string_view text, uint32_t origin_end, Work& work, std::vector<TokenId>& ids) const;
  Status EncodePieces(std::string_view text, uint32_t origin_end, Work& work, std::vector<TokenId>& ids) const;

  PipelineParts parts_;
};

// Whether the tokens of a byte-level vocabulary can be looked up as bytes: gives that vocabulary.
std::unique_ptr<Vocabulary> RawKeysOf(const Vocabulary& visible);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_PIPELINE_H_
