#include "weights/memory_pressure.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weights/cache_harness.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;

class MemoryPressureFiles : public testing::Test {
 protected:
  MemoryPressureFiles() : root_(fs::temp_directory_path() / fmt::format("nunspark_pressure_{}", ::getpid())) {}
  ~MemoryPressureFiles() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }

  const std::string root_;
};

TEST_F(MemoryPressureFiles, WithoutAnyThereIsNone) {
  MemoryPressure pressure(root_);
  EXPECT_FALSE(pressure.Sample());
}

TEST_F(MemoryPressureFiles, EventsOfTheGroupCountOnce) {
  Write("/proc/self/cgroup", "5:devices:/\n0::/a/b\n");
  const std::string events = "/sys/fs/cgroup/a/b/memory.events";
  Write(events, "low 0\nhigh 7\nmax 2\noom 0\n");
  MemoryPressure pressure(root_);
  EXPECT_FALSE(pressure.Sample()) << "what happened before";
  Write(events, "low 9\nhigh 8\nmax 2\noom 0\n");
  EXPECT_TRUE(pressure.Sample());
  EXPECT_FALSE(pressure.Sample());
  Write(events, "low 9\nhigh 8\nmax 3\noom 0\n");
  EXPECT_TRUE(pressure.Sample());
}

TEST_F(MemoryPressureFiles, WaitsForMemoryCountWhileTheyLast) {
  Write("/proc/pressure/memory", "some avg10=0.00 avg60=30.00 avg300=0.00 total=0\nfull avg10=50.00\n");
  MemoryPressure pressure(root_);
  EXPECT_FALSE(pressure.Sample());
  Write("/proc/pressure/memory", "some avg10=12.50 avg60=30.00 avg300=0.00 total=0\n");
  EXPECT_TRUE(pressure.Sample());
  // The group's own comes first.
  Write("/proc/self/cgroup", "0::/g\n");
  Write("/sys/fs/cgroup/g/memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n");
  EXPECT_FALSE(MemoryPressure(root_).Sample());
}

TEST(GiveBack, SlotsGoBackUnderPressureDownToOneTokensSetAndReturnWhenItIsCalm) {
  std::atomic<bool> short_of_memory = false;
  Harness h({.model = {.layers = 4, .experts = 16, .experts_per_token = 2},
             .expert_slots = 40,
             .cache = {.pressure = &short_of_memory}});
  const auto pass = [&] {
    h.cache->BeginPass({});
    for (int layer = 0; layer < 4; ++layer) {
      h.Touch(h.Core(layer));
      EXPECT_EQ(h.Pass(layer, h.Experts(layer, {layer, 7})).size(), 2u);
    }
    h.cache->EndPass();
  };
  for (int layer = 0; layer < 4; ++layer) h.AllSlotsWork(layer);
  pass();
  EXPECT_EQ(h.cache->stats().given_back_slots, 0);
  short_of_memory = true;
  int64_t before = 0;
  for (int i = 0; i < 30; ++i) {
    pass();
    EXPECT_GE(h.cache->stats().given_back_slots, before);
    before = h.cache->stats().given_back_slots;
  }
  EXPECT_EQ(before, 40 - 4 * 2);
  EXPECT_LE(h.cache->stats().resident_bytes, h.plan.core_region_bytes + 8 * h.plan.expert_slot_bytes);
  short_of_memory = false;
  for (int i = 0; i < 60 * 20; ++i) h.cache->BeginPass({});
  EXPECT_EQ(h.cache->stats().given_back_slots, 0);
  EXPECT_TRUE(h.AllSlotsWork(2));
  pass();
}

TEST(GiveBack, HappensOnlyWhereItIsAskedFor) {
  const std::atomic<bool> short_of_memory = true;
  Harness h(
      {.model = {.experts = 16}, .expert_slots = 40, .cache = {.give_back = false, .pressure = &short_of_memory}});
  for (int i = 0; i < 30; ++i) h.cache->BeginPass({});
  EXPECT_EQ(h.cache->stats().given_back_slots, 0);
}

// Checklist item 36.
TEST(LockedMemory, IsAllOrSaysWhyNot) {
  Harness locked({});
  const PieceCache::Locked& state = locked.cache->locked();
  EXPECT_NE(state.bytes > 0, !state.refusal.empty());
  Harness::Options options;
  options.cache.lock_memory = false;
  Harness unlocked(options);
  EXPECT_EQ(unlocked.cache->locked().bytes, 0);
  EXPECT_EQ(unlocked.cache->locked().refusal, "");
}

}  // namespace
}  // namespace nunspark
