#include "base/spin.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(SharedCores, AreSeenWhenASpinningThreadIsOftenKeptFromRunning) {
  SharedCores cores;
  EXPECT_FALSE(cores.Seen());
  for (int i = 0; i < 100; ++i) cores.Count(kMs, 0);
  EXPECT_FALSE(cores.Seen());
  for (int i = 0; i < 100; ++i) cores.Count(kMs, i % 4 == 0 ? kMs : 0);
  EXPECT_TRUE(cores.Seen());
}

TEST(SharedCores, AreNotSeenForAnInterruption) {
  SharedCores cores;
  for (int i = 0; i < 1000; ++i) cores.Count(kMs, i % 100 == 7 ? 3 * kMs : 0);
  EXPECT_FALSE(cores.Seen());
}

TEST(SpinUntil, EndsWhenItIsDoneOrOutOfPatience) {
  EXPECT_TRUE(SpinUntil(kMs, [] { return true; }));
  int looks = 0;
  EXPECT_TRUE(SpinUntil(1000 * kMs, [&] { return ++looks == 1000; }));
  EXPECT_FALSE(SpinUntil(kMs, [] { return false; }));
}

}  // namespace
}  // namespace nunspark
