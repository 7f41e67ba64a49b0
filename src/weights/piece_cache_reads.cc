// Slots and reads of the piece cache.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "weights/layout_helpers.h"
#include "weights/piece_cache_impl.h"

namespace nunspark {

// Whether a read of one of `wanted` is on its way after this; else no slot can be had at the moment.
bool PieceCacheImpl::StartWanted(std::span<const PieceId> wanted) {
  if (StartSome(wanted)) return true;
  // Nothing passes through: one of the slots that others keep has to do.
  for (const PieceId id : wanted) {
    if (At(id).state == State::kAbsent && StartRead(id, Reason::kWanted, SlotList::kStaged)) return true;
  }
  // Announced experts that nobody came for (a pass that ended early) must not hold the slots for ever.
  return ForgetAnnounced() && StartSome(wanted);
}

bool PieceCacheImpl::StartSome(std::span<const PieceId> wanted) {
  bool some = false;
  for (const PieceId id : wanted) {
    Piece& piece = At(id);
    if (piece.state == State::kFilling) {
      if (!std::exchange(piece.demanded, true)) driver_->Promote(id);
      kick_ = true;
      some = true;
    } else if (piece.state == State::kAbsent) {
      some = StartRead(id, Reason::kWanted, ReachOf(id)) || some;
    }
  }
  return some;
}

// Which slots the read of an expert may take: in a pass of several rows, once its layer has its share, only those
// through which experts pass.
SlotList PieceCacheImpl::ReachOf(PieceId id) const {
  const Piece& piece = At(id);
  if (piece.home != Home::kExpert || !piece.announced || pass_.rows == 1) return SlotList::kStaged;
  const auto layer = static_cast<size_t>(LayoutOf(id).layer);
  return slots_held_[layer] < share_[layer] + window_ ? SlotList::kStaged : SlotList::kPassed;
}

// False when no slot can be had.
bool PieceCacheImpl::StartRead(PieceId id, Reason reason, SlotList reach) {
  Piece& piece = At(id);
  const PieceExtents& extents = index_.piece(id);
  if (piece.home == Home::kRing) {
    const int32_t slot = PickRingSlot(id, reason);
    if (slot < 0) return false;
    PieceId& held = ring_[static_cast<size_t>(slot)];
    if (held >= 0) Evict(held);
    held = id;
    piece.slot = slot;
    piece.base = ring_base_ + slot * plan_.core_slot_bytes;
  } else if (piece.home == Home::kExpert) {
    const ExpertSlots::Taken taken = experts_.Take(id, reach);
    if (taken.slot < 0) return false;
    if (taken.evicted >= 0) Evict(taken.evicted);
    piece.slot = taken.slot;
    piece.base = expert_base_ + taken.slot * plan_.expert_slot_bytes;
    ++slots_held_[static_cast<size_t>(LayoutOf(id).layer)];
    ++experts_held_;
  }
  piece.state = State::kFilling;
  piece.first_arrived = false;
  piece.withdrawn = false;
  piece.prefetched = reason == Reason::kPredicted;
  piece.demanded = reason == Reason::kWanted;
  if (piece.prefetched) {
    CountPrefetch(id, &PrefetchStats::issued, &PrefetchStats::issued_bytes, &LayerStats::prefetch_issued);
  }
  if (InBudget(id)) AddResident(id, extents.slot_bytes);
  const ReadPriority priority = reason == Reason::kWanted ? ReadPriority::kDemand : ReadPriority::kPrefetch;
  piece.read = driver_->Start(id, extents.extents, extents.first_extents, piece.base, priority);
  kick_ = true;
  return true;
}

void PieceCacheImpl::OnReport(const ReadDriver::Report& report) {
  if (report.job >= index_.size()) {
    RowTable* table = &tables_.back();
    while (report.job < table->first_job) --table;
    table->rows->Finished(report.job, report.status);
    return;
  }
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;  // nobody is there to want anything, and the driver takes no more
    const PieceId id = report.job;
    Piece& piece = At(id);
    if (report.event == ReadDriver::Event::kReturned) {
      Returned(id, report.slot);
    } else if (piece.state != State::kFilling || piece.read != report.start) {
      // Abandoned or cancelled between the report's making and now.
      CHECK(report.event == ReadDriver::Event::kFirst);
      return;
    } else if (report.event == ReadDriver::Event::kFirst) {
      piece.first_arrived = true;
    } else {
      CountRead(id, report.bytes);
      if (report.status.ok()) {
        piece.state = State::kResident;
        if (piece.warm == Warm::kReading) {
          --warm_reading_;
          piece.warm = Warm::kUnused;
        }
        SettleExpert(id);
      } else {
        Fail(id, report.status);
      }
    }
    PumpAnnounced();
    PumpWarmStart();
    kick_ = false;  // whoever drives looks at what is queued next
    wake = sleepers_ > 0;
  }
  if (wake) changed_.Notify();
}

// The system has done with the slot of an unanswered read.
void PieceCacheImpl::Returned(PieceId id, const uint8_t* slot) {
  --stats_.quarantined_slots;
  Piece& piece = At(id);
  if (piece.home == Home::kOwn) {
    piece.state = State::kAbsent;
  } else if (piece.state == State::kBroken && piece.base == slot) {
    piece.slot_hung = false;
  } else if (piece.home == Home::kRing) {
    ring_[static_cast<size_t>((slot - ring_base_) / plan_.core_slot_bytes)] = kEmptySlot;
  } else {
    experts_.Free(static_cast<int32_t>((slot - expert_base_) / plan_.expert_slot_bytes));
  }
}

// Fails a read that the drive does not answer. Its slot is out of use until it does.
void PieceCacheImpl::Quarantine(PieceId id) {
  if (!driver_->Abandon(id)) return;
  ++stats_.quarantined_slots;
  ++stats_.read_timeouts;
  Piece& piece = At(id);
  piece.slot_hung = true;
  piece.demanded = true;
  const Extent& extent = index_.piece(id).extents.front();
  Fail(id,
       IoError(fmt::format("read of {} bytes at {} in {} has not returned for {:.3g} s", index_.piece(id).read_bytes,
                           extent.file_offset, index_.paths()[static_cast<size_t>(extent.file)],
                           static_cast<double>(options_.read_timeout.count()) / 1e3)));
}

void PieceCacheImpl::Fail(PieceId id, const Status& status) {
  Piece& piece = At(id);
  piece.announced = false;
  if (piece.warm == Warm::kReading) --warm_reading_;
  const bool ahead = piece.prefetched || std::exchange(piece.warm, Warm::kNo) == Warm::kReading;
  // A prefetch fails in silence, also when somebody has joined it: that thread asks again, and the error it then gets
  // is that of its own read. So whether a bad prefetch was still running when its piece was wanted makes no difference.
  // One that is leased in part, or that nobody answers, cannot be asked for again.
  if (!ahead || piece.leases > 0 || piece.slot_hung) {
    piece.error = status.WithContext(PieceName(LayoutOf(id)));
    piece.failed_at = ++failures_;
    piece.error_pending = piece.waiters == 0 && piece.leases == 0;
  }
  if (piece.leases > 0) {
    piece.state = State::kBroken;
  } else {
    ReleaseSlot(id);
  }
}

// After a failed read.
void PieceCacheImpl::ReleaseSlot(PieceId id) {
  Piece& piece = At(id);
  const bool hung = std::exchange(piece.slot_hung, false);
  if (piece.home == Home::kRing) ring_[static_cast<size_t>(piece.slot)] = hung ? kHungSlot : kEmptySlot;
  if (piece.home == Home::kExpert && !hung) experts_.Free(piece.slot);
  Evict(id);
  if (piece.home == Home::kOwn && hung) piece.state = State::kHung;
}

// Its slot is no longer its own.
void PieceCacheImpl::Evict(PieceId id) {
  Piece& piece = At(id);
  CHECK(piece.leases == 0);
  if (piece.prefetched) {
    CountUnused(id);
    Unstage(id);
  }
  if (std::exchange(piece.warm, Warm::kNo) == Warm::kUnused) {
    ++stats_.warm_start.wasted;
    stats_.warm_start.wasted_bytes += index_.piece(id).read_bytes;
  }
  piece.state = State::kAbsent;
  piece.demanded = false;
  if (piece.home == Home::kExpert) {
    --slots_held_[static_cast<size_t>(LayoutOf(id).layer)];
    --experts_held_;
  }
  piece.slot = -1;
  if (piece.home != Home::kOwn) piece.base = nullptr;
  if (InBudget(id)) AddResident(id, -index_.piece(id).slot_bytes);
}

// Keeps the list of evictable slots true after any change to an expert.
void PieceCacheImpl::SettleExpert(PieceId id) {
  const Piece& piece = At(id);
  if (piece.home != Home::kExpert || piece.state != State::kResident) return;
  if (piece.leases == 0 && piece.waiters == 0 && !piece.announced) {
    const SlotList list = piece.prefetched ? SlotList::kStaged : piece.passes ? SlotList::kPassed : SlotList::kKept;
    experts_.SetEvictable(piece.slot, list, piece.use);
  } else {
    experts_.SetInUse(piece.slot);
  }
}

// The slot whose core is needed last, counted from the layer that asks. Never one that is leased, waited for or being
// filled; a prefetch also leaves alone what is needed sooner than itself. -1 when there is none.
int32_t PieceCacheImpl::PickRingSlot(PieceId id, Reason reason) const {
  const bool prefetch = reason != Reason::kWanted;
  const int32_t from = prefetch ? current_layer_ : LayoutOf(id).layer;
  int32_t best = -1;
  int32_t best_distance = prefetch ? LayersUntil(from, id) : 0;
  for (size_t slot = 0; slot < ring_.size(); ++slot) {
    const PieceId held = ring_[slot];
    if (held == kEmptySlot) return static_cast<int32_t>(slot);
    if (held == kHungSlot) continue;
    const Piece& piece = At(held);
    if (piece.state != State::kResident || piece.leases > 0 || piece.waiters > 0) continue;
    if (const int32_t distance = LayersUntil(from, held); distance > best_distance) {
      best = static_cast<int32_t>(slot);
      best_distance = distance;
    }
  }
  return best;
}

// Layers from `from` until the core is needed next: 1 to the number of layers, since `from` itself has been served.
int32_t PieceCacheImpl::LayersUntil(int32_t from, PieceId id) const {
  const auto layers = static_cast<int32_t>(layout_.core.size());
  return (LayoutOf(id).layer - from - 1 + layers) % layers + 1;
}

// Null for pieces outside the budget.
KindStats* PieceCacheImpl::StatsOf(PieceId id) {
  const PieceLayout& piece = LayoutOf(id);
  if (piece.kind == PieceKind::kExpert) return &stats_.expert;
  if (piece.kind != PieceKind::kCore) return nullptr;
  return layout_.first_expert[static_cast<size_t>(piece.layer)] >= 0 ? &stats_.core : &stats_.dense;
}

// Null for pieces outside the layers.
LayerStats* PieceCacheImpl::LayerStatsOf(PieceId id) {
  const int32_t layer = LayoutOf(id).layer;
  return layer < 0 ? nullptr : &layer_stats_[static_cast<size_t>(layer)];
}

void PieceCacheImpl::CountRead(PieceId id, int64_t bytes) {
  KindStats* const kind = StatsOf(id);
  (kind != nullptr ? kind->bytes_read : stats_.other_bytes_read) += bytes;
  if (kind != nullptr) LayerStatsOf(id)->bytes_read += bytes;
}

void PieceCacheImpl::CountPrefetch(PieceId id, int64_t PrefetchStats::*count, int64_t PrefetchStats::*bytes,
                                   int64_t LayerStats::*layer_count) {
  PrefetchStats& kind = LayoutOf(id).kind == PieceKind::kExpert ? stats_.expert_prefetch : stats_.core_prefetch;
  ++(kind.*count);
  kind.*bytes += index_.piece(id).read_bytes;
  ++(LayerStatsOf(id)->*layer_count);
}

// A prefetch that nobody has used and that will not count as one any more.
void PieceCacheImpl::CountUnused(PieceId id) {
  PrefetchStats& kind = LayoutOf(id).kind == PieceKind::kExpert ? stats_.expert_prefetch : stats_.core_prefetch;
  const int64_t bytes = At(id).state == State::kFilling ? driver_->BytesOf(id) : index_.piece(id).read_bytes;
  if (bytes == 0) {
    ++kind.withdrawn;
    return;
  }
  ++kind.wasted;
  kind.wasted_bytes += bytes;
  ++LayerStatsOf(id)->prefetch_wasted;
}

void PieceCacheImpl::AddResident(PieceId id, int64_t bytes) {
  const bool expert = LayoutOf(id).kind == PieceKind::kExpert;
  int64_t& held = expert ? expert_bytes_ : core_bytes_;
  int64_t& peak = expert ? stats_.expert_peak_bytes : stats_.core_peak_bytes;
  held += bytes;
  peak = std::max(peak, held);
  stats_.resident_bytes += bytes;
  stats_.resident_peak_bytes = std::max(stats_.resident_peak_bytes, stats_.resident_bytes);
  CHECK(stats_.resident_bytes >= 0 && stats_.resident_bytes <= plan_.core_region_bytes + plan_.expert_region_bytes);
}

}  // namespace nunspark
