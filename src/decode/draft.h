// Draft: tokens that might follow a sequence - a chain, or a tree of alternatives that share their beginnings.
#ifndef NUNSPARK_DECODE_DRAFT_H_
#define NUNSPARK_DECODE_DRAFT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

// Breadth first, below a root that is the sequence's last token. All leaves of a tree are equally deep, and a node's
// children stand together; a chain may end anywhere.
struct Draft {
  std::vector<int32_t> tokens;   // [nodes]
  std::vector<int32_t> parents;  // [nodes] index of a node before it, or -1: the root

  void Clear() {
    tokens.clear();
    parents.clear();
  }
  void Add(int32_t token, int32_t parent) {
    tokens.push_back(token);
    parents.push_back(parent);
  }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
  void Reserve(int64_t nodes) {
    tokens.reserve(static_cast<size_t>(nodes));
    parents.reserve(static_cast<size_t>(nodes));
  }
};

// Children per node, level by level: {4, 2, 2, 1} is a tree of 4 + 8 + 16 + 16 nodes and 16 paths, {1, 1, 1} a chain of
// three. (Tree attention over several candidates: Medusa, arXiv:2401.10774; SpecInfer, arXiv:2305.09781.)
class TreeShape {
 public:
  // Errors: kInvalidArgument for no level, a level below 1 or above kMostChildren, or more than kMostNodes nodes.
  static Result<TreeShape> Create(std::vector<int32_t> branching);
  static TreeShape Chain(int32_t length) { return TreeShape(std::vector<int32_t>(static_cast<size_t>(length), 1)); }

  static constexpr int64_t kMostNodes = 1024;
  static constexpr int32_t kMostChildren = 64;

  std::span<const int32_t> branching() const { return branching_; }
  int32_t depth() const { return static_cast<int32_t>(branching_.size()); }
  int32_t nodes() const;  // the root not counted
  int32_t paths() const;  // leaves
  bool chain() const { return paths() == 1; }

 private:
  explicit TreeShape(std::vector<int32_t> branching) : branching_(std::move(branching)) {}

  std::vector<int32_t> branching_;
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_DRAFT_H_
