// The Unigram model: the segmentation with the best sum of scores, as the Hugging Face `tokenizers` library finds it.
#ifndef NUNSPARK_TEXT_TOKENIZER_UNIGRAM_H_
#define NUNSPARK_TEXT_TOKENIZER_UNIGRAM_H_

#include <array>
#include <optional>
#include <vector>

#include "text/tokenizer/double_array.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {

struct UnigramPiece {
  TokenId id = kNoToken;
  double score = 0;
};

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;  // unknown parts become <0xNN> tokens when there are all that are needed
};

class Unigram final : public Model {
 public:
  // `vocabulary` holds the texts of `pieces`, whose ids are 0, 1, 2, ...; it must outlive the model.
  // REQUIRES: pieces is not empty, an unknown id is one of theirs.
  Unigram(const Vocabulary& vocabulary, std::span<const UnigramPiece> pieces, const UnigramOptions& options);

  Status Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                std::vector<TokenId>& ids) const override;

  int64_t memory_bytes() const override;

 private:
  Status EncodePiece(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  Status AppendToken(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  const UnigramOptions options_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  DoubleArray trie_;
  std::array<TokenId, 256> fallback_;  // ids of <0xNN>
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_UNIGRAM_H_
