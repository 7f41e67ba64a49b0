// A trie of byte strings with fast common-prefix search.
#ifndef NUNSPARK_TEXT_TOKENIZER_DOUBLE_ARRAY_H_
#define NUNSPARK_TEXT_TOKENIZER_DOUBLE_ARRAY_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace nunspark::text {

// Immutable after Build. Keys may hold any byte.
class DoubleArray {
 public:
  struct Key {
    std::string_view text;
    int32_t value;  // >= 0
  };

  // `keys` in any order; of equal texts the first counts; empty ones are left out.
  void Build(std::vector<Key> keys);

  bool empty() const { return units_.empty(); }

  // Calls found(bytes, value) for every key that `text` starts with, shortest first. Gives the bytes it looked at.
  template <typename Found>
  size_t FindPrefixes(std::string_view text, Found found) const {
    if (units_.empty()) return 0;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t child = Child(node, static_cast<uint8_t>(text[i]) + 1u);
      if (child == kNone) return i;
      node = child;
      const uint32_t leaf = Child(node, 0);
      if (leaf != kNone) found(i + 1, units_[leaf].base);
    }
    return text.size();
  }

  int64_t memory_bytes() const { return static_cast<int64_t>(units_.capacity() * sizeof(Unit)); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int32_t kFree = -1;

  // The child of node s for code c is base(s) + c, if that unit's check is s. Code 0 is the end of a key and its base
  // the value; code b + 1 stands for byte b.
  struct Unit {
    int32_t base = 0;
    int32_t check = kFree;
  };

  uint32_t Child(uint32_t node, uint32_t code) const {
    const uint32_t at = static_cast<uint32_t>(units_[node].base) + code;
    return at < units_.size() && units_[at].check == static_cast<int32_t>(node) ? at : kNone;
  }

  uint32_t FindBase(std::span<const uint16_t> codes);

  std::vector<Unit> units_;
  uint32_t first_free_ = 1;  // while building
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_DOUBLE_ARRAY_H_
