// The parts of a SentencePiece model: its normalizer and its two algorithms, as the `sentencepiece` library has them.
#ifndef NUNSPARK_TEXT_TOKENIZER_SENTENCEPIECE_H_
#define NUNSPARK_TEXT_TOKENIZER_SENTENCEPIECE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/double_array.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {

inline constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581, what a space becomes

struct SpmPiece {
  enum class Kind : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::string text;
  float score = 0;
  Kind kind = Kind::kNormal;
};

// Longest user-defined symbols; nothing may cut or rewrite them.
class SpmSymbols {
 public:
  explicit SpmSymbols(std::span<const SpmPiece> pieces);
  // Bytes of the symbol that `text` starts with; 0 when there is none. Errors: as WorkLimit::Spend.
  Result<size_t> Match(std::string_view text, WorkLimit& work) const;
  int64_t memory_bytes() const { return trie_.memory_bytes(); }

 private:
  DoubleArray trie_;
};

struct SpmNormalizerOptions {
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool space_as_suffix = false;  // the dummy prefix goes to the end
};

class SpmNormalizer {
 public:
  SpmNormalizer(SpmNormalizerOptions options, std::optional<Charsmap> map, std::shared_ptr<const SpmSymbols> symbols)
      : options_(options), map_(std::move(map)), symbols_(std::move(symbols)) {}

  // Appends the normal form of `text` (valid UTF-8). Errors: as WorkLimit::Spend.
  Status Run(std::string_view text, WorkLimit& work, std::string& out) const;
  int64_t memory_bytes() const { return map_.has_value() ? map_->memory_bytes() : 0; }

 private:
  struct Unit {
    std::string_view normal;
    size_t bytes;  // consumed
  };
  Result<Unit> Next(std::string_view text, WorkLimit& work) const;

  const SpmNormalizerOptions options_;
  const std::optional<Charsmap> map_;
  const std::shared_ptr<const SpmSymbols> symbols_;
};

struct SpmModelOptions {
  TokenId unknown = 0;
  bool byte_fallback = false;
};

// Merges by score, the best first and the leftmost of equals.
class SpmBpe final : public Model {
 public:
  // `vocabulary` holds the texts of `pieces` under their index; it must outlive the model.
  SpmBpe(const Vocabulary& vocabulary, std::span<const SpmPiece> pieces, std::shared_ptr<const SpmSymbols> symbols,
         const SpmModelOptions& options);

  Status Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                std::vector<TokenId>& ids) const override;
  int64_t memory_bytes() const override;

 private:
  struct Symbol {
    Span span;
    int32_t previous;
    int32_t next;
    bool frozen;  // a user-defined symbol
  };
  struct Pair {
    float score;
    int32_t left;
    int32_t right;
    uint32_t bytes;

    // Order of the heap: what is worse comes later.
    friend bool operator<(const Pair& a, const Pair& b) {
      return a.score < b.score || (a.score == b.score && a.left > b.left);
    }
  };
  struct Run;

  // The id that takes part in merges, or kNoToken.
  TokenId FindMergeable(std::string_view text) const;
  Status EncodePiece(std::string_view text, WorkLimit& work, std::vector<TokenId>& ids) const;
  void Offer(Run& run, int32_t left, int32_t right) const;
  void AppendSegment(const Run& run, Span span, std::vector<TokenId>& ids, bool& previous_unknown) const;

  const Vocabulary& vocabulary_;
  const std::shared_ptr<const SpmSymbols> symbols_;
  const SpmModelOptions options_;
  std::vector<float> scores_;          // by id
  std::vector<SpmPiece::Kind> kinds_;  // by id
  std::vector<TokenId> bytes_;         // ids of the 256 byte pieces, or empty
};

// The segmentation with the best sum of scores, in single precision.
class SpmUnigram final : public Model {
 public:
  // As SpmBpe.
  SpmUnigram(const Vocabulary& vocabulary, std::span<const SpmPiece> pieces, const SpmModelOptions& options);

  Status Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                std::vector<TokenId>& ids) const override;
  int64_t memory_bytes() const override;

 private:
  struct Node {
    float score = 0;
    int32_t start = -1;  // -1: not reached
    TokenId id = kNoToken;
  };

  Status EncodePiece(std::string_view text, WorkLimit& work, std::vector<TokenId>& ids) const;

  const SpmModelOptions options_;
  std::vector<float> scores_;
  std::vector<SpmPiece::Kind> kinds_;
  float unknown_score_ = 0;
  DoubleArray trie_;
  std::vector<TokenId> bytes_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_SENTENCEPIECE_H_
