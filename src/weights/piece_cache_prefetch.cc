// What the piece cache reads before it is asked for: announced experts and the next cores.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "weights/expert_trace.h"
#include "weights/piece_cache_impl.h"

namespace nunspark {
namespace {

// Of the warm start at once: what is on its way when a pass begins delays its first reads by a few ms at most.
constexpr int32_t kWarmReads = 4;

// What several sequences wanted so many passes ago counts half: docs/decisions/0024.
constexpr double kHalfLifePasses = 1;

}  // namespace

void PieceCacheImpl::Announce(const RoutedExperts& routed) {
  if (options_.trace != nullptr) options_.trace->Add(routed, pass_);
  Kick kick = Kick::kNobody;
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
      piece.use = ++uses_;
      ++piece.uses;
      piece.wanted = WantedNow(routed.pieces[i]) + (routed.row_counts.empty() ? 1 : routed.row_counts[i]);
      piece.wanted_in = pass_number_;
      announced_.push_back(routed.pieces[i]);
      SettleExpert(routed.pieces[i]);
      if (piece.state == State::kFilling && !std::exchange(piece.demanded, true)) {
        driver_->Promote(routed.pieces[i]);
        kick_ = true;
      }
    }
    WithdrawPredictions(routed.layer);
    if (pass_.rows > 1) ApplyShare(routed.layer);
    if (pass_.rows > 1) {
      fired_[static_cast<size_t>(routed.layer)].assign(routed.pieces.begin(), routed.pieces.end());
      fired_next_ = 0;
      fired_layer_ = routed.layer + 1;
      fired_end_ = temporal_.on() ? fired_layer_ + options_.warm_window : 0;
    }
    PumpAnnounced();
    kick = TakeKick();
  }
  Tell(kick);
}

// Of what the layer has in memory or is about to read, its share may stay. The rest is replaced first, what is not
// needed any more at once, what the pass needs after its use. Of one sequence stays what was used last. The rows of
// several come at the same time: of them stays what most of them wanted lately.
void PieceCacheImpl::ApplyShare(int32_t layer) {
  ranked_.clear();
  const bool several = pass_.sequences > 1;
  const PieceId first = layout_.first_expert[static_cast<size_t>(layer)];
  for (PieceId id = first; id < first + layout_.hparams.experts; ++id) {
    const Piece& piece = At(id);
    const bool idle = piece.state == State::kResident && piece.leases == 0 && piece.waiters == 0;
    if (!idle && !piece.announced) continue;
    if (piece.prefetched && !piece.announced) {
      ExpireStaged(id);
    } else {
      ranked_.push_back({.wanted = several ? WantedNow(id) : 0, .used_at = piece.used_at, .id = id});
    }
  }
  std::sort(ranked_.begin(), ranked_.end());
  const size_t stay = std::min(ranked_.size(), static_cast<size_t>(share_[static_cast<size_t>(layer)]));
  for (size_t i = 0; i < ranked_.size() - stay; ++i) {
    Piece& piece = At(ranked_[i].id);
    if (piece.announced) {
      piece.passes = true;
    } else {
      experts_.SetEvictable(piece.slot, SlotList::kPassed, piece.use);
    }
    // After the pass, too, it is the first to go.
    if (several) piece.used_at = 0;
  }
}

double PieceCacheImpl::WantedNow(PieceId id) const {
  const Piece& piece = At(id);
  return piece.wanted * std::exp2(static_cast<double>(piece.wanted_in - pass_number_) / kHalfLifePasses);
}

// Starts reads of announced experts in their order, as far as there are slots, and then of expected ones.
void PieceCacheImpl::PumpAnnounced() {
  if (starved_ > 0) return;
  for (; next_announced_ < announced_.size(); ++next_announced_) {
    const PieceId id = announced_[next_announced_];
    if (!At(id).announced || At(id).state != State::kAbsent) continue;
    if (!StartRead(id, Reason::kWanted, ReachOf(id))) return;
  }
  PumpFired();
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

int32_t PieceCacheImpl::PredictionsWanted() {
  const std::lock_guard lock(mutex_);
  const bool all_held = experts_held_ == experts_total_;
  return pass_.rows == 1 && staging_max_ > 0 && !all_held && lookahead_.on() ? options_.lookahead_top : 0;
}

Lease PieceCacheImpl::Peek(PieceId core) {
  const std::lock_guard lock(mutex_);
  Piece& piece = At(core);
  if (piece.state != State::kResident) {
    ++stats_.lookahead_skipped;
    return Lease();
  }
  ++piece.leases;
  return Lease(this, core, piece.base, index_.piece(core).part_offsets.data());
}

void PieceCacheImpl::Predict(int32_t /*layer*/, std::span<const PieceId> pieces) {
  Kick kick = Kick::kNobody;
  {
    const std::lock_guard lock(mutex_);
    for (const PieceId piece : pieces) {
      const PieceId id = Degraded(piece);
      if (At(id).state == State::kAbsent && !Stage(id, SlotList::kKept)) break;
    }
    kick = TakeKick();
  }
  if (kick == Kick::kCaller) driver_->KickAndDrive(ReadDriver::Prefetches::kFew);
  if (kick == Kick::kThread) driver_->Kick();
}

// The experts that earlier runs used most, a few at a time, into slots that are free. They count as used before any
// that this run has used, the first as the last of them.
void PieceCacheImpl::PumpWarmStart() {
  if (closing_ || in_pass_ || starved_ > 0) return;
  while (warm_next_ < warm_start_.size() && warm_reading_ < kWarmReads && experts_.has_free()) {
    const PieceId id = warm_start_[warm_next_++];
    Piece& piece = At(id);
    CHECK(piece.home == Home::kExpert);
    if (piece.state != State::kAbsent || !StartRead(id, Reason::kWarmStart, SlotList::kPassed)) continue;
    piece.warm = Warm::kReading;
    piece.passes = false;
    piece.use = piece.used_at = -static_cast<int64_t>(warm_next_);
    ++warm_reading_;
    ++stats_.warm_start.issued;
    stats_.warm_start.issued_bytes += index_.piece(id).read_bytes;
  }
}

// The next layers' experts of the last pass, as slots that nobody keeps become free.
void PieceCacheImpl::PumpFired() {
  for (; fired_layer_ < std::min(fired_end_, static_cast<int32_t>(fired_.size())); ++fired_layer_, fired_next_ = 0) {
    const std::vector<PieceId>& fired = fired_[static_cast<size_t>(fired_layer_)];
    for (; fired_next_ < fired.size(); ++fired_next_) {
      const PieceId id = fired[fired_next_];
      if (At(id).state == State::kAbsent && !Stage(id, SlotList::kPassed)) return;
    }
  }
}

// Begins to read an expert that may be wanted. False when there is no room.
bool PieceCacheImpl::Stage(PieceId id, SlotList reach) {
  if (closing_ || starved_ > 0 || staging_max_ == 0) return false;
  if (staged_ >= staging_max_) {
    // In a pass of several rows the oldest is wanted first.
    if (reach == SlotList::kPassed) return false;
    const PieceId oldest = experts_.Oldest(SlotList::kStaged);
    if (oldest < 0) return false;
    ExpireStaged(oldest);
  }
  if (!StartRead(id, Reason::kPredicted, reach)) return false;
  ++staged_;
  At(id).staged_in = pass_number_;
  At(id).use = ++uses_;
  At(id).passes = false;
  predicted_.push_back(id);
  return true;
}

// Used, evicted or expired.
void PieceCacheImpl::Unstage(PieceId id) {
  At(id).prefetched = false;
  if (At(id).home == Home::kExpert) --staged_;
}

// A prediction that has not come true stays in memory until the slot is wanted, but no longer counts as one.
void PieceCacheImpl::ExpireStaged(PieceId id) {
  CountUnused(id);
  Unstage(id);
  At(id).passes = true;
  At(id).used_at = 0;
  SettleExpert(id);
}

// The layer's routing is known: what it did not choose need not be read any further.
void PieceCacheImpl::WithdrawPredictions(int32_t layer) {
  size_t kept = 0;
  for (const PieceId id : predicted_) {
    Piece& piece = At(id);
    if (piece.state != State::kFilling || !piece.prefetched || piece.announced) continue;
    if (pass_.rows > 1 && LayoutOf(id).layer > layer) {
      predicted_[kept++] = id;
    } else if (driver_->Cancel(id)) {
      CountRead(id, driver_->BytesOf(id));
      ReleaseSlot(id);
    } else {
      piece.withdrawn = true;
    }
  }
  predicted_.resize(kept);
}

// For benchmarks: some predictions are replaced, always the same ones, by an expert far from it in the layer.
PieceId PieceCacheImpl::Degraded(PieceId id) const {
  if (options_.prediction_recall >= 1) return id;
  uint64_t mixed = (static_cast<uint64_t>(id) << 32 | static_cast<uint32_t>(pass_number_)) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
  if (static_cast<double>(mixed >> 40) < options_.prediction_recall * static_cast<double>(1 << 24)) return id;
  const PieceId first = layout_.first_expert[static_cast<size_t>(LayoutOf(id).layer)];
  const auto experts = static_cast<PieceId>(layout_.hparams.experts);
  return first + (id - first + 1 + static_cast<PieceId>(mixed % 7)) % experts;
}

// The next cores that are not in memory, in the order in which layers will want them.
void PieceCacheImpl::PrefetchCores() {
  if (!options_.prefetch || starved_ > 0) return;
  const auto layers = static_cast<int32_t>(layout_.core.size());
  int32_t ahead = 0;
  for (int32_t step = 1; step < layers && ahead < options_.warm_window; ++step) {
    const PieceId id = layout_.core[static_cast<size_t>((current_layer_ + step) % layers)];
    if (At(id).state == State::kResident) continue;
    if (At(id).state == State::kAbsent && !StartRead(id, Reason::kPredicted, SlotList::kKept)) return;
    ++ahead;
  }
}

}  // namespace nunspark
