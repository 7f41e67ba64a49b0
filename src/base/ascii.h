// ASCII-only string helpers, independent of the locale.
#ifndef NUNSPARK_BASE_ASCII_H_
#define NUNSPARK_BASE_ASCII_H_

#include <string>
#include <string_view>

namespace nunspark {

inline bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string_view AsciiTrim(std::string_view text) {
  while (!text.empty() && IsAsciiSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsAsciiSpace(text.back())) text.remove_suffix(1);
  return text;
}

inline std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_ASCII_H_
