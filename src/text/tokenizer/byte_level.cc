#include "text/tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace nunspark::text {
namespace {

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr uint32_t kAlphabetEnd = 0x100 + 68;  // 68 bytes do not stand for themselves

struct Tables {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};

  constexpr Tables() {
    for (auto& value : byte) value = -1;
    uint16_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      character[b] = StandsForItself(b) ? static_cast<uint16_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Tables kTables;

}  // namespace

uint32_t ByteLevelCharacter(uint8_t byte) { return kTables.character[byte]; }

void AppendByteLevel(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) AppendUtf8(kTables.character[static_cast<uint8_t>(byte)], out);
}

bool AppendByteLevelDecoded(std::string_view visible, std::string& out) {
  const size_t old_size = out.size();
  for (size_t at = 0; at < visible.size();) {
    const Utf8Char c = DecodeUtf8(visible, at);
    if (!c.valid || c.code_point >= kAlphabetEnd || kTables.byte[c.code_point] < 0) {
      out.resize(old_size);
      return false;
    }
    out += static_cast<char>(kTables.byte[c.code_point]);
    at += c.bytes;
  }
  return true;
}

}  // namespace nunspark::text
