#include "weights/prefetch_governor.h"

#include <gtest/gtest.h>

#include <random>

namespace nunspark {
namespace {

// Passes of a drive whose waits fall by `gain` with prediction, or rise; noisy by a tenth. Returns the share of passes
// with prediction among the last half of `count`.
double ShareOn(LookaheadGovernor& governor, double gain, int count, int64_t stall_us = 15'000, int64_t used_of_10 = 6) {
  std::mt19937 random(5);
  int on = 0;
  for (int pass = 0; pass < count; ++pass) {
    const double noise = 1 + 0.1 * (static_cast<double>(random() % 1000) / 1000 - 0.5);
    const double stall = static_cast<double>(stall_us) * (governor.on() ? 1 - gain : 1) * noise;
    if (pass >= count / 2) on += governor.on() ? 1 : 0;
    governor.EndPass({.wall_us = 20'000 + static_cast<int64_t>(stall),
                      .stall_us = static_cast<int64_t>(stall),
                      .read = governor.on() ? 10 : 0,
                      .used = governor.on() ? used_of_10 : 0});
  }
  return on / (count / 2.0);
}

TEST(LookaheadGovernor, StaysOnWhereItPays) {
  LookaheadGovernor governor(Governed::kAuto);
  EXPECT_GT(ShareOn(governor, 0.3, 4000), 0.95);
}

TEST(LookaheadGovernor, StaysOffWhereItHurtsOrBringsNothing) {
  for (const double gain : {-0.3, 0.0}) {
    LookaheadGovernor governor(Governed::kAuto);
    EXPECT_LT(ShareOn(governor, gain, 4000), 0.05) << gain;
  }
}

TEST(LookaheadGovernor, StaysOffWhereThereAreNoWaitsToSave) {
  LookaheadGovernor governor(Governed::kAuto);
  EXPECT_LT(ShareOn(governor, 0.9, 4000, 100), 0.05);
}

TEST(LookaheadGovernor, TurnsOffSoonWhenLittleIsUsed) {
  LookaheadGovernor governor(Governed::kAuto);
  int passes = 0;
  for (; passes < 40 && (governor.on() || passes % 8 < 4); ++passes) {
    governor.EndPass({.wall_us = 30'000, .stall_us = 10'000, .read = 20, .used = 2});
  }
  EXPECT_LT(passes, 8);
}

TEST(LookaheadGovernor, FindsOutWhenThingsChange) {
  LookaheadGovernor governor(Governed::kAuto);
  EXPECT_LT(ShareOn(governor, -0.3, 1000), 0.1);
  EXPECT_GT(ShareOn(governor, 0.3, 6000), 0.9);
}

TEST(LookaheadGovernor, OnAndOffAreObeyed) {
  LookaheadGovernor on(Governed::kOn), off(Governed::kOff);
  EXPECT_EQ(ShareOn(on, -0.5, 500), 1);
  EXPECT_EQ(ShareOn(off, 0.5, 500), 0);
}

TEST(TemporalGovernor, PausesWhenLittleIsUsedAndTriesAgain) {
  TemporalGovernor governor(Governed::kAuto);
  governor.EndPass({.wall_us = 1000, .stall_us = 500, .read = 40, .used = 36});
  EXPECT_TRUE(governor.on());
  governor.EndPass({.wall_us = 1000, .stall_us = 500, .read = 40, .used = 10});
  EXPECT_FALSE(governor.on());
  int pause = 0;
  for (; !governor.on(); ++pause) governor.EndPass({.wall_us = 1000, .stall_us = 500});
  EXPECT_GT(pause, 3);
  governor.EndPass({.wall_us = 1000, .stall_us = 5, .read = 40, .used = 40});
  EXPECT_FALSE(governor.on()) << "no waits to save";
}

}  // namespace
}  // namespace nunspark
