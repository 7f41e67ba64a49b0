// The step that turns pieces of text into token ids: BPE or Unigram.
#ifndef NUNSPARK_TEXT_TOKENIZER_MODEL_H_
#define NUNSPARK_TEXT_TOKENIZER_MODEL_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "nunspark/status.h"
#include "text/tokenizer/span.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

// A piece that was tokenised before in the same text. Pieces repeat (words, indentation), and a copy is several times
// faster than a merge.
struct CachedPiece {
  uint64_t hash = 0;
  Span piece{0, 0};
  uint32_t ids_begin = 0;  // in the output
  uint32_t ids_count = 0;  // 0: empty slot
};

// Working memory of one Encode call, reused from piece to piece.
struct EncodeScratch {
  WorkLimit work;
  std::vector<CachedPiece> cache;
  std::vector<uint32_t> symbols;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> heap;
  std::vector<double> scores;
  bool unknown_was_missing = false;  // see BpeOptions
};

// Immutable and shared by threads; the scratch is the caller's.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the ids of every piece of `text`, in order. Pieces are cut at character bounds; `text` is valid UTF-8.
  // Errors: kDataLoss when the vocabulary cannot express a piece and has no unknown token; as WorkLimit::Spend.
  virtual Status Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                        std::vector<TokenId>& ids) const = 0;

  virtual int64_t memory_bytes() const = 0;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_MODEL_H_
