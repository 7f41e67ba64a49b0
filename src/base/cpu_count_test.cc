#include "base/cpu_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A machine made of files. Without any, nothing is known about its CPUs.
class CpuTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/nunspark-cpu-" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    Write("/proc/self/cgroup", "0::/outer/inner\n3:cpu,cpuacct:/old\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteOfCpu(int cpu, const std::string& file, const std::string& text) {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file, text);
  }
  std::string root_;
  const std::vector<int> eight_ = {0, 1, 2, 3, 4, 5, 6, 7};
};

TEST_F(CpuTest, TheSystemAllowsAtLeastOneAndTheDefaultIsAtLeastOne) {
  EXPECT_THAT(AllowedCpus(), Not(IsEmpty()));
  EXPECT_THAT(ComputeCpus(AllowedCpus()), Not(IsEmpty()));
  EXPECT_GE(DefaultThreads(), 1);
}

TEST_F(CpuTest, ThreadsFollowTheNearestOrAnyAncestorsQuota) {
  EXPECT_EQ(DefaultThreads(eight_, root_), 8);
  Write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 8);
  Write("/sys/fs/cgroup/outer/cpu.max", "300000 100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 3);
  Write("/sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 2);
  Write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/outer/cpu.max", "garbage\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 8);
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "500000\n");
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 5);
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 8);
}

TEST_F(CpuTest, APartOfACpuInTheQuotaIsNotAThread) {
  Write("/sys/fs/cgroup/outer/cpu.max", "390000 100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 3);
  Write("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  EXPECT_EQ(DefaultThreads(eight_, root_), 1);
}

TEST_F(CpuTest, NamedFastCoresAreTakenAloneAndOneThreadOfEach) {
  Write("/sys/devices/cpu_core/cpus", "0-3\n");
  EXPECT_THAT(ComputeCpus(eight_, root_), ElementsAre(0, 1, 2, 3));
  for (int cpu = 0; cpu < 4; ++cpu) {
    WriteOfCpu(cpu, "topology/thread_siblings_list", cpu < 2 ? "0-1\n" : "2-3\n");
  }
  EXPECT_THAT(ComputeCpus(eight_, root_), ElementsAre(0, 2));
  EXPECT_EQ(DefaultThreads(eight_, root_), 2);
  EXPECT_THAT(ComputeCpus({1, 3, 6}, root_), ElementsAre(1, 3));
  EXPECT_THAT(ComputeCpus({5, 6}, root_), ElementsAre(5, 6))
      << "where only slow cores are allowed, they are all there is";
}

TEST_F(CpuTest, SiblingsNeedNotBeNeighbours) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int core = cpu % 4;
    WriteOfCpu(cpu, "topology/thread_siblings_list", std::to_string(core) + "," + std::to_string(core + 4) + "\n");
  }
  EXPECT_THAT(ComputeCpus(eight_, root_), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ComputeCpus({2, 5, 6, 7}, root_), ElementsAre(2, 5, 7));
}

TEST_F(CpuTest, CoresOfLittleCapacityAreLeftOut) {
  const int capacities[] = {290, 290, 290, 290, 870, 870, 870, 1024};
  for (const int cpu : eight_) WriteOfCpu(cpu, "cpu_capacity", std::to_string(capacities[cpu]));
  EXPECT_THAT(ComputeCpus(eight_, root_), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ComputeCpus({0, 1, 2}, root_), ElementsAre(0, 1, 2));
}

TEST_F(CpuTest, ClocksDecideWhereNothingElseDoes) {
  for (const int cpu : eight_) {
    WriteOfCpu(cpu, "cpu_capacity", "1024");
    WriteOfCpu(cpu, "cpufreq/cpuinfo_max_freq", cpu < 6 ? (cpu < 2 ? "5300000" : "5100000") : "3900000");
  }
  EXPECT_THAT(ComputeCpus(eight_, root_), ElementsAre(0, 1, 2, 3, 4, 5));
  std::filesystem::remove(root_ + "/sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq");
  EXPECT_EQ(ComputeCpus(eight_, root_), eight_) << "nothing is left out on a guess";
}

TEST_F(CpuTest, ListsThatCannotBeReadAreNoLists) {
  for (const char* text : {"", "\n", "x", "0-", "-1", "3-1", "0,,1", "0-99999", "0 1", "0-3x"}) {
    Write("/sys/devices/cpu_core/cpus", text);
    WriteOfCpu(0, "topology/thread_siblings_list", text);
    EXPECT_EQ(ComputeCpus(eight_, root_), eight_) << text;
  }
}

}  // namespace
}  // namespace nunspark
