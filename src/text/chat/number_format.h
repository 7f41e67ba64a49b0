// Digits of floats in Python's layouts, shared by % and format().
#ifndef NUNSPARK_TEXT_CHAT_NUMBER_FORMAT_H_
#define NUNSPARK_TEXT_CHAT_NUMBER_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark::text::jinja {

// `value` in format `type` (e E f F g G n %, or 0: str with an optional precision). precision -1: the default.
// REQUIRES: value is not negative (NaN allowed).
std::string FloatDigits(double value, char type, int64_t precision, bool alternate);

// repr() text with everything beyond ASCII escaped.
std::string AsciiRepr(std::string_view repr);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_NUMBER_FORMAT_H_
