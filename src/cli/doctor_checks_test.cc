#include "cli/doctor_checks.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(Doctor, EveryFindingHasARemedy) {
  for (const Finding& finding : CheckMachine()) {
    EXPECT_NE(finding.topic, "");
    EXPECT_NE(finding.text, "") << finding.topic;
    EXPECT_NE(finding.remedy, "") << finding.topic;
    EXPECT_EQ(finding.level == Level::kGood, finding.remedy == "nothing to do") << finding.topic;
  }
}

TEST(Doctor, SwapInUseIsAWarning) {
  EXPECT_EQ(CheckSwap({}).level, Level::kGood);
  EXPECT_EQ(CheckSwap({.total_bytes = 4 * kGiB, .used_bytes = 0}).level, Level::kGood);
  EXPECT_EQ(CheckSwap({.total_bytes = 4 * kGiB, .used_bytes = 2 * kGiB}).level, Level::kWarning);
}

TEST(Doctor, ALockLimitSaysHowToRaiseIt) {
  EXPECT_EQ(CheckLocks({.soft_bytes = -1, .hard_bytes = -1}).level, Level::kGood);
  EXPECT_THAT(CheckLocks({.soft_bytes = 8 << 20, .hard_bytes = -1}).remedy, HasSubstr("ulimit -l"));
  EXPECT_THAT(CheckLocks({.soft_bytes = 8 << 20, .hard_bytes = 8 << 20}).remedy, HasSubstr("limits.conf"));
}

TEST(Doctor, HugePagesThatAreSwitchedOffAreAWarning) {
  const TestFolder root;
  const std::string folder = root.Path("sys/kernel/mm/transparent_hugepage");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/enabled") << "always madvise [never]\n";
  EXPECT_EQ(CheckHugePages(root.path()).level, Level::kWarning);
  EXPECT_THAT(CheckHugePages(root.path()).text, HasSubstr("never"));
  std::ofstream(folder + "/enabled") << "[always] madvise never\n";
  EXPECT_EQ(CheckHugePages(root.path()).level, Level::kGood);
}

TEST(Doctor, ASlowClockAndHeatAreSaid) {
  EXPECT_EQ(CheckClock({}).level, Level::kGood);
  EXPECT_EQ(CheckClock({.governor = "powersave", .current_khz = 1, .highest_khz = 2}).level, Level::kHint);
  EXPECT_EQ(CheckHeat({}, {}).level, Level::kGood);
  EXPECT_EQ(CheckHeat({.now = 60, .limit = 95}, {}).level, Level::kGood);
  EXPECT_EQ(CheckHeat({.now = 90, .limit = 95}, {}).level, Level::kWarning);
  EXPECT_EQ(CheckHeat({.now = 60, .limit = 95}, {.governor = "", .throttled = 3}).level, Level::kHint);
}

TEST(Doctor, NetworksAndMemoryAreNoPlaceForModels) {
  EXPECT_EQ(CheckFileSystem(FileSystemOf(0xEF53), "/m").level, Level::kGood);
  EXPECT_EQ(CheckFileSystem(FileSystemOf(0x6969), "/m").level, Level::kWarning);
  EXPECT_THAT(CheckFileSystem(FileSystemOf(0x6969), "/m").text, HasSubstr("/m is on nfs"));
  EXPECT_EQ(CheckFileSystem(FileSystemOf(0x01021994), "/m").level, Level::kWarning);
}

TEST(Doctor, AFallbackOfTheReadsAndASlowDriveAreSaid) {
  DriveSweep sweep{.scattered = {},
                   .sequential = {.bytes_per_second = 3e9},
                   .fastest = {.request_bytes = 1 << 20, .depth = 16, .bytes_per_second = 2e9},
                   .best = {.request_bytes = 512 << 10, .depth = 4, .bytes_per_second = 1.95e9},
                   .queue = "io_uring+O_DIRECT",
                   .why_not_better = ""};
  std::vector<Finding> findings = CheckDrive(sweep);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].level, Level::kGood);
  EXPECT_EQ(findings[1].text, "2.00 GB/s scattered, 3.00 GB/s in sequence; full rate from 512 KiB x 4 on");
  sweep.queue = "pread";
  sweep.why_not_better = "io_uring is refused here";
  sweep.fastest.bytes_per_second = 100e6;
  findings = CheckDrive(sweep);
  EXPECT_EQ(findings[0].level, Level::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("refused"));
  EXPECT_EQ(findings[1].level, Level::kWarning);
}

}  // namespace
}  // namespace nunspark::cli
