// ExpertSlots: which expert lies in which slot, and which slot to take next. O(1), allocates nothing after creation.
//
// A slot is free, in use, or evictable (its expert may be replaced). Evictable slots are in one of the lists below,
// each ordered by their use; the oldest of a list is taken first. Not thread-safe: the cache's lock guards it.
#ifndef NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_
#define NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "models/weight_source.h"

namespace nunspark {

// Why a slot may be replaced, in the order in which they are.
enum class SlotList : uint8_t {
  kPassed,  // used by rows of a prompt that later rows have outdated
  kKept,    // least recently used first
  kStaged,  // predicted and not yet used
  kNone,    // free or in use
};

class ExpertSlots {
 public:
  explicit ExpertSlots(int32_t count) : slots_(static_cast<size_t>(count)) {
    free_.reserve(slots_.size());
    sorted_.reserve(slots_.size());
    for (int32_t slot = count - 1; slot >= 0; --slot) free_.push_back(slot);
  }

  struct Taken {
    int32_t slot = -1;     // -1: there is none
    PieceId evicted = -1;  // what it held, -1 when it was free
  };
  // A slot for `piece`, in use from now on: a free one, else the oldest of the lists up to and including `last`.
  Taken Take(PieceId piece, SlotList last) {
    Taken taken;
    if (!free_.empty()) {
      taken.slot = free_.back();
      free_.pop_back();
    }
    for (int list = 0; taken.slot < 0 && list <= static_cast<int>(last) && list < kLists; ++list) {
      if (lists_[list].oldest < 0) continue;
      taken.slot = lists_[list].oldest;
      taken.evicted = At(taken.slot).piece;
      SetInUse(taken.slot);
    }
    if (taken.slot >= 0) At(taken.slot).piece = piece;
    return taken;
  }

  bool has_free() const { return !free_.empty(); }

  // Gives a slot in use back, empty.
  void Free(int32_t slot) {
    CHECK(At(slot).list == SlotList::kNone);
    At(slot).piece = -1;
    free_.push_back(slot);
  }

  // Into `list`, at its new end or before the slots there whose `use` is larger: experts that were chosen together are
  // given back in the order in which they arrived, and what a later token finds in memory must not depend on that. No
  // effect when it is in that list already.
  void SetEvictable(int32_t slot, SlotList list, int64_t use) {
    if (At(slot).list == list) return;
    SetInUse(slot);
    At(slot).use = use;
    int32_t older = ListOf(list).newest;
    while (older >= 0 && At(older).use > use) older = At(older).older;
    Insert(slot, list, older);
  }
  void SetInUse(int32_t slot) {
    Slot& removed = At(slot);
    if (removed.list == SlotList::kNone) return;
    List& list = ListOf(removed.list);
    (removed.newer >= 0 ? At(removed.newer).older : list.newest) = removed.older;
    (removed.older >= 0 ? At(removed.older).newer : list.oldest) = removed.newer;
    removed.list = SlotList::kNone;
  }

  // What the oldest slot of a list holds, -1 when it is empty.
  PieceId Oldest(SlotList list) const {
    const int32_t slot = lists_[static_cast<size_t>(list)].oldest;
    return slot < 0 ? -1 : slots_[static_cast<size_t>(slot)].piece;
  }

  // Makes one list, kKept, of kPassed and kKept, in the order of used_at(piece), smallest first. O(n log n).
  template <typename UsedAt>
  void SortByUse(const UsedAt& used_at) {
    sorted_.clear();
    for (const SlotList list : {SlotList::kPassed, SlotList::kKept}) {
      for (int32_t slot = ListOf(list).oldest; slot >= 0; slot = At(slot).newer) sorted_.push_back(slot);
      ListOf(list) = List();
    }
    std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) {
      const PieceId left = At(a).piece, right = At(b).piece;
      const auto left_at = used_at(left), right_at = used_at(right);
      return left_at != right_at ? left_at < right_at : left < right;
    });
    for (const int32_t slot : sorted_) Insert(slot, SlotList::kKept, ListOf(SlotList::kKept).newest);
  }

 private:
  static constexpr int kLists = static_cast<int>(SlotList::kNone);
  struct Slot {
    PieceId piece = -1;
    SlotList list = SlotList::kNone;
    int64_t use = 0;
    int32_t newer = -1;
    int32_t older = -1;
  };
  struct List {
    int32_t newest = -1;
    int32_t oldest = -1;
  };

  // Right after `older`, at the old end when that is -1.
  void Insert(int32_t slot, SlotList list, int32_t older) {
    Slot& added = At(slot);
    List& to = ListOf(list);
    added.list = list;
    added.older = older;
    added.newer = older >= 0 ? At(older).newer : to.oldest;
    (added.older >= 0 ? At(added.older).newer : to.oldest) = slot;
    (added.newer >= 0 ? At(added.newer).older : to.newest) = slot;
  }

  Slot& At(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  List& ListOf(SlotList list) { return lists_[static_cast<size_t>(list)]; }

  std::vector<Slot> slots_;
  std::vector<int32_t> free_;
  std::vector<int32_t> sorted_;  // room for SortByUse
  List lists_[kLists];
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_
