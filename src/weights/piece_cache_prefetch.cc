// What the piece cache reads before it is asked for: announced experts and the next cores.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "weights/piece_cache_impl.h"

namespace nunspark {

void PieceCacheImpl::Announce(const RoutedExperts& routed) {
  {
    const std::lock_guard lock(mutex_);
    ForgetAnnounced();
    // First all marks, then reads: a read must not evict an expert that this pass still needs.
    for (size_t i = 0; i < routed.pieces.size(); ++i) {
      Piece& piece = At(routed.pieces[i]);
      CHECK(piece.home == Home::kExpert);
      piece.announced = true;
      piece.error_pending = false;
      piece.passes = false;
      piece.used_at = pass_first_row_ + routed.last_rows[i];
      announced_.push_back(routed.pieces[i]);
      SettleExpert(routed.pieces[i]);
    }
    if (pass_.rows > 1) ApplyShare(routed);
    PumpAnnounced();
    kick_ = false;
  }
  driver_->Kick();
}

// Of what the layer has in memory or is about to read, its share may stay: what was used last. The rest is replaced
// first, what is not needed any more at once, what the pass needs after its use.
void PieceCacheImpl::ApplyShare(const RoutedExperts& routed) {
  const auto layer = static_cast<size_t>(routed.layer);
  outdated_.clear();
  const PieceId first = layout_.first_expert[layer];
  for (PieceId id = first; id < first + layout_.hparams.experts; ++id) {
    const Piece& piece = At(id);
    const bool idle = piece.state == State::kResident && piece.leases == 0 && piece.waiters == 0;
    if (idle && !piece.announced) outdated_.push_back(id);
  }
  const size_t held = outdated_.size() + routed.pieces.size();
  size_t over = held - std::min(held, static_cast<size_t>(share_[layer]));
  std::sort(outdated_.begin(), outdated_.end(), [this](PieceId a, PieceId b) { return At(a).used_at < At(b).used_at; });
  for (size_t i = 0; i < outdated_.size() && over > 0; ++i, --over) {
    experts_.SetEvictable(At(outdated_[i]).slot, SlotList::kPassed);
  }
  for (size_t i = 0; i < over; ++i) At(routed.pieces[i]).passes = true;
}

// Starts reads of announced experts in their order, as far as there are slots.
void PieceCacheImpl::PumpAnnounced() {
  if (starved_ > 0) return;
  for (; next_announced_ < announced_.size(); ++next_announced_) {
    const PieceId id = announced_[next_announced_];
    if (!At(id).announced || At(id).state != State::kAbsent) continue;
    if (!StartRead(id, ReadPriority::kDemand, ReachOf(id))) return;
  }
}

// Lets go of announced experts that were not acquired. False when there was none.
bool PieceCacheImpl::ForgetAnnounced() {
  bool some = false;
  for (const PieceId id : announced_) {
    if (!std::exchange(At(id).announced, false)) continue;
    SettleExpert(id);
    some = true;
  }
  announced_.clear();
  next_announced_ = 0;
  return some;
}

// The next cores that are not in memory, in the order in which layers will want them.
void PieceCacheImpl::PrefetchCores() {
  if (!options_.prefetch || starved_ > 0) return;
  const auto layers = static_cast<int32_t>(layout_.core.size());
  int32_t ahead = 0;
  for (int32_t step = 1; step < layers && ahead < options_.warm_window; ++step) {
    const PieceId id = layout_.core[static_cast<size_t>((current_layer_ + step) % layers)];
    if (At(id).state == State::kResident) continue;
    if (At(id).state == State::kAbsent && !StartRead(id, ReadPriority::kPrefetch, SlotList::kKept)) return;
    ++ahead;
  }
}

}  // namespace nunspark
