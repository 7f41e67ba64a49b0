#include "weights/piece_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "io/fault_queue_testing.h"
#include "weights/cache_harness.h"
#include "weights/fake_model.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

TEST(PieceCache, OpeningReadsOnlyNormAndHead) {
  Harness h({});
  EXPECT_EQ(h.opened_requests, 1);
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.other_bytes_read, h.SlotBytes(h.model.layout.norm_head));
  EXPECT_EQ(stats.resident_bytes, 0);
  EXPECT_EQ(stats.stall_us, 0);
  EXPECT_TRUE(h.Touch(h.model.layout.norm_head));
  EXPECT_EQ(h.cache->io_description(), "fake (no drive)");
}

TEST(PieceCache, TiedEmbeddingIsOpenedAndLeased) {
  Harness h({.model = {.tied = true}});
  EXPECT_TRUE(h.Touch(h.model.layout.embed));
  EXPECT_EQ(h.cache->stats().other_bytes_read,
            h.SlotBytes(h.model.layout.norm_head) + h.SlotBytes(h.model.layout.embed));
}

// Checklist item 27.
TEST(PieceCache, PinnedCoresAreReadAtFirstUseAndStay) {
  Harness h({.cache = {.prefetch = false}});
  for (int pass = 0; pass < 3; ++pass) {
    for (int layer = 0; layer < 4; ++layer) EXPECT_EQ(h.Touch(h.Core(layer)), pass > 0);
  }
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.core.misses, 4);
  EXPECT_EQ(stats.core.hits, 8);
  EXPECT_EQ(stats.resident_bytes, h.plan.core_region_bytes);
  EXPECT_EQ(stats.core.bytes_read, h.plan.core_region_bytes);
}

TEST(PieceCache, CoresOfDenseLayersCountAsDense) {
  Harness h({.model = {.first_moe_layer = 3}, .cache = {.prefetch = false}});
  for (int layer = 0; layer < 4; ++layer) h.Touch(h.Core(layer));
  EXPECT_EQ(h.cache->stats().dense.misses, 3);
  EXPECT_EQ(h.cache->stats().core.misses, 1);
}

TEST(PieceCache, RingKeepsOrderWithoutPrefetch) {
  Harness h({.model = {.layers = 6, .experts = 0}, .pinned_cores = 2, .cache = {.prefetch = false}});
  for (int pass = 0; pass < 3; ++pass) {
    for (int layer = 0; layer < 6; ++layer) h.Touch(h.Core(layer));
  }
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.core_prefetch.issued, 0);
  EXPECT_LE(stats.resident_peak_bytes, h.plan.core_region_bytes);
  EXPECT_EQ(stats.dense.hits + stats.dense.misses, 18);
  EXPECT_GE(stats.dense.hits, 4 + 2) << "pinned ones, and the ring keeps what is needed soonest";
}

// Checklist items 25 and 26.
TEST(PieceCache, MoreMemoryMeansFewerReadsInACyclicScan) {
  constexpr int kLayers = 8, kPasses = 5;
  int64_t before = kLayers * kPasses + 1;
  for (int pinned = 0; pinned <= kLayers - 2; ++pinned) {
    Harness h({.model = {.layers = kLayers, .experts = 0}, .pinned_cores = pinned, .cache = {.prefetch = false}});
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const bool hit = h.Touch(h.Core(layer));
        if (layer < pinned) {
          EXPECT_EQ(hit, pass > 0) << "the first layers stay";
        }
      }
    }
    EXPECT_LT(h.cache->stats().dense.misses, before) << pinned;
    before = h.cache->stats().dense.misses;
  }
  EXPECT_EQ(before, kLayers);
}

// Checklist item 28.
TEST(PieceCache, PrefetchesTheNextCoreOfTheRing) {
  Harness h({.model = {.layers = 6, .experts = 0}, .pinned_cores = 0});
  const auto await_bytes = [&](int64_t bytes) {
    EXPECT_TRUE(Eventually([&] { return h.cache->stats().dense.bytes_read >= bytes; }));
  };
  int64_t bytes = 0;
  EXPECT_FALSE(h.Touch(h.Core(0)));
  bytes += h.SlotBytes(h.Core(0));
  for (int step = 1; step < 20; ++step) {
    bytes += h.SlotBytes(h.Core(step % 6));
    await_bytes(bytes);
    EXPECT_TRUE(h.Touch(h.Core(step % 6))) << step;
  }
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.core_prefetch.used, 19);
  EXPECT_LE(stats.resident_peak_bytes, h.plan.core_region_bytes);
}

TEST(PieceCache, PrefetchSkipsWhatIsInMemory) {
  Harness h({.model = {.layers = 6, .experts = 0}, .pinned_cores = 4, .cache = {.prefetch = true, .warm_window = 1}});
  for (int layer = 0; layer < 6; ++layer) h.Touch(h.Core(layer));
  for (int pass = 0; pass < 4; ++pass) {
    for (int layer = 0; layer < 6; ++layer) h.Touch(h.Core(layer));
  }
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.dense.bytes_read,
            h.plan.core_region_bytes - 2 * h.plan.core_slot_bytes + h.SlotBytes(h.Core(4)) + h.SlotBytes(h.Core(5)))
      << "two slots hold the two cores that are not pinned";
}

TEST(PieceCache, PrefetchNeverTakesALeasedCore) {
  Harness h({.model = {.layers = 8, .experts = 0}, .pinned_cores = 0, .cache = {.prefetch = true, .warm_window = 4}});
  const Lease held = h.cache->Acquire(h.Core(0)).value();
  for (int layer = 1; layer < 24; ++layer) {
    if (layer % 8 == 0) continue;
    h.Touch(h.Core(layer % 8));
    ASSERT_TRUE(h.model.IsRight(held));
  }
}

// The driver tags a piece's requests with its id.
FakeQueueControl::Filter RequestsOf(PieceId piece) {
  return [piece](const ReadRequest& request) {
    return static_cast<uint32_t>(request.tag) == static_cast<uint32_t>(piece);
  };
}

// Checklist item 29.
TEST(PieceCache, AcquireDuringAPrefetchJoinsItAndIsAMiss) {
  Harness h({.model = {.layers = 3, .experts = 0, .core_bytes = 7 << 20}, .pinned_cores = 3});
  const FakeQueueControl::Filter is_core_1 = RequestsOf(h.Core(1));
  h.control->HoldIf(is_core_1);
  h.Touch(h.Core(0));
  // A prefetch goes in chunks, a few at a time; what is left of it goes at once when somebody wants the piece.
  const int64_t core_0 = static_cast<int64_t>(h.model.index.piece(h.Core(0)).extents.size());
  h.control->AwaitSubmitted(h.opened_requests + core_0 + 4);
  std::thread forward([&] { EXPECT_FALSE(h.Touch(h.Core(1))); });
  h.control->AwaitSubmitted(h.opened_requests + core_0 + 5);
  h.control->Release();
  forward.join();
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.dense.misses, 2);
  EXPECT_EQ(stats.core_prefetch.used, 1);
  int64_t bytes = 0;
  for (const ReadRequest& request : h.control->Submitted()) bytes += is_core_1(request) ? request.bytes : 0;
  EXPECT_EQ(bytes, h.SlotBytes(h.Core(1))) << "nothing is read twice";
}

// Checklist item 24.
TEST(PieceCache, ExpertsHitWhileThereAreSlots) {
  Harness h({.expert_slots = 4});
  for (int expert = 0; expert < 4; ++expert) EXPECT_FALSE(h.Touch(h.model.Expert(0, expert)));
  for (int expert = 0; expert < 4; ++expert) EXPECT_TRUE(h.Touch(h.model.Expert(0, expert)));
  EXPECT_FALSE(h.Touch(h.model.Expert(1, 0)));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 0))) << "the least recently used one went";
  EXPECT_TRUE(h.Touch(h.model.Expert(0, 2)));
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert.hits, 5);
  EXPECT_EQ(stats.expert.misses, 6);
  EXPECT_EQ(stats.resident_bytes, stats.resident_peak_bytes);
}

TEST(PieceCache, NeverEvictsALeasedSlot) {
  Harness h({.model = {.experts = 8}, .expert_slots = 3});
  const Lease a = h.cache->Acquire(h.model.Expert(0, 0)).value();
  const Lease b = h.cache->Acquire(h.model.Expert(0, 1)).value();
  for (int round = 0; round < 3; ++round) {
    for (int expert = 2; expert < 8; ++expert) h.Touch(h.model.Expert(0, expert));
  }
  EXPECT_TRUE(h.model.IsRight(a));
  EXPECT_TRUE(h.model.IsRight(b));
  EXPECT_TRUE(h.Touch(h.model.Expert(0, 0)));
}

TEST(PieceCache, WaitsForALeaseToBeReleasedByAnotherThread) {
  Harness h({.expert_slots = 1});
  Lease held = h.cache->Acquire(h.model.Expert(0, 0)).value();
  std::thread forward([&] { EXPECT_FALSE(h.Touch(h.model.Expert(0, 1))); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(h.model.IsRight(held));
  held.Release();
  forward.join();
}

// Checklist item 32.
TEST(PieceCache, AnnouncedExpertsAreReadBeforeTheyAreAsked) {
  Harness h({.expert_slots = 4});
  h.control->Hold();
  const std::vector<PieceId> ids = h.Experts(0, {0, 1, 2});
  h.Announce(0, ids);
  h.control->AwaitSubmitted(h.opened_requests + 3);
  EXPECT_EQ(h.cache->stats().expert.hits + h.cache->stats().expert.misses, 0) << "to be read is not to be used";
  h.control->Release();
  h.Pass(0, ids);
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert.misses, 3) << "they were read on demand, however early";
  EXPECT_EQ(stats.expert.hits, 0);
}

TEST(PieceCache, GivesWhatIsInMemoryFirst) {
  Harness h({.expert_slots = 4});
  h.Touch(h.model.Expert(0, 3));
  h.Touch(h.model.Expert(0, 2));
  h.control->Hold();
  std::vector<PieceId> ids = h.Experts(0, {0, 2, 1, 3});
  h.Announce(0, ids);
  EXPECT_EQ(h.cache->AcquireAny(ids, Arrived::kAll).value().piece(), h.model.Expert(0, 2));
  std::erase(ids, h.model.Expert(0, 2));
  EXPECT_EQ(h.cache->AcquireAny(ids, Arrived::kAll).value().piece(), h.model.Expert(0, 3));
  h.control->Release();
}

TEST(PieceCache, NeverEvictsAnAnnouncedExpertBeforeItsUse) {
  Harness h({.model = {.experts = 8}, .expert_slots = 4});
  for (const int expert : {0, 1, 2, 3}) h.Touch(h.model.Expert(0, expert));
  // 0 is the least recently used, and announced together with four that are missing.
  EXPECT_EQ(h.Pass(0, h.Experts(0, {4, 5, 0, 6, 7})).size(), 5u);
  EXPECT_EQ(h.cache->stats().expert.hits, 1);
  EXPECT_EQ(h.cache->stats().expert.misses, 8);
}

TEST(PieceCache, UnionsLargerThanTheCacheStreamThroughInWaves) {
  for (const int32_t slots : {1, 2, 3, 7}) {
    Harness h({.model = {.layers = 3, .experts = 32}, .expert_slots = slots, .shuffle_seed = 5});
    std::vector<int> all(32);
    for (int i = 0; i < 32; ++i) all[static_cast<size_t>(i)] = i;
    for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(h.Pass(layer, h.Experts(layer, all)).size(), 32u);
    const CacheStats stats = h.cache->stats();
    EXPECT_EQ(stats.expert.hits + stats.expert.misses, 96);
    EXPECT_EQ(stats.expert.misses, 96);
    EXPECT_LE(stats.resident_peak_bytes, h.plan.expert_region_bytes);
  }
}

TEST(PieceCache, WavesGoOnWhileALeaseIsHeld) {
  Harness h({.model = {.experts = 16}, .expert_slots = 2});
  const Lease held = h.cache->Acquire(h.model.Expert(1, 0)).value();
  std::vector<int> all(16);
  for (int i = 0; i < 16; ++i) all[static_cast<size_t>(i)] = i;
  EXPECT_EQ(h.Pass(0, h.Experts(0, all)).size(), 16u);
  EXPECT_TRUE(h.model.IsRight(held));
}

TEST(PieceCache, AnnouncedExpertsNobodyCameForDoNotBlock) {
  Harness h({.model = {.experts = 8}, .expert_slots = 2});
  h.Announce(0, h.Experts(0, {0, 1, 2, 3}));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 7)));
  EXPECT_FALSE(h.Touch(h.model.Expert(1, 7)));
  EXPECT_EQ(h.Pass(1, h.Experts(1, {0, 1, 2})).size(), 3u);
}

TEST(PieceCache, ConcurrentRequestsForOnePieceReadItOnce) {
  Harness h({.expert_slots = 4});
  h.control->Hold();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Result<Lease> lease = h.cache->Acquire(h.model.Expert(2, 1));
      EXPECT_TRUE(lease.ok() && h.model.IsRight(*lease));
    });
  }
  h.control->AwaitSubmitted(h.opened_requests + 1);
  h.control->Release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(h.control->SubmittedCount(), h.opened_requests + 1);
}

// Fails the first `count` reads of the file's window at `piece`.
FakeQueueControl::Fault FailFirst(const Harness& h, PieceId piece, int count) {
  const Extent extent = h.model.index.piece(piece).extents.front();
  return [extent, left = count](const ReadRequest& request) mutable {
    if (request.file != extent.file || request.offset != extent.file_offset || left == 0) return Status();
    --left;
    return IoError("read of 4096 bytes at 123 in file1 failed: Input/output error (EIO)");
  };
}

// Checklist item 30.
TEST(PieceCache, FailedReadNamesThePieceAndIsTriedAgain) {
  Harness h({});
  const PieceId id = h.model.Expert(1, 2);
  h.control->SetFault(FailFirst(h, id, 1));
  const Result<Lease> failed = h.cache->Acquire(id);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kIo);
  EXPECT_EQ(failed.status().message(),
            "layer 1 expert 2: read of 4096 bytes at 123 in file1 failed: Input/output error (EIO)");
  EXPECT_EQ(h.cache->stats().resident_bytes, 0);
  EXPECT_FALSE(h.Touch(id));
  EXPECT_TRUE(h.Touch(id));
}

TEST(PieceCache, FailedReadReachesEveryWaiter) {
  Harness h({});
  const PieceId id = h.model.Expert(1, 2);
  h.control->SetFault(FailFirst(h, id, 1));
  h.control->Hold();
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { failures += h.cache->Acquire(id).ok() ? 0 : 1; });
  }
  h.control->AwaitSubmitted(h.opened_requests + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  h.control->Release();
  for (std::thread& thread : threads) thread.join();
  // A thread that came after the failure reads again and succeeds.
  EXPECT_GE(failures, 1);
  EXPECT_EQ(h.control->SubmittedCount(), h.opened_requests + (failures == 3 ? 1 : 2));
}

TEST(PieceCache, FailedReadOfAnAnnouncedExpertFailsThePassWhenItWasAnnouncedForIt) {
  Harness h({});
  const std::vector<PieceId> ids = h.Experts(0, {0, 1});
  h.control->SetFault(FailFirst(h, ids[0], 1));
  h.Announce(0, ids);
  ASSERT_TRUE(Eventually([&] { return h.cache->stats().expert.bytes_read > 0; }));
  EXPECT_TRUE(h.cache->AcquireAny(std::span(&ids[1], 1), Arrived::kAll).ok());
  EXPECT_FALSE(h.cache->AcquireAny(std::span(&ids[0], 1), Arrived::kAll).ok());
  EXPECT_EQ(h.Pass(0, ids).size(), 2u) << "the next pass reads it again";
}

TEST(PieceCache, FailedPrefetchIsSilent) {
  Harness h({.model = {.layers = 4, .experts = 0}, .pinned_cores = 0});
  h.control->SetFault(FailFirst(h, h.Core(1), 1));
  for (int round = 0; round < 2; ++round) {
    for (int layer = 0; layer < 4; ++layer) h.Touch(h.Core(layer));
  }
}

TEST(PieceCache, FailureOfTheFirstReadsFailsCreation) {
  FakeModel model({});
  auto control = std::make_shared<FakeQueueControl>(model);
  control->SetFault([](const ReadRequest&) { return DataLossError("file0 ended early"); });
  const MemoryPlan plan = MakeMemoryPlan(model.layout, model.index, {.budget_bytes = 1 << 20}, {}).value();
  const auto cache = PieceCache::Create(model.layout, model.index, plan, std::make_unique<FakeReadQueue>(control), {});
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.status().message(), "norm and head: file0 ended early");
  EXPECT_TRUE(control->IsGone());
}

TEST(PieceCache, DestructorWaitsForReadsInFlight) {
  Harness h({});
  h.control->Hold();
  h.Announce(0, h.Experts(0, {0, 1, 2, 3}));
  h.control->AwaitSubmitted(h.opened_requests + 1);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(h.control->IsGone());
    h.control->Release();
  });
  h.cache.reset();
  EXPECT_EQ(h.control->InFlight(), 0);
  release.join();
}

// A failed read gives its slot back, and a slot is what the other announced experts wait for.
TEST(PieceCache, DestructorStartsNothingWhenReadsFail) {
  Harness h({.expert_slots = 2});
  h.control->Hold();
  h.control->SetFault([](const ReadRequest&) { return IoError("EIO"); });
  h.cache->BeginPass({.rows = 1000});  // whose reads are the I/O thread's
  h.Announce(0, h.Experts(0, {0, 1, 2, 3}));
  h.control->AwaitSubmitted(h.opened_requests + 2);
  // Both reads are with the queue, so only the destructor wakes the reader.
  std::thread release([&, wakes = h.control->Wakes()] {
    h.control->AwaitWakes(wakes + 1);
    h.control->Release();
  });
  h.cache.reset();
  release.join();
  EXPECT_EQ(h.control->SubmittedCount(), h.opened_requests + 2);
}

TEST(PieceCache, DemandGoesBeforePrefetch) {
  Harness h({.model = {.layers = 3, .core_bytes = 12 << 20}, .pinned_cores = 3});
  h.control->HoldIf(RequestsOf(h.Core(1)));
  h.Touch(h.Core(0));
  const int64_t core_0 = static_cast<int64_t>(h.model.index.piece(h.Core(0)).extents.size());
  h.control->AwaitSubmitted(h.opened_requests + core_0 + 4);
  // The prefetch hangs with most of it unread; experts are not behind it.
  for (int layer = 0; layer < 3; ++layer) h.Pass(layer, h.Experts(layer, {0, 1}));
  EXPECT_EQ(h.control->SubmittedCount(), h.opened_requests + core_0 + 4 + 6);
  EXPECT_EQ(h.control->InFlight(), 4);
  h.control->Release();
}

// The real queues over real files, both backends.
TEST(PieceCache, WorksOverFiles) {
  for (const IoBackend backend : {IoBackend::kAuto, IoBackend::kPread}) {
    Harness h({.model = {.layers = 6, .experts = 8}, .expert_slots = 5, .pinned_cores = 1});
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("nunspark_{}", ::getpid());
    std::filesystem::create_directories(folder);
    std::vector<std::string> paths;
    for (const std::vector<uint8_t>& file : h.model.files()) {
      paths.push_back(folder / fmt::format("file{}", paths.size()));
      std::ofstream(paths.back())
          .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
    }
    ReadQueueOptions options;
    options.backend = backend;
    h.cache =
        PieceCache::Create(h.model.layout, h.model.index, h.plan, OpenReadQueue(paths, options).value(), {}).value();
    const auto resident =
        CreateResidentSource(h.model.layout, h.model.index, OpenReadQueue(paths, options).value()).value();
    for (int pass = 0; pass < 5; ++pass) {
      const std::vector<int32_t> rows = {pass, 99 - pass, 7};
      std::vector<float> a(3 * 128);
      std::vector<float> b(3 * 128);
      ASSERT_TRUE(h.cache->ReadRows(h.model.layout.embed, rows, a.data()).ok());
      ASSERT_TRUE(resident->ReadRows(h.model.layout.embed, rows, b.data()).ok());
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
      for (int layer = 0; layer < 6; ++layer) {
        h.Touch(h.Core(layer));
        EXPECT_EQ(h.Pass(layer, h.Experts(layer, {pass, 7, 5 + pass % 2})).size(), 3u);
      }
      h.Touch(h.model.layout.norm_head);
    }
    h.cache.reset();
    std::filesystem::remove_all(folder);
  }
}

// The same operations on the cache and on a model of what an LRU with announced sets holds.
class NaiveLru {
 public:
  explicit NaiveLru(size_t slots) : slots_(slots) {}
  bool Touch(PieceId id) {
    const auto found = std::find(order_.begin(), order_.end(), id);
    const bool hit = found != order_.end();
    if (hit) order_.erase(found);
    if (!hit && order_.size() == slots_) order_.pop_back();
    order_.push_front(id);
    return hit;
  }

 private:
  size_t slots_;
  std::list<PieceId> order_;
};

TEST(PieceCache, SingleAcquiresMatchANaiveLru) {
  for (const int32_t slots : {1, 3, 8, 20}) {
    Harness h({.model = {.layers = 4, .experts = 8}, .expert_slots = slots, .shuffle_seed = 3});
    NaiveLru naive(static_cast<size_t>(slots));
    std::mt19937 random(11);
    for (int step = 0; step < 2000; ++step) {
      const PieceId id = h.model.Expert(static_cast<int>(random() % 4), static_cast<int>(random() % 8));
      ASSERT_EQ(h.Touch(id), naive.Touch(id)) << step;
    }
  }
}

// Whole passes with random faults, leases held across, embedding rows in between: bytes are right, the budget holds,
// leased pieces stay as they are. Checklist item 17.
TEST(PieceCache, RandomOperationsKeepBytesAndBudget) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const int layers = 5;
    static std::vector<PieceId> warm;
    Harness h(
        {.model = {.layers = layers, .experts = 12, .first_moe_layer = 1},
         .expert_slots = static_cast<int32_t>(3 + seed * 3),
         .pinned_cores = static_cast<int32_t>(seed % 6),
         .cache = {.prefetch = seed % 2 == 0, .warm_window = static_cast<int32_t>(1 + seed % 3), .warm_start = warm},
         .shuffle_seed = seed,
         .faults = FaultPlan{.faults = {{.kind = Fault::Kind::kNone, .request = 0}},  // opening succeeds
                             .seed = seed,
                             .errors_per_mille = 20,
                             .shorts_per_mille = 5,
                             .delays_per_mille = 50}});
    std::mt19937 random(seed);
    int errors = 0;
    for (int pass = 0; pass < 150; ++pass) {
      std::vector<Lease> held;
      for (int layer = 0; layer < layers; ++layer) {
        Result<Lease> core = h.cache->Acquire(h.Core(layer));
        if (!core.ok()) {
          ++errors;
          break;
        }
        ASSERT_TRUE(h.model.IsRight(*core));
        if (layer == 0) continue;
        std::vector<PieceId> wanted;
        for (int expert = 0; expert < 12; ++expert) {
          if (random() % 3 == 0) wanted.push_back(h.model.Expert(layer, expert));
        }
        if (random() % 8 != 0) h.Announce(layer, wanted);
        while (!wanted.empty()) {
          Result<Lease> lease = h.cache->AcquireAny(wanted, Arrived::kAll);
          if (!lease.ok()) {
            ++errors;
            break;
          }
          ASSERT_TRUE(h.model.IsRight(*lease));
          ASSERT_EQ(std::erase(wanted, lease->piece()), 1u);
          if (held.size() < 2 && random() % 4 == 0) held.push_back(std::move(lease).value());
        }
        for (const Lease& lease : held) ASSERT_TRUE(h.model.IsRight(lease));
        if (random() % 2 == 0) held.clear();
        const CacheStats stats = h.cache->stats();
        ASSERT_LE(stats.resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
      }
      if (pass % 10 == 0) {
        const std::vector<int32_t> rows = {static_cast<int32_t>(random() % 100), static_cast<int32_t>(random() % 100)};
        std::vector<float> out(2 * 128);
        errors += h.cache->ReadRows(h.model.layout.embed, rows, out.data()).ok() ? 0 : 1;
      }
    }
    EXPECT_GT(errors, 0);
    EXPECT_GT(h.cache->stats().expert.hits, 0);
    EXPECT_EQ(h.cache->stats().warm_start.issued > 0, seed > 1);
    // The next one begins with what this one used most; here all the same, in any order.
    warm.clear();
    for (int layer = 1; layer < layers; ++layer) {
      for (int expert = 0; expert < 12; ++expert) warm.push_back(h.model.Expert(layer, expert));
    }
    std::shuffle(warm.begin(), warm.end(), random);
  }
}

// Several threads take and give leases at once, others watch: for the thread sanitizer.
TEST(PieceCache, ManyThreadsAtOnce) {
  Harness h({.model = {.layers = 6, .experts = 8}, .expert_slots = 12, .pinned_cores = 3, .shuffle_seed = 9});
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&h, thread] {
      std::mt19937 random(thread);
      for (int step = 0; step < 400; ++step) {
        const int layer = static_cast<int>(random() % 6);
        // One ring slot for each of two threads at most, so that nobody waits for somebody who waits.
        if (thread < 2 && step % 3 == 0) {
          const Result<Lease> core = h.cache->Acquire(h.Core(layer));
          ASSERT_TRUE(core.ok() && h.model.IsRight(*core));
        } else {
          const std::vector<PieceId> ids = {h.model.Expert(layer, static_cast<int>(random() % 8)),
                                            h.model.Expert(layer, static_cast<int>(random() % 8))};
          if (thread == 0) h.Announce(layer, ids);
          const Result<Lease> lease = h.cache->AcquireAny(ids, Arrived::kAll);
          ASSERT_TRUE(lease.ok() && h.model.IsRight(*lease));
        }
      }
    });
  }
  std::thread watcher([&] {
    while (!done) {
      const CacheStats stats = h.cache->stats();
      ASSERT_LE(stats.resident_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  watcher.join();
}

TEST(ResidentSource, HoldsEverything) {
  FakeModel model({.tied = false});
  auto control = std::make_shared<FakeQueueControl>(model);
  control->Shuffle(4);
  const auto source = CreateResidentSource(model.layout, model.index, std::make_unique<FakeReadQueue>(control)).value();
  EXPECT_TRUE(control->IsGone());
  for (PieceId id = 0; id < model.index.size(); ++id) EXPECT_TRUE(model.IsRight(source->Acquire(id).value())) << id;
  const std::vector<PieceId> two = {3, 2};
  EXPECT_TRUE(model.IsRight(source->AcquireAny(two, Arrived::kAll).value()));
}

TEST(ResidentSource, FailedReadFailsCreation) {
  FakeModel model({});
  auto control = std::make_shared<FakeQueueControl>(model);
  control->SetFault([](const ReadRequest& request) { return request.file == 1 ? IoError("EIO") : Status(); });
  const auto source = CreateResidentSource(model.layout, model.index, std::make_unique<FakeReadQueue>(control));
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.status().message(), HasSubstr("expert"));
}

}  // namespace
}  // namespace nunspark
