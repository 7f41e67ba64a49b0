// The JSON lines of `nunspark tokenize`.
#ifndef NUNSPARK_TEXT_TOKENIZER_TOKENIZE_LINES_H_
#define NUNSPARK_TEXT_TOKENIZER_TOKENIZE_LINES_H_

#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

// Answers one line of input with one line of output, both without their line ends:
//
//   {"text": S} or {"bytes_hex": H}, optional "special": true   ->  {"ids": [...], "tokens": [...]}
//   {"ids": [...]}, optional "skip_special": true               ->  {"text": S}
//   anything else                                               ->  {"error": {"type": T, "message": M}}
//
// T is the name of a StatusCode. Members that no rule names are ignored.
std::string TokenizeLine(const Tokenizer& tokenizer, std::string_view line);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_TOKENIZE_LINES_H_
