#include "weights/piece_cache.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/mapped_memory.h"
#include "weights/embedding_rows.h"
#include "weights/event_count.h"
#include "weights/expert_slots.h"
#include "weights/layout_helpers.h"
#include "weights/read_driver.h"

namespace nunspark {
namespace {

// Where a piece lies when it is in memory.
enum class Home : uint8_t {
  kOwn,      // memory of its own, for good: norm and head, a tied embedding, pinned cores
  kRing,     // cores that pass through
  kExpert,   // expert slots
  kNowhere,  // an embedding whose rows are read on demand
};

enum class State : uint8_t { kAbsent, kFilling, kResident };

struct Piece {
  Home home = Home::kNowhere;
  State state = State::kAbsent;
  bool announced = false;      // chosen by the router, not yet acquired: stays until then
  bool demanded = false;       // read because it was asked for: its next acquire is a miss
  bool prefetched = false;     // its read began as a prefetch; until the next acquire
  bool error_pending = false;  // `error` has reached nobody yet
  int32_t slot = -1;           // in the ring or among the expert slots
  int32_t leases = 0;
  int32_t waiters = 0;     // threads that wait for it
  uint64_t failed_at = 0;  // number of the last failed read, counted over all pieces
  uint8_t* base = nullptr;
  Status error;
};

class Cache final : public PieceCache {
 public:
  Cache(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan, const PieceCacheOptions& options)
      : layout_(layout),
        index_(index),
        plan_(plan),
        options_(options),
        current_layer_(static_cast<int32_t>(layout.core.size()) - 1),
        pieces_(layout.pieces.size()),
        ring_(static_cast<size_t>(plan.ring_slots), PieceId{-1}),
        experts_(plan.expert_slots) {}
  ~Cache() override;

  Status Open(std::unique_ptr<ReadQueue> queue);

  Result<Lease> Acquire(PieceId piece) override { return Obtain(std::span(&piece, 1)); }
  Result<Lease> AcquireAny(std::span<const PieceId> pieces) override { return Obtain(pieces); }
  Lease AcquireReady(std::span<const PieceId> pieces) override;
  void Announce(int layer, std::span<const PieceId> pieces) override;
  Status ReadRows(PieceId table, std::span<const int32_t> rows, float* out) override;
  CacheStats stats() const override;
  std::string io_description() const override;
  PageUse page_use() const override { return memory_.page_use(); }

 private:
  void Unlease(PieceId id) override;

  // All below REQUIRE mutex_ unless they say otherwise.
  Result<Lease> Obtain(std::span<const PieceId> wanted);  // takes mutex_
  PieceId FirstResident(std::span<const PieceId> wanted) const;
  Status TakeFailure(std::span<const PieceId> wanted, uint64_t failures_before);
  Lease Take(PieceId id);

  bool StartWanted(std::span<const PieceId> wanted);
  bool StartSome(std::span<const PieceId> wanted);
  bool StartRead(PieceId id, ReadPriority priority);
  void OnRead(int32_t job, const Status& status);  // takes mutex_; the I/O thread
  void Fail(PieceId id, const Status& status);
  void Evict(PieceId id);

  void SettleExpert(PieceId id);
  void PumpAnnounced();
  bool ForgetAnnounced();

  void PrefetchCores();
  int32_t PickRingSlot(PieceId id, ReadPriority priority) const;
  int32_t LayersUntil(int32_t from, PieceId id) const;

  Piece& At(PieceId id) { return pieces_[static_cast<size_t>(id)]; }
  const Piece& At(PieceId id) const { return pieces_[static_cast<size_t>(id)]; }
  const PieceLayout& LayoutOf(PieceId id) const { return layout_.pieces[static_cast<size_t>(id)]; }
  bool InBudget(PieceId id) const {
    return LayoutOf(id).kind == PieceKind::kCore || LayoutOf(id).kind == PieceKind::kExpert;
  }
  KindStats* StatsOf(PieceId id);
  void AddResident(int64_t bytes);

  const ModelLayout& layout_;
  const PieceIndex& index_;
  const MemoryPlan plan_;
  const PieceCacheOptions options_;

  mutable std::mutex mutex_;
  EventCount changed_;  // a read has completed or a slot has become free
  bool closing_ = false;
  int32_t sleepers_ = 0;
  int32_t starved_ = 0;  // those of them that wait for a slot: it must not go to a prefetch
  bool kick_ = false;    // reads were queued: the driver wants to know, once the lock is free
  uint64_t failures_ = 0;
  int32_t current_layer_;  // of the core acquired last
  std::vector<Piece> pieces_;
  std::vector<PieceId> ring_;  // -1 = empty
  ExpertSlots experts_;
  std::vector<PieceId> announced_;  // the last announced set
  size_t next_announced_ = 0;       // those before it have had their read started, as far as one was needed
  CacheStats stats_;

  MappedMemory memory_;
  uint8_t* ring_base_ = nullptr;
  uint8_t* expert_base_ = nullptr;
  std::unique_ptr<ReadDriver> driver_;
  // Tables whose rows are read on demand: the embedding unless it is tied, per-layer embeddings.
  struct RowTable {
    PieceId id = -1;
    uint8_t* memory = nullptr;
    int32_t first_job = 0;
    std::unique_ptr<EmbeddingRows> rows;
  };
  std::vector<RowTable> tables_;
};

Cache::~Cache() {
  {
    const std::lock_guard lock(mutex_);
    for (const Piece& piece : pieces_) CHECK(piece.leases == 0);
    closing_ = true;
  }
  driver_.reset();  // waits for what is in flight: it writes into memory_, and OnRead is still called
}

Status Cache::Open(std::unique_ptr<ReadQueue> queue) {
  const bool tied = layout_.hparams.tied;
  ASSIGN_OR_RETURN(memory_, MappedMemory::Create(plan_.norm_head_bytes + plan_.embed_bytes + plan_.core_region_bytes +
                                                     plan_.expert_region_bytes,
                                                 "weights", "try a smaller --budget"));
  uint8_t* next = memory_.data();
  const auto give_own = [&](PieceId id) {
    At(id).home = Home::kOwn;
    At(id).base = std::exchange(next, next + index_.piece(id).slot_bytes);
  };
  give_own(layout_.norm_head);
  uint8_t* const embed_base = next;
  if (tied) give_own(layout_.embed);
  int32_t jobs = index_.size();
  for (const PieceId id : {tied ? PieceId{-1} : layout_.embed, layout_.per_layer_embed}) {
    if (id < 0) continue;
    tables_.push_back({.id = id, .memory = next, .first_job = jobs, .rows = nullptr});
    next += EmbeddingRows::MemoryBytes(LayoutOf(id));
    jobs += EmbeddingRows::JobCount(LayoutOf(id));
  }
  CHECK(next == embed_base + plan_.embed_bytes);
  uint8_t* const cores_base = next;
  for (size_t layer = 0; layer < layout_.core.size(); ++layer) {
    const PieceId core = layout_.core[layer];
    if (layer < static_cast<size_t>(plan_.pinned_cores)) {
      give_own(core);
    } else {
      At(core).home = Home::kRing;
      CHECK(index_.piece(core).slot_bytes <= plan_.core_slot_bytes);
    }
  }
  ring_base_ = next;
  expert_base_ = ring_base_ + plan_.ring_slots * plan_.core_slot_bytes;
  CHECK(expert_base_ == cores_base + plan_.core_region_bytes);
  size_t experts = 0;
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (layout_.pieces[id].kind != PieceKind::kExpert) continue;
    pieces_[id].home = Home::kExpert;
    CHECK(index_.piece(static_cast<PieceId>(id)).slot_bytes <= plan_.expert_slot_bytes);
    ++experts;
  }
  announced_.reserve(experts);

  try {
    driver_ = std::make_unique<ReadDriver>(std::move(queue), jobs,
                                           [this](int32_t job, const Status& status) { OnRead(job, status); });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError(fmt::format("the system refuses a thread for reading: {}", error.what()));
  }
  for (RowTable& table : tables_) {
    table.rows = std::make_unique<EmbeddingRows>(LayoutOf(table.id), table.memory, *driver_, table.first_job);
  }

  ASSIGN_OR_RETURN(const Lease norm_head, Acquire(layout_.norm_head));
  if (tied) {
    ASSIGN_OR_RETURN(const Lease table, Acquire(layout_.embed));
  }
  const std::lock_guard lock(mutex_);
  stats_.stall_us = 0;  // of the forward pass, which has not begun
  return Status();
}

void Cache::Announce(int /*layer*/, std::span<const PieceId> pieces) {
  {
    const std::lock_guard lock(mutex_);
    ForgetAnnounced();
    // First all marks, then reads: a read must not evict an expert that this pass still needs.
    for (const PieceId id : pieces) {
      Piece& piece = At(id);
      CHECK(piece.home == Home::kExpert);
      piece.announced = true;
      piece.error_pending = false;
      announced_.push_back(id);
      SettleExpert(id);
    }
    PumpAnnounced();
    kick_ = false;
  }
  driver_->Kick();
}

Status Cache::ReadRows(PieceId table, std::span<const int32_t> rows, float* out) {
  for (RowTable& known : tables_) {
    if (known.id == table) return known.rows->Read(rows, out);
  }
  DecodeTableRows(layout_, index_, table, At(table).base, rows, out);
  return Status();
}

CacheStats Cache::stats() const {
  const std::lock_guard lock(mutex_);
  CacheStats stats = stats_;
  stats.read_us = driver_->read_us();
  for (const RowTable& table : tables_) {
    stats.other_bytes_read += table.rows->bytes_read();
    stats.stall_us += table.rows->stall_us();
  }
  return stats;
}

std::string Cache::io_description() const {
  const std::string reason = driver_->queue().FallbackReason();
  const std::string what = driver_->queue().Description();
  return reason.empty() ? what : fmt::format("{} ({})", what, reason);
}

// Leases whichever of `wanted` is in memory first.
Result<Lease> Cache::Obtain(std::span<const PieceId> wanted) {
  CHECK(!wanted.empty());
  std::unique_lock lock(mutex_);
  const uint64_t failures_before = failures_;
  while (true) {
    if (const PieceId id = FirstResident(wanted); id >= 0) {
      Lease lease = Take(id);
      const bool kick = std::exchange(kick_, false);
      lock.unlock();
      if (kick) driver_->Kick();
      return lease;
    }
    RETURN_IF_ERROR(TakeFailure(wanted, failures_before));
    const bool starved = !StartWanted(wanted);
    const uint32_t seen = changed_.Now();
    for (const PieceId id : wanted) ++At(id).waiters;
    ++sleepers_;
    starved_ += starved ? 1 : 0;
    const bool kick = std::exchange(kick_, false);
    const auto begin = std::chrono::steady_clock::now();
    lock.unlock();
    if (kick) driver_->Kick();
    changed_.Await(seen);
    lock.lock();
    const auto waited = std::chrono::steady_clock::now() - begin;
    stats_.stall_us += std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
    starved_ -= starved ? 1 : 0;
    --sleepers_;
    for (const PieceId id : wanted) {
      --At(id).waiters;
      SettleExpert(id);
    }
  }
}

Lease Cache::AcquireReady(std::span<const PieceId> pieces) {
  std::unique_lock lock(mutex_);
  const PieceId id = FirstResident(pieces);
  if (id < 0) return Lease();
  Lease lease = Take(id);
  const bool kick = std::exchange(kick_, false);
  lock.unlock();
  if (kick) driver_->Kick();
  return lease;
}

PieceId Cache::FirstResident(std::span<const PieceId> wanted) const {
  for (const PieceId id : wanted) {
    CHECK(id >= 0 && id < index_.size() && At(id).home != Home::kNowhere);
    if (At(id).state == State::kResident) return id;
  }
  return -1;
}

// The error of a read that failed while this caller waited, or that nobody has heard of. The piece is absent: the next
// acquire reads it again.
Status Cache::TakeFailure(std::span<const PieceId> wanted, uint64_t failures_before) {
  for (const PieceId id : wanted) {
    Piece& piece = At(id);
    if (std::exchange(piece.error_pending, false) || piece.failed_at > failures_before) return piece.error;
  }
  return Status();
}

Lease Cache::Take(PieceId id) {
  Piece& piece = At(id);
  ++piece.leases;
  piece.announced = false;
  SettleExpert(id);
  if (KindStats* const kind = StatsOf(id); kind != nullptr) ++(piece.demanded ? kind->misses : kind->hits);
  if (piece.prefetched) ++stats_.prefetch_used;
  piece.demanded = false;
  piece.prefetched = false;
  if (LayoutOf(id).kind == PieceKind::kCore) {
    current_layer_ = LayoutOf(id).layer;
    PrefetchCores();
  }
  return Lease(this, id, piece.base, index_.piece(id).part_offsets.data());
}

void Cache::Unlease(PieceId id) {
  bool kick = false;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    Piece& piece = At(id);
    CHECK(piece.leases > 0);
    if (--piece.leases > 0) return;
    SettleExpert(id);
    if (piece.home == Home::kExpert) PumpAnnounced();
    if (piece.home == Home::kRing) PrefetchCores();
    kick = std::exchange(kick_, false);
    wake = sleepers_ > 0;
  }
  if (kick) driver_->Kick();
  if (wake) changed_.Notify();
}

// Whether a read of one of `wanted` is on its way after this; else no slot can be had at the moment.
bool Cache::StartWanted(std::span<const PieceId> wanted) {
  if (StartSome(wanted)) return true;
  // Announced experts that nobody came for (a pass that ended early) must not hold the slots for ever.
  return ForgetAnnounced() && StartSome(wanted);
}

bool Cache::StartSome(std::span<const PieceId> wanted) {
  bool some = false;
  for (const PieceId id : wanted) {
    Piece& piece = At(id);
    if (piece.state == State::kFilling) {
      if (!std::exchange(piece.demanded, true)) driver_->Promote(id);
      kick_ = true;
      some = true;
    } else if (piece.state == State::kAbsent) {
      some = StartRead(id, ReadPriority::kDemand) || some;
    }
  }
  return some;
}

// False when no slot can be had.
bool Cache::StartRead(PieceId id, ReadPriority priority) {
  Piece& piece = At(id);
  const PieceExtents& extents = index_.piece(id);
  if (piece.home == Home::kRing) {
    const int32_t slot = PickRingSlot(id, priority);
    if (slot < 0) return false;
    PieceId& held = ring_[static_cast<size_t>(slot)];
    if (held >= 0) Evict(held);
    held = id;
    piece.slot = slot;
    piece.base = ring_base_ + slot * plan_.core_slot_bytes;
  } else if (piece.home == Home::kExpert) {
    const ExpertSlots::Taken taken = experts_.Take(id);
    if (taken.slot < 0) return false;
    if (taken.evicted >= 0) Evict(taken.evicted);
    piece.slot = taken.slot;
    piece.base = expert_base_ + taken.slot * plan_.expert_slot_bytes;
  }
  piece.state = State::kFilling;
  piece.prefetched = priority == ReadPriority::kPrefetch;
  piece.demanded = !piece.prefetched;
  if (piece.prefetched) ++stats_.prefetch_issued;
  if (InBudget(id)) AddResident(extents.slot_bytes);
  driver_->Start(id, extents.extents, piece.base, priority);
  kick_ = true;
  return true;
}

void Cache::OnRead(int32_t job, const Status& status) {
  if (job >= index_.size()) {
    RowTable* table = &tables_.back();
    while (job < table->first_job) --table;
    table->rows->Finished(job, status);
    return;
  }
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    const PieceId id = job;
    Piece& piece = At(id);
    CHECK(piece.state == State::kFilling);
    if (closing_) return;  // nobody is there to want anything, and the driver takes no more
    if (status.ok()) {
      piece.state = State::kResident;
      KindStats* const kind = StatsOf(id);
      (kind != nullptr ? kind->bytes_read : stats_.other_bytes_read) += index_.piece(id).read_bytes;
      SettleExpert(id);
    } else {
      Fail(id, status);
    }
    PumpAnnounced();
    kick_ = false;  // this is the I/O thread: it looks at its queue next
    wake = sleepers_ > 0;
  }
  if (wake) changed_.Notify();
}

void Cache::Fail(PieceId id, const Status& status) {
  Piece& piece = At(id);
  const bool prefetched = piece.prefetched;
  if (piece.home == Home::kRing) ring_[static_cast<size_t>(piece.slot)] = -1;
  if (piece.home == Home::kExpert) experts_.Free(piece.slot);
  piece.announced = false;
  Evict(id);
  // A prefetch fails in silence, also when somebody has joined it: that thread asks again, and the error it then gets
  // is that of its own read. So whether a bad prefetch was still running when its piece was wanted makes no difference.
  if (prefetched) return;
  piece.error = status.WithContext(PieceName(LayoutOf(id)));
  piece.failed_at = ++failures_;
  piece.error_pending = piece.waiters == 0;
}

// Its slot is no longer its own.
void Cache::Evict(PieceId id) {
  Piece& piece = At(id);
  CHECK(piece.leases == 0);
  piece.state = State::kAbsent;
  piece.demanded = false;
  piece.prefetched = false;
  piece.slot = -1;
  if (piece.home != Home::kOwn) piece.base = nullptr;
  if (InBudget(id)) AddResident(-index_.piece(id).slot_bytes);
}

// Keeps the list of evictable slots true after any change to an expert.
void Cache::SettleExpert(PieceId id) {
  const Piece& piece = At(id);
  if (piece.home != Home::kExpert || piece.state != State::kResident) return;
  if (piece.leases == 0 && piece.waiters == 0 && !piece.announced) {
    experts_.SetEvictable(piece.slot);
  } else {
    experts_.SetInUse(piece.slot);
  }
}

// Starts reads of announced experts in their order, as far as there are slots.
void Cache::PumpAnnounced() {
  if (starved_ > 0) return;
  for (; next_announced_ < announced_.size(); ++next_announced_) {
    const PieceId id = announced_[next_announced_];
    if (!At(id).announced || At(id).state != State::kAbsent) continue;
    if (!StartRead(id, ReadPriority::kDemand)) return;
  }
}

// Lets go of announced experts that were not acquired. False when there was none.
bool Cache::ForgetAnnounced() {
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
void Cache::PrefetchCores() {
  if (!options_.prefetch || starved_ > 0) return;
  const auto layers = static_cast<int32_t>(layout_.core.size());
  int32_t ahead = 0;
  for (int32_t step = 1; step < layers && ahead < options_.warm_window; ++step) {
    const PieceId id = layout_.core[static_cast<size_t>((current_layer_ + step) % layers)];
    if (At(id).state == State::kResident) continue;
    if (At(id).state == State::kAbsent && !StartRead(id, ReadPriority::kPrefetch)) return;
    ++ahead;
  }
}

// The slot whose core is needed last, counted from the layer that asks. Never one that is leased, waited for or being
// filled; a prefetch also leaves alone what is needed sooner than itself. -1 when there is none.
int32_t Cache::PickRingSlot(PieceId id, ReadPriority priority) const {
  const bool prefetch = priority == ReadPriority::kPrefetch;
  const int32_t from = prefetch ? current_layer_ : LayoutOf(id).layer;
  int32_t best = -1;
  int32_t best_distance = prefetch ? LayersUntil(from, id) : 0;
  for (size_t slot = 0; slot < ring_.size(); ++slot) {
    const PieceId held = ring_[slot];
    if (held < 0) return static_cast<int32_t>(slot);
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
int32_t Cache::LayersUntil(int32_t from, PieceId id) const {
  const auto layers = static_cast<int32_t>(layout_.core.size());
  return (LayoutOf(id).layer - from - 1 + layers) % layers + 1;
}

// Null for pieces outside the budget.
KindStats* Cache::StatsOf(PieceId id) {
  const PieceLayout& piece = LayoutOf(id);
  if (piece.kind == PieceKind::kExpert) return &stats_.expert;
  if (piece.kind != PieceKind::kCore) return nullptr;
  return layout_.first_expert[static_cast<size_t>(piece.layer)] >= 0 ? &stats_.core : &stats_.dense;
}

void Cache::AddResident(int64_t bytes) {
  stats_.resident_bytes += bytes;
  stats_.resident_peak_bytes = std::max(stats_.resident_peak_bytes, stats_.resident_bytes);
  CHECK(stats_.resident_bytes >= 0 && stats_.resident_bytes <= plan_.core_region_bytes + plan_.expert_region_bytes);
}

}  // namespace

Result<std::unique_ptr<PieceCache>> PieceCache::Create(const ModelLayout& layout, const PieceIndex& index,
                                                       const MemoryPlan& plan, std::unique_ptr<ReadQueue> queue,
                                                       const PieceCacheOptions& options) {
  auto cache = std::make_unique<Cache>(layout, index, plan, options);
  RETURN_IF_ERROR(cache->Open(std::move(queue)));
  return std::unique_ptr<PieceCache>(std::move(cache));
}

}  // namespace nunspark
