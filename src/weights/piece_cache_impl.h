// The piece cache's state, private to its three sources: piece_cache.cc (opening, leases), piece_cache_reads.cc (slots
// and reads), piece_cache_prefetch.cc (what is read before it is asked for).
#ifndef NUNSPARK_WEIGHTS_PIECE_CACHE_IMPL_H_
#define NUNSPARK_WEIGHTS_PIECE_CACHE_IMPL_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_memory.h"
#include "weights/embedding_rows.h"
#include "weights/event_count.h"
#include "weights/expert_slots.h"
#include "weights/memory_pressure.h"
#include "weights/piece_cache.h"
#include "weights/prefetch_governor.h"
#include "weights/read_driver.h"

namespace nunspark {

class PieceCacheImpl final : public PieceCache {
 public:
  PieceCacheImpl(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                 const PieceCacheOptions& options)
      : layout_(layout),
        index_(index),
        plan_(plan),
        options_(options),
        current_layer_(static_cast<int32_t>(layout.core.size()) - 1),
        pieces_(layout.pieces.size()),
        ring_(static_cast<size_t>(plan.ring_slots), PieceId{kEmptySlot}),
        experts_(plan.expert_slots),
        lookahead_(options.prefetch ? options.lookahead : Governed::kOff),
        temporal_(options.prefetch ? options.expert_prefetch : Governed::kOff),
        warm_start_(options.warm_start.begin(), options.warm_start.end()),
        layer_stats_(layout.core.size()) {}
  ~PieceCacheImpl() override;

  Status Open(std::unique_ptr<ReadQueue> queue);

  void BeginPass(const PassInfo& pass) override;
  void EndPass() override;
  Result<Lease> Acquire(PieceId piece) override { return Obtain(std::span(&piece, 1), Arrived::kAll); }
  Result<Lease> AcquireAny(std::span<const PieceId> pieces, Arrived arrived) override {
    return Obtain(pieces, arrived);
  }
  Lease AcquireReady(std::span<const PieceId> pieces, Arrived arrived) override;
  Status AwaitRest(const Lease& lease) override;
  int32_t PredictionsWanted() override;
  Lease Peek(PieceId core) override;
  void Predict(int32_t layer, std::span<const PieceId> pieces) override;
  void Announce(const RoutedExperts& routed) override;
  Status ReadRows(PieceId table, std::span<const int32_t> rows, float* out) override;
  CacheStats stats() const override;
  std::vector<LayerStats> layer_stats() const override;
  std::vector<int32_t> expert_uses() const override;
  std::string io_description() const override;
  PageUse page_use() const override { return memory_.page_use(); }
  const Locked& locked() const override { return locked_; }

 private:
  // Where a piece lies when it is in memory.
  enum class Home : uint8_t {
    kOwn,      // memory of its own, for good: norm and head, a tied embedding, pinned cores
    kRing,     // cores that pass through
    kExpert,   // expert slots
    kNowhere,  // an embedding whose rows are read on demand
  };

  enum class State : uint8_t {
    kAbsent,
    kFilling,
    kResident,
    kBroken,  // its read failed while its first parts were leased: absent once they are given back
    kHung,    // memory of its own that an unanswered read may still write to
  };

  // A piece that the warm start has read, until its first use.
  enum class Warm : uint8_t { kNo, kReading, kUnused };

  // Why a piece is read.
  enum class Reason : uint8_t { kWanted, kPredicted, kWarmStart };

  struct Piece {
    Home home = Home::kNowhere;
    State state = State::kAbsent;
    bool announced = false;      // chosen by the router, not yet acquired: stays until then
    bool demanded = false;       // read because it was asked for: its next acquire is a miss
    bool prefetched = false;     // its read began as a prefetch; until the next acquire
    bool error_pending = false;  // `error` has reached nobody yet
    Warm warm = Warm::kNo;
    bool passes = false;         // an expert that later rows of the pass have outdated: replaced first
    bool first_arrived = false;  // filling, and its first parts are in memory
    bool withdrawn = false;      // filling, but the rest may never come
    bool slot_hung = false;      // broken, and an unanswered read may still write to its slot
    int32_t slot = -1;           // in the ring or among the expert slots
    uint32_t read = 0;           // number of the read that is on its way
    int32_t leases = 0;
    int32_t waiters = 0;     // threads that wait for it
    int64_t staged_in = 0;   // pass of its prediction
    int64_t used_at = 0;     // an expert's last use, in rows since the start
    int32_t uses = 0;        // an expert's, in passes
    int64_t use = 0;         // the same, counted in uses
    double wanted = 0;       // by how many rows, those of earlier passes counting less
    int64_t wanted_in = 0;   // the last such pass
    uint64_t failed_at = 0;  // number of the last failed read, counted over all pieces
    uint8_t* base = nullptr;
    Status error;
  };

  void Unlease(PieceId id) override;

  // All below REQUIRE mutex_ unless they say otherwise.
  Result<Lease> Obtain(std::span<const PieceId> wanted, Arrived arrived);  // takes mutex_
  PieceId FirstAvailable(std::span<const PieceId> wanted, Arrived arrived) const;
  bool Sleep(std::unique_lock<std::mutex>& lock, std::span<const PieceId> wanted, bool starved);
  // Who is to read what was queued.
  enum class Kick : uint8_t { kNobody, kThread, kCaller };
  Kick TakeKick();
  void Tell(Kick kick);                   // without mutex_
  bool DriveUntilChanged(uint32_t seen);  // without mutex_
  Status GiveUp(std::span<const PieceId> wanted, bool starved);
  Status TakeFailure(std::span<const PieceId> wanted, uint64_t failures_before);
  Lease Take(PieceId id);

  bool StartWanted(std::span<const PieceId> wanted);
  bool StartSome(std::span<const PieceId> wanted);
  SlotList ReachOf(PieceId id) const;
  bool StartRead(PieceId id, Reason reason, SlotList reach);
  void OnReport(const ReadDriver::Report& report);  // takes mutex_; the thread that drives
  void Returned(PieceId id, const uint8_t* slot);
  void Quarantine(PieceId id);
  void Fail(PieceId id, const Status& status);
  void ReleaseSlot(PieceId id);
  void Evict(PieceId id);

  void SettleExpert(PieceId id);
  void DivideSlots();
  void LockMemory();
  void FollowPressure();
  void GiveBack(int32_t slots);
  void ApplyShare(int32_t layer);
  double WantedNow(PieceId id) const;
  void PumpAnnounced();
  bool ForgetAnnounced();

  void PumpWarmStart();
  void PumpFired();
  void ExpectFired(int64_t rows);
  bool Stage(PieceId id, SlotList reach);
  void Unstage(PieceId id);
  void ExpireStaged(PieceId id);
  void WithdrawPredictions(int32_t layer);
  PieceId Degraded(PieceId id) const;

  void PrefetchCores();
  int32_t PickRingSlot(PieceId id, Reason reason) const;
  int32_t LayersUntil(int32_t from, PieceId id) const;

  Piece& At(PieceId id) { return pieces_[static_cast<size_t>(id)]; }
  const Piece& At(PieceId id) const { return pieces_[static_cast<size_t>(id)]; }
  const PieceLayout& LayoutOf(PieceId id) const { return layout_.pieces[static_cast<size_t>(id)]; }
  bool InBudget(PieceId id) const {
    return LayoutOf(id).kind == PieceKind::kCore || LayoutOf(id).kind == PieceKind::kExpert;
  }
  KindStats* StatsOf(PieceId id);
  LayerStats* LayerStatsOf(PieceId id);
  CacheStats TotalStats() const;
  void CountRead(PieceId id, int64_t bytes);
  void CountPrefetch(PieceId id, int64_t PrefetchStats::*count, int64_t PrefetchStats::*bytes,
                     int64_t LayerStats::*layer_count);
  void CountUnused(PieceId id);
  void AddResident(PieceId id, int64_t bytes);

  const ModelLayout& layout_;
  const PieceIndex& index_;
  const MemoryPlan plan_;
  const PieceCacheOptions options_;

  mutable std::mutex mutex_;
  EventCount changed_;  // a read has completed or a slot has become free
  bool closing_ = false;
  int32_t sleepers_ = 0;
  int32_t starved_ = 0;  // those of them that wait for a slot: it must not go to a prefetch
  bool kick_ = false;    // reads were queued: the driver wants to know, once the lock is free (Tell)
  uint64_t failures_ = 0;
  int32_t current_layer_;  // of the core acquired last
  std::vector<Piece> pieces_;
  static constexpr PieceId kEmptySlot = -1, kHungSlot = -2;
  std::vector<PieceId> ring_;
  ExpertSlots experts_;
  std::vector<PieceId> announced_;  // the last announced set
  size_t next_announced_ = 0;       // those before it have had their read started, as far as one was needed
  // Room for ApplyShare: a layer's experts, those first that go first.
  struct Ranked {
    double wanted = 0;
    int64_t used_at = 0;
    PieceId id = 0;
    auto operator<=>(const Ranked&) const = default;
  };
  std::vector<Ranked> ranked_;

  // What each layer keeps of a pass of several rows, and how many slots beyond it its other experts pass through.
  std::vector<int32_t> share_;       // [layers]
  std::vector<int32_t> slots_held_;  // [layers]
  int64_t experts_held_ = 0, experts_total_ = 0;
  int32_t window_ = 0;

  // Predicted experts that nobody has used yet are staged: in slots, and counted.
  int32_t staging_max_ = 0;
  int32_t staged_ = 0;
  std::vector<PieceId> predicted_;           // those whose reads may still be on their way
  std::vector<std::vector<PieceId>> fired_;  // [layers] of the last pass of several rows
  int32_t fired_layer_ = 0, fired_end_ = 0;  // whose fired experts are being read ahead, and where that ends
  size_t fired_next_ = 0;                    // among them
  bool in_pass_ = false;
  LookaheadGovernor lookahead_;
  TemporalGovernor temporal_;
  const std::vector<PieceId> warm_start_;
  size_t warm_next_ = 0;      // of them
  int32_t warm_reading_ = 0;  // of those before it
  PrefetchStats pass_begin_prefetch_;

  PassInfo pass_;
  int64_t pass_number_ = 0;
  int64_t pass_first_row_ = 0;  // of the running pass, in rows since the start
  int64_t rows_begun_ = 0;
  int64_t uses_ = 0;  // of experts
  std::chrono::steady_clock::time_point pass_begun_at_;
  PassStats pass_begin_;  // stall and bytes when it began

  CacheStats stats_;
  int64_t core_bytes_ = 0, expert_bytes_ = 0;  // inside the budget, now
  std::vector<LayerStats> layer_stats_;

  std::unique_ptr<MemoryPressure> pressure_;
  std::chrono::steady_clock::time_point pressure_looked_at_;
  int32_t calm_looks_ = 0;           // since the last pressure
  int32_t expert_slots_min_ = 0;     // one token's routed set
  std::vector<int32_t> given_back_;  // slots without memory

  Locked locked_;
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

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_PIECE_CACHE_IMPL_H_
