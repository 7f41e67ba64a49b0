// Token texts by id and ids by text.
//
// Built once, then read by many threads. All texts lie in one block of memory.
#ifndef NUNSPARK_TEXT_TOKENIZER_VOCABULARY_H_
#define NUNSPARK_TEXT_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_hash.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

inline constexpr TokenId kNoToken = -1;

// Ids of a vocabulary are below this, so that a pair of ids and a rank fit one word of the merge table.
inline constexpr TokenId kVocabIdMax = (1 << 21) - 2;

class Vocabulary {
 public:
  // Room for that many tokens and bytes of text; only a hint.
  void Reserve(size_t token_count, size_t text_bytes);

  // Adds a token. A text that is there already takes the new id; an id that is there already keeps its first text for
  // look-ups by id. REQUIRES: 0 <= id <= kVocabIdMax.
  void Insert(std::string_view text, TokenId id);

  TokenId Find(std::string_view text) const { return Find(text, HashText(text)); }
  // `hash` is HashText(text).
  TokenId Find(std::string_view text, uint64_t hash) const;
  // Starts to fetch what a look-up of that hash reads first. Looking up many texts waits mostly for memory.
  void Prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  // The text of `id`; empty for ids that are not there.
  std::string_view Text(TokenId id) const;
  bool Contains(TokenId id) const;

  // Number of different texts.
  size_t size() const { return size_; }
  // One more than the largest id.
  TokenId id_end() const { return static_cast<TokenId>(texts_.size()); }
  // Releases what was reserved in excess.
  void ShrinkToFit();
  int64_t memory_bytes() const;

 private:
  struct Entry {
    uint32_t begin = 0;
    uint32_t bytes = kAbsent;
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;
  // A slot holds where its text is; `tag` (upper half of the hash) avoids most comparisons.
  struct Slot {
    uint32_t tag = 0;
    uint32_t entry = kAbsent;  // index into by_text_
  };
  struct Keyed {
    uint32_t begin;
    uint32_t bytes;
    TokenId id;
  };

  void Grow(size_t slot_count);

  std::string arena_;
  std::vector<Entry> texts_;    // by id
  std::vector<Keyed> by_text_;  // in order of insertion
  std::vector<Slot> slots_;     // a power of two
  size_t size_ = 0;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_VOCABULARY_H_
