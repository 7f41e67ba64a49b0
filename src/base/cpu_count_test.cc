#include "base/cpu_count.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace nunspark {
namespace {

class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/nunspark-cpu-" + std::to_string(testing::UnitTest::GetInstance()->random_seed());
    std::filesystem::remove_all(root_);
    Write("/proc/self/cgroup", "0::/outer/inner\n3:cpu,cpuacct:/old\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

using DefaultThreadsTest = FakeRoot;

TEST_F(DefaultThreadsTest, IsAtLeastOneAndFollowsTheNearestOrAnyAncestorsQuota) {
  const int all = DefaultThreads(root_);
  EXPECT_GE(all, 1);
  Write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(DefaultThreads(root_), all);
  Write("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  EXPECT_EQ(DefaultThreads(root_), 1);
  Write("/sys/fs/cgroup/outer/cpu.max", "garbage\n");
  EXPECT_EQ(DefaultThreads(root_), all);
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(DefaultThreads(root_), 1);
  Write("/sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(DefaultThreads(root_), all);
}

}  // namespace
}  // namespace nunspark
