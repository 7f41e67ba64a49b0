#include "base/system_info.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

// A folder that stands for "/".
class SystemInfoTest : public ::testing::Test {
 protected:
  SystemInfoTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nunspark_test_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~SystemInfoTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << content;
  }

  std::string root_;
};

TEST_F(SystemInfoTest, WhatIsNotThereIsUnknown) {
  EXPECT_EQ(ReadSwap(root_).total_bytes, 0);
  EXPECT_EQ(OvercommitMode(root_), -1);
  EXPECT_EQ(HugePageMode(root_), "");
  EXPECT_EQ(ReadCpuClock(root_).governor, "");
  EXPECT_EQ(ReadCpuClock(root_).throttled, -1);
  EXPECT_EQ(ReadHeat(root_).now, -1);
}

TEST_F(SystemInfoTest, SwapIsTotalAndUsed) {
  Write("/proc/meminfo", "MemTotal: 100 kB\nSwapTotal:   2000 kB\nSwapFree:    500 kB\nHugePages_Total:   0\n");
  EXPECT_EQ(ReadSwap(root_).total_bytes, 2000 * 1024);
  EXPECT_EQ(ReadSwap(root_).used_bytes, 1500 * 1024);
}

TEST_F(SystemInfoTest, ModesAreRead) {
  Write("/proc/sys/vm/overcommit_memory", "2\n");
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(OvercommitMode(root_), 2);
  EXPECT_EQ(HugePageMode(root_), "madvise");
}

TEST_F(SystemInfoTest, ClockIsThatOfTheFastestCpu) {
  const std::string cpus = "/sys/devices/system/cpu/";
  Write(cpus + "cpu0/cpufreq/scaling_governor", "powersave\n");
  Write(cpus + "cpu0/cpufreq/scaling_cur_freq", "800000\n");
  Write(cpus + "cpu1/cpufreq/scaling_cur_freq", "1200000\n");
  Write(cpus + "cpu0/cpufreq/cpuinfo_max_freq", "3000000\n");
  Write(cpus + "cpu1/thermal_throttle/package_throttle_count", "7\n");
  Write(cpus + "cpuidle/cpufreq/scaling_cur_freq", "9000000\n");
  const CpuClock clock = ReadCpuClock(root_);
  EXPECT_EQ(clock.governor, "powersave");
  EXPECT_EQ(clock.current_khz, 1200000);
  EXPECT_EQ(clock.highest_khz, 3000000);
  EXPECT_EQ(clock.throttled, 7);
}

TEST_F(SystemInfoTest, HeatIsThatOfTheHottestSensorWithItsFirstLimit) {
  const std::string zones = "/sys/class/thermal/";
  Write(zones + "thermal_zone0/temp", "40000\n");
  Write(zones + "thermal_zone0/trip_point_0_temp", "50000\n");
  Write(zones + "thermal_zone0/trip_point_0_type", "passive\n");
  Write(zones + "thermal_zone1/temp", "71000\n");
  Write(zones + "thermal_zone1/trip_point_0_temp", "60000\n");
  Write(zones + "thermal_zone1/trip_point_0_type", "active\n");
  Write(zones + "thermal_zone1/trip_point_1_temp", "100000\n");
  Write(zones + "thermal_zone1/trip_point_1_type", "critical\n");
  Write(zones + "thermal_zone1/trip_point_2_temp", "95000\n");
  Write(zones + "thermal_zone1/trip_point_2_type", "passive\n");
  EXPECT_EQ(ReadHeat(root_).now, 71);
  EXPECT_EQ(ReadHeat(root_).limit, 95);
}

TEST_F(SystemInfoTest, TheProcessHasLimits) {
  const LockLimits limits = ReadLockLimits();
  EXPECT_GE(limits.soft_bytes, -1);
  if (limits.hard_bytes >= 0) {
    EXPECT_LE(limits.soft_bytes, limits.hard_bytes);
  }
}

}  // namespace
}  // namespace nunspark
