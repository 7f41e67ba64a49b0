#include "decode/draft.h"

#include <utility>

#include <fmt/format.h>

namespace nunspark {

Result<TreeShape> TreeShape::Create(std::vector<int32_t> branching) {
  if (branching.empty()) return InvalidArgumentError("a tree of drafts needs at least one level, such as 4,2,2,1");
  int64_t nodes = 0, level = 1;
  for (const int32_t children : branching) {
    if (children < 1) {
      return InvalidArgumentError(
          fmt::format("every level of a tree of drafts has at least 1 child per node, found {}", children));
    }
    if (children > kMostChildren) {
      return InvalidArgumentError(
          fmt::format("a node of a tree of drafts may have {} children, found {}", kMostChildren, children));
    }
    level *= children;
    nodes += level;
    if (nodes > kMostNodes) {
      return InvalidArgumentError(fmt::format("a tree of drafts may have {} nodes, found more", kMostNodes));
    }
  }
  return TreeShape(std::move(branching));
}

int32_t TreeShape::nodes() const {
  int32_t nodes = 0, level = 1;
  for (const int32_t children : branching_) nodes += level *= children;
  return nodes;
}

int32_t TreeShape::paths() const {
  int32_t paths = 1;
  for (const int32_t children : branching_) paths *= children;
  return paths;
}

}  // namespace nunspark
