// Experts whose first parts are used while the rest is on its way.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/cache_harness.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

Harness::Options Divided(int32_t slots = 4) {
  return {.model = {.experts = 8, .expert_part_bytes = 20'000, .divide_bytes = 1}, .expert_slots = slots};
}

// The request for what comes after an expert's first parts.
FakeQueueControl::Filter RestOf(const Harness& h, PieceId id) {
  const Extent rest = h.model.index.piece(id).extents.back();
  return [rest](const ReadRequest& request) { return request.file == rest.file && request.offset == rest.file_offset; };
}

TEST(PartialArrival, FirstPartsAreLeasedWhileTheRestIsOnItsWay) {
  Harness h(Divided());
  const std::vector<PieceId> ids = h.Experts(1, {3});
  ASSERT_EQ(h.model.index.piece(ids[0]).extents.size(), 2u);
  h.control->HoldIf(RestOf(h, ids[0]));
  h.Announce(1, ids);
  const Lease lease = h.cache->AcquireAny(ids, Arrived::kFirstParts).value();
  EXPECT_EQ(lease.arrived(), Arrived::kFirstParts);
  EXPECT_TRUE(h.model.IsRight(lease, 2));
  EXPECT_FALSE(h.cache->AcquireReady(ids, Arrived::kAll).held());
  std::thread release([&] { h.control->Release(); });
  EXPECT_TRUE(h.cache->AwaitRest(lease).ok());
  EXPECT_TRUE(h.model.IsRight(lease));
  release.join();
  EXPECT_EQ(h.cache->stats().expert.misses, 1);
  EXPECT_EQ(h.cache->AcquireAny(ids, Arrived::kFirstParts)->arrived(), Arrived::kAll);
}

TEST(PartialArrival, WhoWantsAllWaitsForAll) {
  Harness h(Divided());
  const PieceId id = h.model.Expert(0, 0);
  h.control->HoldIf(RestOf(h, id));
  std::atomic<bool> done = false;
  std::thread forward([&] {
    EXPECT_FALSE(h.Touch(id));
    done = true;
  });
  h.control->AwaitSubmitted(h.opened_requests + 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(done);
  h.control->Release();
  forward.join();
}

TEST(PartialArrival, AReadThatFailsLaterFailsThePassAndLosesNoSlot) {
  Harness h(Divided(2));
  const std::vector<PieceId> ids = h.Experts(1, {3});
  const FakeQueueControl::Filter rest = RestOf(h, ids[0]);
  h.control->HoldIf(rest);
  h.control->SetFault([&](const ReadRequest& request) { return rest(request) ? IoError("EIO") : Status(); });
  for (int round = 0; round < 3; ++round) {
    h.Announce(1, ids);
    Lease lease = h.cache->AcquireAny(ids, Arrived::kFirstParts).value();
    EXPECT_EQ(lease.arrived(), Arrived::kFirstParts);
    h.control->Release();
    const Status status = h.cache->AwaitRest(lease);
    EXPECT_THAT(status.message(), HasSubstr("layer 1 expert 3: EIO"));
    // Others cannot get it before it is given back, and then read it again.
    EXPECT_FALSE(h.cache->AcquireReady(ids, Arrived::kFirstParts).held());
    lease.Release();
    h.control->HoldIf(rest);
  }
  h.control->SetFault(nullptr);
  h.control->Release();
  EXPECT_FALSE(h.Touch(ids[0]));
  EXPECT_TRUE(h.AllSlotsWork(1));
  EXPECT_LE(h.cache->stats().resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
}

// Every order of arrival over many passes: bytes are right when they are said to be.
TEST(PartialArrival, RandomArrivalsKeepBytes) {
  for (uint32_t seed = 1; seed < 6; ++seed) {
    Harness::Options options = Divided(3 + static_cast<int32_t>(seed) * 2);
    options.shuffle_seed = seed;
    Harness h(options);
    std::mt19937 random(seed);
    for (int pass = 0; pass < 120; ++pass) {
      const int layer = pass % 4;
      std::vector<PieceId> wanted;
      for (int expert = 0; expert < 8; ++expert) {
        if (random() % 2 == 0) wanted.push_back(h.model.Expert(layer, expert));
      }
      h.Announce(layer, wanted);
      while (!wanted.empty()) {
        const Lease lease = h.cache->AcquireAny(wanted, Arrived::kFirstParts).value();
        ASSERT_TRUE(h.model.IsRight(lease, 2));
        ASSERT_TRUE(h.cache->AwaitRest(lease).ok());
        ASSERT_TRUE(h.model.IsRight(lease));
        ASSERT_EQ(std::erase(wanted, lease.piece()), 1u);
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
