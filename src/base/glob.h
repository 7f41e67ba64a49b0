// Patterns as a shell has them.
#ifndef NUNSPARK_BASE_GLOB_H_
#define NUNSPARK_BASE_GLOB_H_

#include <cstddef>
#include <string_view>

namespace nunspark {

// Whether the whole text matches: '*' stands for any characters, '?' for one; '/' and '.' are nothing special.
// Goes back to the last star only: an earlier one can match no more than that.
inline bool GlobMatches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_GLOB_H_
