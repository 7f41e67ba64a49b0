// Experts that are read because somebody expects that they will be wanted.
#include <algorithm>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "weights/cache_harness.h"

namespace nunspark {
namespace {

Harness::Options Predicting(int32_t slots) {
  return {.model = {.layers = 4, .experts = 16},
          .expert_slots = slots,
          .cache = {.prefetch = true, .lookahead = Governed::kOn, .expert_prefetch = Governed::kOff}};
}

int64_t BytesOf(const Harness& h, const std::vector<PieceId>& ids) {
  int64_t bytes = 0;
  for (const PieceId id : ids) bytes += h.SlotBytes(id);
  return bytes;
}

// Waits until so many bytes more of experts have been read than at `before`.
void AwaitBytes(const Harness& h, const CacheStats& before, int64_t bytes) {
  EXPECT_TRUE(Eventually([&] { return h.cache->stats().expert.bytes_read - before.expert.bytes_read >= bytes; }));
}

TEST(Prediction, IsReadAheadAndItsUseIsAHit) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  EXPECT_EQ(h.cache->PredictionsWanted(), 12);
  h.cache->Predict(1, h.Experts(1, {3, 5}));
  AwaitBytes(h, {}, BytesOf(h, h.Experts(1, {3, 5})));
  h.Pass(1, h.Experts(1, {3, 5, 7}));
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert.hits, 2);
  EXPECT_EQ(stats.expert.misses, 1);
  EXPECT_EQ(stats.expert_prefetch.issued, 2);
  EXPECT_EQ(stats.expert_prefetch.used, 2);
  EXPECT_EQ(stats.expert_prefetch.wasted, 0);
  EXPECT_EQ(stats.expert_prefetch.used_bytes, stats.expert_prefetch.issued_bytes);
}

TEST(Prediction, DemandJoinsAReadThatIsOnItsWay) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  h.control->Hold();
  h.cache->Predict(1, h.Experts(1, {3}));
  h.control->AwaitSubmitted(h.opened_requests + 1);
  std::thread release([&] { h.control->Release(); });
  h.Pass(1, h.Experts(1, {3}));
  release.join();
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert_prefetch.used, 1);
  EXPECT_EQ(h.control->SubmittedCount(), h.opened_requests + 1) << "read once";
}

TEST(Prediction, TakesAtMostAFifthOfTheSlotsAndDropsTheOldest) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  for (int expert = 0; expert < 16; ++expert) h.Touch(h.model.Expert(0, expert));
  std::vector<int> all(16);
  for (int i = 0; i < 16; ++i) all[static_cast<size_t>(i)] = i;
  CacheStats before = h.cache->stats();
  h.cache->Predict(1, h.Experts(1, all));
  AwaitBytes(h, before, BytesOf(h, h.Experts(1, {0, 1, 2, 3})));
  EXPECT_EQ(h.cache->stats().expert_prefetch.issued, 4);
  before = h.cache->stats();
  h.cache->Predict(2, h.Experts(2, {0, 1}));
  AwaitBytes(h, before, BytesOf(h, h.Experts(2, {0, 1})));
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert_prefetch.issued, 6);
  EXPECT_EQ(stats.expert_prefetch.wasted, 2) << "the two oldest";
  for (int expert = 0; expert < 16; ++expert) EXPECT_TRUE(h.Touch(h.model.Expert(0, expert)));
  EXPECT_LE(stats.resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
}

TEST(Prediction, IsKeptForItsPassAndTheNextThenWasted) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  h.cache->Predict(1, h.Experts(1, {3, 5}));
  AwaitBytes(h, {}, BytesOf(h, h.Experts(1, {3, 5})));
  h.Pass(1, h.Experts(1, {7}));
  h.cache->BeginPass({});
  EXPECT_EQ(h.cache->stats().expert_prefetch.wasted, 0);
  h.Pass(1, h.Experts(1, {3}));
  EXPECT_EQ(h.cache->stats().expert_prefetch.used, 1);
  h.cache->BeginPass({});
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert_prefetch.wasted, 1);
  EXPECT_EQ(stats.expert_prefetch.wasted_bytes, h.SlotBytes(h.model.Expert(1, 5)));
}

TEST(Prediction, WhatRoutingDoesNotChooseIsReadNoFurther) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  // A demand read that hangs keeps predictions from starting.
  h.control->Hold();
  const std::vector<PieceId> busy = h.Experts(0, {0});
  h.Announce(0, busy);
  h.control->AwaitSubmitted(h.opened_requests + 1);
  h.cache->Predict(1, h.Experts(1, {3, 5}));
  h.Announce(1, h.Experts(1, {5}));
  h.control->AwaitSubmitted(h.opened_requests + 2);
  h.control->Release();
  h.Pass(1, h.Experts(1, {5}));
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.expert_prefetch.issued, 2);
  EXPECT_EQ(stats.expert_prefetch.withdrawn, 1);
  EXPECT_EQ(stats.expert_prefetch.used, 1);
  EXPECT_EQ(stats.expert_prefetch.wasted, 0);
  EXPECT_TRUE(h.AllSlotsWork(2));
}

// What of its read is still on its way is no beginning of another one.
TEST(Prediction, OfOneThatWasWithdrawnNoPartIsLeased) {
  Harness::Options options = Predicting(5);
  options.model = {.layers = 2,
                   .experts = 2,
                   .first_moe_layer = 1,
                   .expert_part_bytes = 6 << 20,  // more than is read ahead at once
                   .divide_bytes = 1};
  Harness h(options);
  const std::vector<PieceId> ids = h.Experts(1, {1});
  const int64_t rest = h.model.index.piece(ids[0]).extents.back().file_offset;
  h.control->HoldIf([rest](const ReadRequest& request) { return request.file == 1 && request.offset >= rest; });
  h.cache->BeginPass({});
  h.cache->Predict(1, ids);
  while (h.control->Submitted().back().offset < rest) std::this_thread::yield();
  h.Pass(1, h.Experts(1, {0}));
  h.cache->BeginPass({});
  h.Announce(1, ids);
  EXPECT_FALSE(h.cache->AcquireReady(ids, Arrived::kFirstParts).held());
  h.control->Release();
  EXPECT_EQ(h.Pass(1, ids), ids);
  EXPECT_TRUE(h.AllSlotsWork(1));
}

// Checklist item 35.
TEST(Prediction, PeekIsNoUseAndSkipsACoreThatIsAbsent) {
  Harness h(Predicting(20));
  h.cache->BeginPass({});
  EXPECT_FALSE(h.cache->Peek(h.Core(3)).held());
  EXPECT_EQ(h.cache->stats().lookahead_skipped, 1);
  h.Touch(h.Core(3));
  const CacheStats before = h.cache->stats();
  const Lease lease = h.cache->Peek(h.Core(3));
  EXPECT_TRUE(lease.held() && h.model.IsRight(lease));
  EXPECT_EQ(h.cache->stats().core.hits, before.core.hits);
}

TEST(Prediction, IsNotAskedForWhereItIsOff) {
  for (const bool prefetch : {false, true}) {
    Harness::Options options = Predicting(20);
    options.cache.prefetch = prefetch;
    if (prefetch) options.cache.lookahead = Governed::kOff;
    Harness h(options);
    h.cache->BeginPass({});
    EXPECT_EQ(h.cache->PredictionsWanted(), 0);
  }
  Harness h(Predicting(20));
  h.cache->BeginPass({.rows = 2});
  EXPECT_EQ(h.cache->PredictionsWanted(), 0);

  Harness ample(Predicting(64));
  ample.cache->BeginPass({});
  EXPECT_EQ(ample.cache->PredictionsWanted(), 12);
  for (int layer = 0; layer < 4; ++layer) EXPECT_TRUE(ample.AllSlotsWork(layer));
  EXPECT_EQ(ample.cache->PredictionsWanted(), 0) << "all experts are in memory";
}

// Right and wrong predictions, faults, few slots: bytes are right, the budget holds, every read ahead is accounted for.
TEST(Prediction, RandomPredictionsKeepBytesAndBudget) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    Harness::Options options = Predicting(static_cast<int32_t>(6 + seed * 4));
    options.shuffle_seed = seed;
    options.faults = FaultPlan{.faults = {{.kind = Fault::Kind::kNone, .request = 0}},
                               .seed = seed,
                               .errors_per_mille = seed % 2 == 0 ? 30 : 0,
                               .delays_per_mille = 100};
    Harness h(options);
    std::mt19937 random(seed);
    const auto some = [&](int layer, int count) {
      std::vector<PieceId> ids;
      for (int i = 0; i < count; ++i) {
        const PieceId id = h.model.Expert(layer, static_cast<int>(random() % 16));
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
      }
      return ids;
    };
    for (int pass = 0; pass < 100; ++pass) {
      h.cache->BeginPass({});
      std::vector<PieceId> predicted;
      for (int layer = 0; layer < 4; ++layer) {
        std::vector<PieceId> wanted = some(layer, 3);
        if (!predicted.empty() && random() % 2 == 0) wanted = {predicted.front()};
        h.Announce(layer, wanted);
        bool failed = false;
        while (!wanted.empty() && !failed) {
          const Result<Lease> lease = h.cache->AcquireAny(wanted, Arrived::kAll);
          failed = !lease.ok();
          if (failed) continue;
          ASSERT_TRUE(h.model.IsRight(*lease));
          std::erase(wanted, lease->piece());
        }
        if (failed) break;
        if (layer + 1 < 4) {
          predicted = some(layer + 1, 5);
          h.cache->Predict(layer + 1, predicted);
        }
      }
      const CacheStats stats = h.cache->stats();
      const PrefetchStats& p = stats.expert_prefetch;
      ASSERT_LE(stats.resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
      ASSERT_LE(p.used + p.wasted + p.withdrawn, p.issued);
      ASSERT_LE(p.issued - p.used - p.wasted - p.withdrawn, h.plan.expert_slots / 5) << "staged at the same time";
    }
    EXPECT_GT(h.cache->stats().expert_prefetch.used, 0);
    if (seed % 2 != 0) {
      EXPECT_TRUE(h.AllSlotsWork(0));
    }
  }
}

}  // namespace
}  // namespace nunspark
