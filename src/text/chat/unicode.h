// Characters as Python's str sees them: classes, case mappings, positions by code point.
//
// Text is UTF-8 (lone surrogates as three bytes, as Python allows them in a str). Pure functions.
#ifndef NUNSPARK_TEXT_CHAT_UNICODE_H_
#define NUNSPARK_TEXT_CHAT_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark::text::jinja {

// The character that starts at `offset`, which moves behind it. Surrogates pass; other bad bytes give U+FFFD.
uint32_t NextCodePoint(std::string_view text, size_t* offset);
// The last character before `end`, which moves to its start.
uint32_t PreviousCodePoint(std::string_view text, size_t* end);
// Appends also surrogates.
void AppendCodePoint(uint32_t code_point, std::string& out);
// `text` with U+FFFD for every bad sequence; encoded surrogates stay.
std::string ToValidText(std::string_view text);
// UTF-8 that holds encoded surrogates, which no output may.
bool HasSurrogates(std::string_view text);

// Byte offset of a code point index within [0, length].
size_t ByteOffset(std::string_view text, int64_t code_points);
int64_t CountCharacters(std::string_view text);

bool IsSpace(uint32_t c);
bool IsPrintable(uint32_t c);
bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsDigit(uint32_t c);
bool IsNumeric(uint32_t c);
inline bool IsAlnum(uint32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsLower(uint32_t c);
bool IsUpper(uint32_t c);
bool IsTitle(uint32_t c);
// \w of Python's re.
inline bool IsWord(uint32_t c) { return IsAlnum(c) || c == '_'; }
bool IsIdentifierStart(uint32_t c);
bool IsIdentifierPart(uint32_t c);
// Value of a decimal digit of any script, -1 for others.
int DecimalValue(uint32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

// Without the characters at both, left or right ends for which `drop` says so.
template <typename Drop>
std::string_view StripLeft(std::string_view text, Drop drop) {
  for (size_t next = 0; !text.empty(); text.remove_prefix(next), next = 0) {
    if (!drop(NextCodePoint(text, &next))) break;
  }
  return text;
}
template <typename Drop>
std::string_view StripRight(std::string_view text, Drop drop) {
  while (!text.empty()) {
    size_t end = text.size();
    if (!drop(PreviousCodePoint(text, &end))) break;
    text = text.substr(0, end);
  }
  return text;
}

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_UNICODE_H_
