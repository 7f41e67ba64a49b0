#include "text/tokenizer/double_array.h"

#include <algorithm>

namespace nunspark::text {
namespace {
constexpr uint32_t kCodes = 257;
constexpr uint32_t kScanMax = 4096;
}  // namespace

void DoubleArray::Build(std::vector<Key> keys) {
  units_.clear();
  first_free_ = 1;
  std::erase_if(keys, [](const Key& key) { return key.text.empty(); });
  if (keys.empty()) return;
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.text < b.text; });
  keys.erase(std::unique(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.text == b.text; }),
             keys.end());
  units_.resize(kCodes);
  units_[0].check = 0;  // the root; no node's child, since bases are at least 1
  // Nodes that wait for their children. An explicit stack: keys may be long.
  struct Task {
    size_t begin;
    size_t end;
    size_t depth;
    uint32_t node;
  };
  std::vector<Task> tasks{{0, keys.size(), 0, 0}};
  std::vector<uint16_t> codes;
  std::vector<Task> children;
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    codes.clear();
    children.clear();
    for (size_t i = task.begin; i < task.end; ++i) {
      const std::string_view text = keys[i].text;
      const uint16_t code =
          text.size() == task.depth ? 0 : static_cast<uint16_t>(static_cast<uint8_t>(text[task.depth]) + 1);
      if (codes.empty() || codes.back() != code) {
        codes.push_back(code);
        children.push_back({i, i, task.depth + 1, 0});
      }
      children.back().end = i + 1;
    }
    const uint32_t base = FindBase(codes);
    units_[task.node].base = static_cast<int32_t>(base);
    for (size_t i = 0; i < codes.size(); ++i) {
      const uint32_t child = base + codes[i];
      units_[child].check = static_cast<int32_t>(task.node);
      if (codes[i] == 0) {
        units_[child].base = keys[children[i].begin].value;
      } else {
        children[i].node = child;
        tasks.push_back(children[i]);
      }
    }
  }
  units_.shrink_to_fit();
}

// The lowest base at which all codes fall on free units; grows the array when there is none.
uint32_t DoubleArray::FindBase(std::span<const uint16_t> codes) {
  const auto is_free = [this](uint32_t at) { return at >= units_.size() || units_[at].check == kFree; };
  while (first_free_ < units_.size() && units_[first_free_].check != kFree) ++first_free_;
  uint32_t tried = 0;
  const uint32_t begin = std::max(first_free_, codes[0] + 1u);
  for (uint32_t at = begin;; ++at) {
    if (!is_free(at)) continue;
    const uint32_t base = at - codes[0];
    if (std::all_of(codes.begin(), codes.end(), [&](uint16_t code) { return is_free(base + code); })) {
      // Gaps that keep failing are given up, or the search would become quadratic.
      if (tried > 64 || at - begin > kScanMax) first_free_ = std::max(first_free_, at > kCodes ? at - kCodes : 1u);
      if (base + kCodes > units_.size())
        units_.resize(std::max<size_t>(base + kCodes, units_.size() + units_.size() / 4));
      return base;
    }
    ++tried;
  }
}

}  // namespace nunspark::text
