#include "weights/piece_cache.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/keep_forever.h"
#include "base/size.h"
#include "io/file.h"
#include "weights/layout_helpers.h"
#include "weights/piece_cache_impl.h"

namespace nunspark {
namespace {

constexpr int64_t kCallersMostRows = 64;

// Slots through which experts pass in a pass of several rows: enough for the drive to stay busy while some are computed
// (docs/decisions/0024), little beside what the layers keep.
constexpr int64_t kWindowBytes = 32 << 20;
constexpr int32_t kWindowSlots = 64;
constexpr int32_t kWindowShare = 6;

// How often the system is asked whether it is short of memory, which share of the slots one answer costs, and after how
// many calm ones so many are taken back.
constexpr std::chrono::seconds kPressureInterval{1};
constexpr int32_t kGiveBackShare = 16;
constexpr int32_t kCalmLooks = 60;

// Contract 3.2: staging takes at most a fifth of the expert slots.
constexpr int32_t kStagingShare = 5;

// Choices of experts in a pass, for each expert of a layer, from which on all of them are expected to be wanted.
constexpr int64_t kChoicesForAll = 8;

}  // namespace

PieceCacheImpl::~PieceCacheImpl() {
  {
    const std::lock_guard lock(mutex_);
    for (const Piece& piece : pieces_) CHECK(piece.leases == 0);
    closing_ = true;
  }
  // What is in flight writes into memory_.
  if (driver_ != nullptr && !driver_->Stop(options_.read_timeout)) {
    KeepForever(std::pair(std::move(driver_), std::move(memory_)));
  }
}

Status PieceCacheImpl::Open(std::unique_ptr<ReadQueue> queue) {
  const bool tied = layout_.hparams.tied;
  ASSIGN_OR_RETURN(memory_, MappedMemory::Create(plan_.norm_head_bytes + plan_.embed_bytes + plan_.core_region_bytes +
                                                     plan_.expert_region_bytes,
                                                 "weights", "try a smaller --budget"));
  if (options_.lock_memory) LockMemory();
  if (options_.give_back && options_.pressure == nullptr) pressure_ = std::make_unique<MemoryPressure>();
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
  experts_total_ = static_cast<int64_t>(experts);
  announced_.reserve(experts);
  ranked_.reserve(static_cast<size_t>(layout_.hparams.experts));
  const auto moe_layers =
      std::count_if(layout_.first_expert.begin(), layout_.first_expert.end(), [](PieceId id) { return id >= 0; });
  expert_slots_min_ =
      static_cast<int32_t>(std::min<int64_t>(moe_layers * layout_.hparams.experts_per_token, plan_.expert_slots));
  given_back_.reserve(static_cast<size_t>(plan_.expert_slots));
  fired_.resize(layout_.core.size());
  for (std::vector<PieceId>& fired : fired_) {
    fired.reserve(static_cast<size_t>(moe_layers > 0 ? layout_.hparams.experts : 0));
  }
  DivideSlots();

  try {
    driver_ = std::make_unique<ReadDriver>(std::move(queue), jobs,
                                           [this](const ReadDriver::Report& report) { OnReport(report); });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError(fmt::format("the system refuses a thread for reading: {}", error.what()));
  }
  for (RowTable& table : tables_) {
    table.rows = std::make_unique<EmbeddingRows>(LayoutOf(table.id), table.memory, *driver_, table.first_job,
                                                 options_.read_timeout, index_.paths());
  }

  ASSIGN_OR_RETURN(const Lease norm_head, Acquire(layout_.norm_head));
  if (tied) {
    ASSIGN_OR_RETURN(const Lease table, Acquire(layout_.embed));
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.stall_us = 0;  // of the forward pass, which has not begun
    PumpWarmStart();
    kick_ = false;
  }
  driver_->Kick();
  return Status();
}

// All but a few slots belong to the layers in equal shares; through the few the rest of a prompt's experts passes.
void PieceCacheImpl::DivideSlots() {
  share_.assign(layout_.core.size(), 0);
  slots_held_.resize(layout_.core.size());
  const int32_t slots = plan_.expert_slots - static_cast<int32_t>(given_back_.size());
  const auto layers = static_cast<int32_t>(
      std::count_if(layout_.first_expert.begin(), layout_.first_expert.end(), [](PieceId id) { return id >= 0; }));
  if (layers == 0 || slots == 0) return;
  staging_max_ = slots / kStagingShare;
  predicted_.reserve(2 * static_cast<size_t>(staging_max_));
  const auto in_flight = static_cast<int32_t>(std::min<int64_t>(kWindowBytes / plan_.expert_slot_bytes, kWindowSlots));
  window_ = std::clamp(in_flight, 1, std::max(1, slots / kWindowShare));
  const int32_t shared = slots - window_;
  int32_t nth = 0;
  for (size_t layer = 0; layer < share_.size(); ++layer) {
    if (layout_.first_expert[layer] < 0) continue;
    share_[layer] = shared * (nth + 1) / layers - shared * nth / layers;
    ++nth;
  }
}

// Pages are locked as they are first touched, so that opening stays quick.
void PieceCacheImpl::LockMemory() {
  if (memory_.bytes() == 0) return;
  if (::mlock2(memory_.data(), static_cast<size_t>(memory_.bytes()), MLOCK_ONFAULT) == 0) {
    locked_.bytes = memory_.bytes();
    return;
  }
  const int error = errno;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(memory_.bytes())) {
    locked_.refusal = fmt::format("RLIMIT_MEMLOCK is {}, the weights take {} (ulimit -l)",
                                  FormatSize(static_cast<int64_t>(limit.rlim_cur)), FormatSize(memory_.bytes()));
  } else {
    locked_.refusal = fmt::format("mlock: {}", ErrnoText(error));
  }
}

// Gives slots back while the system runs short of memory, and takes them again once it has long been calm.
void PieceCacheImpl::FollowPressure() {
  if (!options_.give_back || plan_.expert_slots == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (pressure_ != nullptr && now - pressure_looked_at_ < kPressureInterval) return;
  pressure_looked_at_ = now;
  const int32_t step = std::max(1, plan_.expert_slots / kGiveBackShare);
  if (pressure_ != nullptr ? pressure_->Sample() : options_.pressure->load()) {
    calm_looks_ = 0;
    GiveBack(step);
  } else if (++calm_looks_ >= kCalmLooks && !given_back_.empty()) {
    calm_looks_ = 0;
    for (int32_t i = 0; i < step && !given_back_.empty(); ++i) {
      experts_.Free(given_back_.back());
      given_back_.pop_back();
    }
    DivideSlots();
  }
  stats_.given_back_slots = static_cast<int64_t>(given_back_.size());
}

void PieceCacheImpl::GiveBack(int32_t slots) {
  const int32_t most = plan_.expert_slots - expert_slots_min_ - static_cast<int32_t>(given_back_.size());
  for (int32_t i = 0; i < std::min(slots, most); ++i) {
    const ExpertSlots::Taken taken = experts_.Take(-1, SlotList::kStaged);
    if (taken.slot < 0) break;
    if (taken.evicted >= 0) Evict(taken.evicted);
    given_back_.push_back(taken.slot);
    uint8_t* const memory = expert_base_ + taken.slot * plan_.expert_slot_bytes;
    const auto bytes = static_cast<size_t>(plan_.expert_slot_bytes);
    // Locked pages cannot be given back. The slot is not locked again when it is used again: it may be given back
    // again.
    if (locked_.bytes > 0) ::munlock(memory, bytes);
    ::madvise(memory, bytes, MADV_DONTNEED);
  }
  DivideSlots();
}

Status PieceCacheImpl::ReadRows(PieceId table, std::span<const int32_t> rows, float* out) {
  for (RowTable& known : tables_) {
    if (known.id == table) return known.rows->Read(rows, out);
  }
  DecodeTableRows(layout_, index_, table, At(table).base, rows, out);
  return Status();
}

void PieceCacheImpl::BeginPass(const PassInfo& pass) {
  const std::lock_guard lock(mutex_);
  // The last pass went layer by layer; from here on slots are replaced in the order of its rows.
  if (pass_.rows > 1) experts_.SortByUse([this](PieceId id) { return At(id).used_at; });
  FollowPressure();
  pass_ = pass;
  in_pass_ = true;
  ++pass_number_;
  fired_end_ = 0;
  // Kept for their own pass and the next one.
  for (PieceId id = experts_.Oldest(SlotList::kStaged); id >= 0 && At(id).staged_in + 1 < pass_number_;
       id = experts_.Oldest(SlotList::kStaged)) {
    ExpireStaged(id);
  }
  if (pass.starts_sequence) ExpectFired(pass.rows);
  if (pass.rows == 1 && lookahead_.on()) ++stats_.lookahead_passes;
  pass_begin_prefetch_ = stats_.expert_prefetch;
  pass_first_row_ = rows_begun_;
  rows_begun_ += pass.rows;
  const CacheStats now = TotalStats();
  pass_begin_ = {.stall_us = now.stall_us, .bytes_read = now.bytes_read()};
  pass_begun_at_ = std::chrono::steady_clock::now();
}

// What a sequence wants at first is not known. Where its rows choose so often that hardly an expert is left out, all
// are expected.
void PieceCacheImpl::ExpectFired(int64_t rows) {
  const HParams& h = layout_.hparams;
  const bool all = rows * h.experts_per_token >= kChoicesForAll * h.experts;
  for (size_t layer = 0; layer < fired_.size(); ++layer) {
    std::vector<PieceId>& fired = fired_[layer];
    fired.resize(all && layout_.first_expert[layer] >= 0 ? static_cast<size_t>(h.experts) : 0);
    std::iota(fired.begin(), fired.end(), layout_.first_expert[layer]);
  }
}

void PieceCacheImpl::EndPass() {
  const auto wall = std::chrono::steady_clock::now() - pass_begun_at_;
  std::unique_lock lock(mutex_);
  const CacheStats now = TotalStats();
  const int64_t wall_us = std::chrono::duration_cast<std::chrono::microseconds>(wall).count();
  const int64_t stall_us = now.stall_us - pass_begin_.stall_us;
  PassStats& kind = pass_.rows > pass_.sequences ? stats_.prompt : stats_.decode;
  ++kind.passes;
  kind.rows += pass_.rows;
  kind.wall_us += wall_us;
  kind.stall_us += stall_us;
  kind.bytes_read += now.bytes_read() - pass_begin_.bytes_read;
  const PassFigures figures{.wall_us = wall_us,
                            .stall_us = stall_us,
                            .read = stats_.expert_prefetch.issued - pass_begin_prefetch_.issued -
                                    (stats_.expert_prefetch.withdrawn - pass_begin_prefetch_.withdrawn),
                            .used = stats_.expert_prefetch.used - pass_begin_prefetch_.used};
  if (pass_.rows > 1) {
    temporal_.EndPass(figures);
  } else {
    lookahead_.EndPass(figures);
  }
  in_pass_ = false;
  PumpWarmStart();
  const bool kick = std::exchange(kick_, false);
  lock.unlock();
  if (kick) driver_->Kick();
}

CacheStats PieceCacheImpl::stats() const {
  const std::lock_guard lock(mutex_);
  return TotalStats();
}

CacheStats PieceCacheImpl::TotalStats() const {
  CacheStats stats = stats_;
  stats.read_us = driver_->read_us();
  for (const RowTable& table : tables_) {
    stats.other_bytes_read += table.rows->bytes_read();
    stats.stall_us += table.rows->stall_us();
  }
  return stats;
}

std::vector<LayerStats> PieceCacheImpl::layer_stats() const {
  const std::lock_guard lock(mutex_);
  return layer_stats_;
}

std::vector<int32_t> PieceCacheImpl::expert_uses() const {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t> uses;
  uses.reserve(pieces_.size());
  for (const Piece& piece : pieces_) uses.push_back(piece.uses);
  return uses;
}

std::string PieceCacheImpl::io_description() const {
  const std::string reason = driver_->queue().FallbackReason();
  const std::string what = driver_->queue().Description();
  return reason.empty() ? what : fmt::format("{} ({})", what, reason);
}

// Leases whichever of `wanted` is available first.
Result<Lease> PieceCacheImpl::Obtain(std::span<const PieceId> wanted, Arrived arrived) {
  CHECK(!wanted.empty());
  driver_->Drive();
  std::unique_lock lock(mutex_);
  const uint64_t failures_before = failures_;
  while (true) {
    if (const PieceId id = FirstAvailable(wanted, arrived); id >= 0) {
      Lease lease = Take(id);
      const Kick kick = TakeKick();
      lock.unlock();
      Tell(kick);
      return lease;
    }
    RETURN_IF_ERROR(TakeFailure(wanted, failures_before));
    const bool starved = !StartWanted(wanted);
    if (!Sleep(lock, wanted, starved)) RETURN_IF_ERROR(GiveUp(wanted, starved));
  }
}

Status PieceCacheImpl::AwaitRest(const Lease& lease) {
  driver_->Drive();
  if (lease.arrived() == Arrived::kAll) return Status();
  const PieceId id = lease.piece();
  const std::span<const PieceId> wanted(&id, 1);
  std::unique_lock lock(mutex_);
  const Piece& piece = At(id);
  while (piece.state == State::kFilling) {
    if (!Sleep(lock, wanted, false)) RETURN_IF_ERROR(GiveUp(wanted, false));
  }
  return piece.state == State::kResident ? Status() : piece.error;
}

// Waits for any change on behalf of a thread that wants one of `wanted`. False when the timeout has passed without one.
bool PieceCacheImpl::Sleep(std::unique_lock<std::mutex>& lock, std::span<const PieceId> wanted, bool starved) {
  const uint32_t seen = changed_.Now();
  for (const PieceId id : wanted) ++At(id).waiters;
  ++sleepers_;
  starved_ += starved ? 1 : 0;
  const Kick kick = TakeKick();
  const auto begin = std::chrono::steady_clock::now();
  lock.unlock();
  Tell(kick);
  const bool changed = DriveUntilChanged(seen) || changed_.Await(seen, options_.read_timeout);
  lock.lock();
  const auto waited = std::chrono::steady_clock::now() - begin;
  const int64_t stall_us = std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
  stats_.stall_us += stall_us;
  if (LayerStats* const layer = LayerStatsOf(wanted.front()); layer != nullptr) layer->stall_us += stall_us;
  starved_ -= starved ? 1 : 0;
  --sleepers_;
  for (const PieceId id : wanted) {
    --At(id).waiters;
    SettleExpert(id);
  }
  return changed;
}

PieceCacheImpl::Kick PieceCacheImpl::TakeKick() {
  if (!std::exchange(kick_, false)) return Kick::kNobody;
  // The caller of a pass of few rows soon waits for what it asks for; with many rows it computes for long, and what
  // comes back meanwhile makes room for further reads.
  return pass_.rows <= kCallersMostRows && !shared_cores.Seen() ? Kick::kCaller : Kick::kThread;
}

void PieceCacheImpl::Tell(Kick kick) {
  if (kick == Kick::kThread) driver_->Kick();
  if (kick == Kick::kCaller) driver_->KickAndDrive();
}

// Reads for itself as long as spinning costs nobody anything. False: no change yet, and the I/O thread reads.
bool PieceCacheImpl::DriveUntilChanged(uint32_t seen) {
  bool drives = driver_->Drive();
  if (!drives) return false;
  SpinUntil(kSpinAloneNs, [&] {
    drives = driver_->Drive();
    return !drives || changed_.Now() != seen;
  });
  if (changed_.Now() != seen) return true;
  driver_->Kick();
  return false;
}

// After a wait without any change: unless the drive still works, its reads of `wanted` fail.
Status PieceCacheImpl::GiveUp(std::span<const PieceId> wanted, bool starved) {
  if (starved && stats_.quarantined_slots > 0) {
    return IoError(fmt::format("{}: no room to read it: {} slots are held by reads that have not returned",
                               PieceName(LayoutOf(wanted.front())), stats_.quarantined_slots));
  }
  if (!driver_->IsSilent(options_.read_timeout)) return Status();
  for (const PieceId id : wanted) {
    if (At(id).state == State::kFilling) Quarantine(id);
  }
  return Status();
}

Lease PieceCacheImpl::AcquireReady(std::span<const PieceId> pieces, Arrived arrived) {
  driver_->Drive();
  std::unique_lock lock(mutex_);
  const PieceId id = FirstAvailable(pieces, arrived);
  if (id < 0) return Lease();
  Lease lease = Take(id);
  const Kick kick = TakeKick();
  lock.unlock();
  Tell(kick);
  return lease;
}

PieceId PieceCacheImpl::FirstAvailable(std::span<const PieceId> wanted, Arrived arrived) const {
  PieceId in_part = -1;
  for (const PieceId id : wanted) {
    CHECK(id >= 0 && id < index_.size() && At(id).home != Home::kNowhere);
    const Piece& piece = At(id);
    if (piece.state == State::kResident) return id;
    const bool part = piece.state == State::kFilling && piece.first_arrived && !piece.withdrawn;
    if (in_part < 0 && part) in_part = id;
  }
  return arrived == Arrived::kFirstParts ? in_part : -1;
}

// The error of a read that failed while this caller waited, or that nobody has heard of. The piece is absent: the next
// acquire reads it again.
Status PieceCacheImpl::TakeFailure(std::span<const PieceId> wanted, uint64_t failures_before) {
  for (const PieceId id : wanted) {
    Piece& piece = At(id);
    const bool pending = std::exchange(piece.error_pending, false);
    if (pending || piece.state == State::kHung || piece.failed_at > failures_before) return piece.error;
  }
  return Status();
}

Lease PieceCacheImpl::Take(PieceId id) {
  Piece& piece = At(id);
  ++piece.leases;
  if (!std::exchange(piece.announced, false)) {
    piece.used_at = rows_begun_;
    piece.use = ++uses_;
    piece.passes = false;
  }
  SettleExpert(id);
  if (KindStats* const kind = StatsOf(id); kind != nullptr) {
    LayerStats& layer = *LayerStatsOf(id);
    ++(piece.demanded ? kind->misses : kind->hits);
    ++(piece.demanded ? layer.misses : layer.hits);
    if (piece.demanded && piece.prefetched) {
      ++kind->coalesced;
      ++layer.coalesced;
    }
  }
  if (piece.prefetched) {
    CountPrefetch(id, &PrefetchStats::used, &PrefetchStats::used_bytes, &LayerStats::prefetch_used);
    Unstage(id);
  }
  if (piece.warm == Warm::kUnused) {
    ++stats_.warm_start.used;
    stats_.warm_start.used_bytes += index_.piece(id).read_bytes;
    piece.warm = Warm::kNo;
  }
  piece.demanded = false;
  if (LayoutOf(id).kind == PieceKind::kCore) {
    current_layer_ = LayoutOf(id).layer;
    PrefetchCores();
  }
  return Lease(this, id, piece.base, index_.piece(id).part_offsets.data(),
               piece.state == State::kResident ? Arrived::kAll : Arrived::kFirstParts);
}

void PieceCacheImpl::Unlease(PieceId id) {
  Kick kick = Kick::kNobody;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    Piece& piece = At(id);
    CHECK(piece.leases > 0);
    if (--piece.leases > 0) return;
    if (piece.state == State::kBroken) ReleaseSlot(id);
    SettleExpert(id);
    if (piece.home == Home::kExpert) PumpAnnounced();
    if (piece.home == Home::kRing) PrefetchCores();
    kick = TakeKick();
    wake = sleepers_ > 0;
  }
  Tell(kick);
  if (wake) changed_.Notify();
}

Result<std::unique_ptr<PieceCache>> PieceCache::Create(const ModelLayout& layout, const PieceIndex& index,
                                                       const MemoryPlan& plan, std::unique_ptr<ReadQueue> queue,
                                                       const PieceCacheOptions& options) {
  auto cache = std::make_unique<PieceCacheImpl>(layout, index, plan, options);
  RETURN_IF_ERROR(cache->Open(std::move(queue)));
  return std::unique_ptr<PieceCache>(std::move(cache));
}

}  // namespace nunspark
