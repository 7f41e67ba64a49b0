// Token texts by id and ids by text.
//
// Built once, then read by many threads. All texts lie in one block of memory.
#ifndef NUNSPARK_TEXT_TOKENIZER_VOCABULARY_H_
#define NUNSPARK_TEXT_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

inline constexpr TokenId kNoToken = -1;

// Ids of a vocabulary are below this, so that a pair of ids and a rank fit one word of the merge table.
inline constexpr TokenId kVocabIdMax = (1 << 21) - 2;

namespace internal {
inline uint64_t Load64(const char* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}
inline uint64_t Load32(const char* data) {
  uint32_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}
inline uint64_t Mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
}  // namespace internal

// A hash for short strings; not stable between builds.
inline uint64_t HashBytes(std::string_view text) {
  using internal::Load32;
  using internal::Load64;
  using internal::Mix;
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15, kSecond = 0xD6E8FEB86659FD93;
  const char* data = text.data();
  size_t size = text.size();
  uint64_t state = kFirst ^ size;
  while (size > 16) {
    state = Mix(Load64(data) ^ kSecond, Load64(data + 8) ^ state);
    data += 16;
    size -= 16;
  }
  uint64_t low = 0;
  uint64_t high = 0;
  if (size >= 8) {
    low = Load64(data);
    high = Load64(data + size - 8);
  } else if (size >= 4) {
    low = Load32(data);
    high = Load32(data + size - 4);
  } else if (size > 0) {
    low = static_cast<uint8_t>(data[0]) | static_cast<uint64_t>(static_cast<uint8_t>(data[size / 2])) << 8 |
          static_cast<uint64_t>(static_cast<uint8_t>(data[size - 1])) << 16;
  }
  return Mix(Mix(low ^ kSecond, high ^ state), kFirst);
}

class Vocabulary {
 public:
  // Room for that many tokens and bytes of text; only a hint.
  void Reserve(size_t token_count, size_t text_bytes);

  // Adds a token. A text that is there already takes the new id; an id that is there already keeps its first text for
  // look-ups by id. REQUIRES: 0 <= id <= kVocabIdMax.
  void Insert(std::string_view text, TokenId id);

  TokenId Find(std::string_view text) const { return Find(text, HashBytes(text)); }
  // `hash` is HashBytes(text).
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
