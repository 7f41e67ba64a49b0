// Decoding of text that is known to be valid UTF-8 (checked once when it enters the tokenizer).
#ifndef NUNSPARK_TEXT_TOKENIZER_VALID_UTF8_H_
#define NUNSPARK_TEXT_TOKENIZER_VALID_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nunspark::text {

// The character at `data` and its length. REQUIRES: the first byte of a valid character.
inline uint32_t DecodeValidUtf8(const char* data, uint32_t& bytes) {
  const auto byte = [data](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(data[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) {
    bytes = 1;
    return first;
  }
  if (first < 0xE0) {
    bytes = 2;
    return (first & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (first < 0xF0) {
    bytes = 3;
    return (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  bytes = 4;
  return (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

// Length of the character that `lead` starts.
inline uint32_t ValidUtf8Length(char lead) {
  const uint8_t first = static_cast<uint8_t>(lead);
  return first < 0x80 ? 1u : first < 0xE0 ? 2u : first < 0xF0 ? 3u : 4u;
}

// Whether `byte` continues a character (and so no character starts there).
inline bool IsUtf8Continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_VALID_UTF8_H_
