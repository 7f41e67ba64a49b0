// Byte-pair encoding with the semantics of the Hugging Face `tokenizers` BPE model.
#ifndef NUNSPARK_TEXT_TOKENIZER_BPE_H_
#define NUNSPARK_TEXT_TOKENIZER_BPE_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {

// left + right -> result; low ranks first, the leftmost place of equal ranks. Of equal pairs the last rule counts.
// Rules of one rank have one result.
struct MergeRule {
  TokenId left;
  TokenId right;
  TokenId result;
  uint32_t rank;
};

// Both the number of rules and their ranks are below this.
inline constexpr size_t kMergesMax = (size_t{1} << 22) - 1;

// Formats without merges have them found by cutting each token at each place, which is quadratic in a token's length:
// what the squares of all lengths may add up to. Gemma 3's 262,144 tokens have 27 million.
inline constexpr size_t kCutBytesMax = size_t{1} << 28;

// What one symbol is before any merge.
enum class BpeUnit {
  kCharacter,
  kByte,  // the vocabulary is byte-level; keys are raw bytes
};

struct BpeOptions {
  BpeUnit unit = BpeUnit::kCharacter;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  std::optional<TokenId> unknown;   // id of the unknown token; without one, unknown characters vanish
  bool unknown_is_missing = false;  // the file names one that has no id: unknown characters are an error
  bool fuse_unknown = false;        // neighbouring unknown characters become one token
  bool byte_fallback = false;       // unknown characters become <0xNN> tokens
  bool ignore_merges = false;       // a piece that is a token is that token, whatever the merges say
};

class Bpe final : public Model {
 public:
  // `keys` maps texts (raw bytes for kByte) to ids and must outlive the model.
  // REQUIRES: ids of rules are in [0, kVocabIdMax], ranks below kMergesMax.
  Bpe(const Vocabulary& keys, std::span<const MergeRule> rules, BpeOptions options);

  Status Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                std::vector<TokenId>& ids) const override;

  int64_t memory_bytes() const override;

 private:
  // Rank and result of a pair.
  static constexpr uint32_t kNoRank = UINT32_MAX;
  uint32_t RankOf(uint32_t left, uint32_t right) const;

  void BuildMergeTable(std::span<const MergeRule> rules);
  void BuildJoints(std::span<const MergeRule> rules);

  void EncodePiece(std::string_view text, Span piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  void EncodeChunk(std::string_view text, Span chunk, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  // Appends the ids of text[chunk] found by merging.
  void Merge(std::string_view chunk, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  void FirstSymbols(std::string_view chunk, EncodeScratch& scratch) const;
  void FirstSymbolsWithAffixes(std::string_view chunk, EncodeScratch& scratch) const;
  void AppendUnknown(std::string_view character, EncodeScratch& scratch, bool& unknown_pending) const;
  size_t MergeShort(uint32_t* symbols, uint32_t* ranks, size_t count) const;
  size_t MergeLong(EncodeScratch& scratch) const;
  bool MergesToItself(std::string_view chunk, TokenId id, EncodeScratch& scratch) const;

  const Vocabulary& keys_;
  const BpeOptions options_;
  std::array<TokenId, 256> single_;    // ids of one-byte keys: every byte (kByte) or ASCII (kCharacter)
  std::array<TokenId, 256> fallback_;  // ids of <0xNN>
  std::vector<uint64_t> pairs_;        // open addressing: left << 43 | right << 22 | rank
  int pairs_shift_ = 0;
  std::vector<TokenId> results_;  // by rank

  // Hashed set of the character pairs over which some rule merges. A place between two characters that is not in it is
  // never merged over, so the text can be cut there before merging. Empty when that reasoning does not hold.
  std::vector<uint64_t> joints_;

  // What is known of each token: whether merging its text gives back that one token. Found out on first use; racing
  // threads find the same answer.
  enum class Known : uint8_t { kNothing, kWhole, kParts };
  std::unique_ptr<std::atomic<Known>[]> known_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_BPE_H_
