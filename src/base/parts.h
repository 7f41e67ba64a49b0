// Parts of texts: what stands between separators, and names at the end of paths.
#ifndef NUNSPARK_BASE_PARTS_H_
#define NUNSPARK_BASE_PARTS_H_

#include <string_view>
#include <vector>

namespace nunspark {

// "a,,b" -> "a", "", "b". One part more than there are separators; they borrow `text`.
inline std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

// "/a/b//" -> "/a/b"; "/" stays.
inline std::string_view WithoutEndSlashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

// "/a/b/" -> "b".
inline std::string_view LastPathPart(std::string_view path) {
  path = WithoutEndSlashes(path);
  return path.substr(path.rfind('/') + 1);
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_PARTS_H_
