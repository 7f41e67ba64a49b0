// A hash of short texts. Its key differs from process to process, so that nobody can prepare texts (tokens of a file,
// names in a request) that all fall into one slot of a table. Nothing but the place in a table may depend on it.
#ifndef NUNSPARK_TEXT_TEXT_HASH_H_
#define NUNSPARK_TEXT_TEXT_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace nunspark::text {

// Random, fixed when the program starts. The second one is odd.
extern const uint64_t kHashKey;
extern const uint64_t kHashMultiplier;

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

inline uint64_t HashText(std::string_view text) {
  using internal::Load32;
  using internal::Load64;
  using internal::Mix;
  const char* data = text.data();
  size_t size = text.size();
  uint64_t state = kHashKey ^ size;
  while (size > 16) {
    state = Mix(Load64(data) ^ kHashMultiplier, Load64(data + 8) ^ state);
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
  return Mix(Mix(low ^ kHashMultiplier, high ^ state), 0x9E3779B97F4A7C15);
}

// For the standard library's tables.
struct TextHasher {
  size_t operator()(std::string_view text) const { return static_cast<size_t>(HashText(text)); }
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TEXT_HASH_H_
