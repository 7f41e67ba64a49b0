// The reversible mapping of bytes to visible characters that byte-level vocabularies are written in (GPT-2's).
#ifndef NUNSPARK_TEXT_TOKENIZER_BYTE_LEVEL_H_
#define NUNSPARK_TEXT_TOKENIZER_BYTE_LEVEL_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark::text {

// The character that stands for `byte`.
uint32_t ByteLevelCharacter(uint8_t byte);

// Appends the visible form of every byte.
void AppendByteLevel(std::string_view bytes, std::string& out);

// Appends the bytes that `visible` stands for. False, and nothing appended, when a character stands for none.
bool AppendByteLevelDecoded(std::string_view visible, std::string& out);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_BYTE_LEVEL_H_
