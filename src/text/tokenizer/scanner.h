// Hand-written splitters for the patterns that the supported families use.
//
// A pattern is recognised by its exact string; everything else goes to Oniguruma (regex.h), and a test runs both on
// random strings. Scanners are pure functions.
#ifndef NUNSPARK_TEXT_TOKENIZER_SCANNER_H_
#define NUNSPARK_TEXT_TOKENIZER_SCANNER_H_

#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/span.h"

namespace nunspark::text {

// Appends the non-overlapping matches inside text[piece], from left to right. The ends of the piece are the ends of
// the text for the pattern. REQUIRES: text[piece] is valid UTF-8.
using Scanner = void (*)(std::string_view text, Span piece, std::vector<Span>& matches);

// The scanner of `pattern`, nullptr when there is none.
Scanner FindScanner(std::string_view pattern);

// The pattern of the ByteLevel step (GPT-2's).
Scanner Gpt2Scanner();

// Every pattern that has a scanner, for tests.
std::span<const std::string_view> ScannerPatterns();

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_SCANNER_H_
