// ExpertSlots: which expert lies in which slot, and which slot to take next. O(1), allocates nothing after creation.
//
// A slot is free, in use, or evictable (its expert may be replaced). Evictable slots are ordered by when they became
// so; the oldest is taken first. Not thread-safe: the cache's lock guards it.
#ifndef NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_
#define NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/weight_source.h"

namespace nunspark {

class ExpertSlots {
 public:
  explicit ExpertSlots(int32_t count) : slots_(static_cast<size_t>(count)) {
    free_.reserve(slots_.size());
    for (int32_t slot = count - 1; slot >= 0; --slot) free_.push_back(slot);
  }

  struct Taken {
    int32_t slot = -1;     // -1: none is free or evictable
    PieceId evicted = -1;  // what it held, -1 when it was free
  };
  // A slot for `piece`, in use from now on.
  Taken Take(PieceId piece) {
    Taken taken;
    if (!free_.empty()) {
      taken.slot = free_.back();
      free_.pop_back();
    } else if (oldest_ >= 0) {
      taken.slot = oldest_;
      SetInUse(taken.slot);
      taken.evicted = At(taken.slot).piece;
    }
    if (taken.slot >= 0) At(taken.slot).piece = piece;
    return taken;
  }

  // Gives a slot in use back, empty.
  void Free(int32_t slot) {
    CHECK(!At(slot).evictable);
    At(slot).piece = -1;
    free_.push_back(slot);
  }

  // No effect when it already is.
  void SetEvictable(int32_t slot) {
    Slot& added = At(slot);
    if (std::exchange(added.evictable, true)) return;
    added.older = newest_;
    added.newer = -1;
    (newest_ >= 0 ? At(newest_).newer : oldest_) = slot;
    newest_ = slot;
  }
  void SetInUse(int32_t slot) {
    Slot& removed = At(slot);
    if (!std::exchange(removed.evictable, false)) return;
    (removed.newer >= 0 ? At(removed.newer).older : newest_) = removed.older;
    (removed.older >= 0 ? At(removed.older).newer : oldest_) = removed.newer;
  }

 private:
  struct Slot {
    PieceId piece = -1;
    bool evictable = false;
    int32_t newer = -1;
    int32_t older = -1;
  };

  Slot& At(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Slot> slots_;
  std::vector<int32_t> free_;
  int32_t newest_ = -1;  // ends of the list of evictable slots
  int32_t oldest_ = -1;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EXPERT_SLOTS_H_
