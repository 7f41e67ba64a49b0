// Reads that the drive does not answer.
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "weights/cache_harness.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

PieceCacheOptions Impatient() { return {.prefetch = false, .read_timeout = std::chrono::milliseconds(20)}; }

// Every request for the piece that was submitted so far, and no later one.
void HoldOnly(Harness& h, const ReadRequest& held) {
  h.control->HoldIf([held](const ReadRequest& request) { return request.tag == held.tag; });
}

FakeQueueControl::Filter RequestsOf(PieceId piece) {
  return [piece](const ReadRequest& request) {
    return static_cast<uint32_t>(request.tag) == static_cast<uint32_t>(piece);
  };
}

TEST(HungReads, AnUnansweredReadFailsWithItsPlaceAndItsSlotIsQuarantined) {
  Harness h({.model = {.experts = 8}, .expert_slots = 3, .cache = Impatient()});
  const PieceId id = h.model.Expert(2, 1);
  h.control->HoldIf(RequestsOf(id));
  const Result<Lease> failed = h.cache->Acquire(id);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kIo);
  const Extent extent = h.model.index.piece(id).extents.front();
  EXPECT_EQ(failed.status().message(),
            fmt::format("layer 2 expert 1: read of {} bytes at {} in file1 has not returned for 0.02 s", extent.bytes,
                        extent.file_offset));
  EXPECT_EQ(h.cache->stats().quarantined_slots, 1);
  EXPECT_EQ(h.cache->stats().read_timeouts, 1);

  // The others work, and the piece itself is read again, into another slot.
  HoldOnly(h, h.control->Submitted().back());
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 0)));
  EXPECT_FALSE(h.Touch(id));
  EXPECT_TRUE(h.Touch(id));
  EXPECT_TRUE(h.Touch(h.model.Expert(0, 0)));
  EXPECT_FALSE(h.Touch(h.model.Expert(0, 1)));
  EXPECT_FALSE(h.Touch(id)) << "two of three slots are left";
  EXPECT_EQ(h.cache->stats().quarantined_slots, 1);

  h.control->Release();
  ASSERT_TRUE(Eventually([&] { return h.cache->stats().quarantined_slots == 0; }));
  EXPECT_TRUE(h.AllSlotsWork(1));
}

TEST(HungReads, WhenAllSlotsHangTheErrorSaysSo) {
  Harness h({.model = {.experts = 8}, .expert_slots = 2, .cache = Impatient()});
  h.control->HoldIf([](const ReadRequest& request) { return request.file == 1; });
  for (int expert = 0; expert < 2; ++expert) EXPECT_FALSE(h.cache->Acquire(h.model.Expert(0, expert)).ok());
  EXPECT_THAT(h.cache->Acquire(h.model.Expert(0, 2)).status().message(), HasSubstr("2 slots are held by reads"));
  h.control->Release();
  ASSERT_TRUE(Eventually([&] { return h.cache->stats().quarantined_slots == 0; }));
  EXPECT_TRUE(h.AllSlotsWork(0));
}

TEST(HungReads, APinnedCoreFailsAtOnceUntilTheReadReturns) {
  Harness h({.cache = Impatient()});
  h.control->HoldIf(RequestsOf(h.Core(1)));
  EXPECT_THAT(h.cache->Acquire(h.Core(1)).status().message(), HasSubstr("layer 1 core: read of"));
  EXPECT_FALSE(h.cache->Acquire(h.Core(1)).ok());
  EXPECT_EQ(h.cache->stats().read_timeouts, 1);
  EXPECT_FALSE(h.Touch(h.Core(0)));
  h.control->Release();
  ASSERT_TRUE(Eventually([&] { return h.cache->stats().quarantined_slots == 0; }));
  EXPECT_FALSE(h.Touch(h.Core(1)));
  EXPECT_TRUE(h.Touch(h.Core(1)));
}

TEST(HungReads, ARingSlotComesBack) {
  Harness h({.model = {.layers = 6, .experts = 0}, .pinned_cores = 0, .cache = Impatient()});
  h.control->HoldIf(RequestsOf(h.Core(2)));
  EXPECT_FALSE(h.cache->Acquire(h.Core(2)).ok());
  HoldOnly(h, h.control->Submitted().back());
  for (int layer = 0; layer < 6; ++layer) EXPECT_FALSE(h.Touch(h.Core(layer)));
  h.control->Release();
  ASSERT_TRUE(Eventually([&] { return h.cache->stats().quarantined_slots == 0; }));
  const Lease first = h.cache->Acquire(h.Core(0)).value();
  const Lease second = h.cache->Acquire(h.Core(1)).value();
  EXPECT_TRUE(h.model.IsRight(first) && h.model.IsRight(second));
}

TEST(HungReads, AnExpertThatWasLeasedInPartKeepsItsSlotUntilBothHaveDone) {
  Harness h({.model = {.experts = 8, .expert_part_bytes = 20'000, .divide_bytes = 1},
             .expert_slots = 2,
             .cache = Impatient()});
  const std::vector<PieceId> ids = h.Experts(1, {3});
  const Extent rest = h.model.index.piece(ids[0]).extents.back();
  for (const bool lease_goes_first : {true, false}) {
    h.control->HoldIf([rest](const ReadRequest& request) { return request.offset == rest.file_offset; });
    h.Announce(1, ids);
    Lease lease = h.cache->AcquireAny(ids, Arrived::kFirstParts).value();
    EXPECT_THAT(h.cache->AwaitRest(lease).message(), HasSubstr("has not returned"));
    EXPECT_TRUE(h.model.IsRight(lease, 2));
    if (lease_goes_first) lease.Release();
    EXPECT_EQ(h.cache->stats().quarantined_slots, 1);
    h.control->Release();
    ASSERT_TRUE(Eventually([&] { return h.cache->stats().quarantined_slots == 0; }));
    lease.Release();
    EXPECT_TRUE(h.AllSlotsWork(1));
    h.AllSlotsWork(0);
  }
}

TEST(HungReads, AnEmbeddingRowFailsAndWorksOnceTheDriveDoes) {
  Harness h({.cache = Impatient()});
  const std::vector<int32_t> rows = {5, 9};
  std::vector<float> out(2 * 128);
  h.control->Hold();
  EXPECT_THAT(h.cache->ReadRows(h.model.layout.embed, rows, out.data()).message(), HasSubstr("has not returned"));
  EXPECT_FALSE(h.cache->ReadRows(h.model.layout.embed, rows, out.data()).ok());
  h.control->Release();
  EXPECT_TRUE(h.cache->ReadRows(h.model.layout.embed, rows, out.data()).ok());
  const auto resident =
      CreateResidentSource(h.model.layout, h.model.index,
                           std::make_unique<FakeReadQueue>(std::make_shared<FakeQueueControl>(h.model)))
          .value();
  std::vector<float> want(2 * 128);
  ASSERT_TRUE(resident->ReadRows(h.model.layout.embed, rows, want.data()).ok());
  EXPECT_EQ(out, want);
}

TEST(HungReads, ThoseOfACacheThatEndsAreLeftToTheSystem) {
  for (const bool abandoned : {true, false}) {
    Harness h({.model = {.experts = 8}, .expert_slots = 3, .cache = Impatient()});
    const std::vector<PieceId> ids = h.Experts(2, {1});
    h.control->HoldIf(RequestsOf(ids[0]));
    h.Announce(2, ids);
    h.control->AwaitSubmitted(h.opened_requests + 1);
    if (abandoned) {
      EXPECT_FALSE(h.cache->Acquire(ids[0]).ok());
    }
    h.cache.reset();
    EXPECT_FALSE(h.control->IsGone()) << "what is read into is still there, and so is the queue";
    h.control->Release();
    while (h.control->InFlight() > 0) std::this_thread::yield();
  }
}

// A slow drive is not a dead one: as long as anything comes, nobody gives up.
TEST(HungReads, ADriveThatAnswersSomethingIsWaitedFor) {
  Harness h({.model = {.layers = 4, .experts = 8},
             .expert_slots = 8,
             .cache = {.prefetch = false, .read_timeout = std::chrono::milliseconds(400)}});
  const PieceId id = h.model.Expert(0, 0);
  h.control->HoldIf(RequestsOf(id));
  std::thread slow([&] { EXPECT_FALSE(h.Touch(id)); });
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(h.cache->Acquire(h.model.Expert(1 + i % 3, i / 3 % 8)).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  h.control->Release();
  slow.join();
  EXPECT_EQ(h.cache->stats().read_timeouts, 0);
}

}  // namespace
}  // namespace nunspark
