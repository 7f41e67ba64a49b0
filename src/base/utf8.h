// UTF-8 decoding that never trusts its input.
#ifndef NUNSPARK_BASE_UTF8_H_
#define NUNSPARK_BASE_UTF8_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark {

struct Utf8Char {
  uint32_t code_point;  // U+FFFD for a bad sequence
  uint32_t bytes;       // consumed, at least 1; a bad sequence is one maximal ill-formed sub-part (WHATWG, Unicode 3.9)
  bool valid;
};

// Decodes the character that starts at `offset`. REQUIRES: offset < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t offset);

void AppendUtf8(uint32_t code_point, std::string& out);

bool IsValidUtf8(std::string_view text);

// One U+FFFD for each maximal bad sub-sequence, as Python's errors="replace".
std::string RepairUtf8(std::string_view text);

// Bytes at the end of `text` that begin a character which more bytes could still complete (0 to 3).
size_t IncompleteUtf8Suffix(std::string_view text);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_UTF8_H_
