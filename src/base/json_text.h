// Small pieces of JSON text, for those who read or write it without a tree.
#ifndef NUNSPARK_BASE_JSON_TEXT_H_
#define NUNSPARK_BASE_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace nunspark {

// `c`, a byte of a text in UTF-8, as it stands inside a JSON string.
void AppendJsonEscaped(char c, std::string& out);

// Whether all of `text` is a number as JSON writes it.
bool IsJsonNumber(std::string_view text);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_JSON_TEXT_H_
