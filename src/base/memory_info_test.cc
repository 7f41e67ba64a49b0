#include "base/memory_info.h"
#include "base/memory_rate.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

// A folder that stands for "/".
class FakeRoot {
 public:
  FakeRoot() {
    std::string path = std::filesystem::temp_directory_path() / "nunspark_root_XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path_ + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(MemoryInfo, ReadsMachineMemory) {
  FakeRoot root;
  root.Write("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n");
  const MachineMemory memory = ReadMachineMemory(root.path());
  EXPECT_EQ(memory.total_bytes, int64_t{16384000} * 1024);
  EXPECT_EQ(memory.available_bytes, 8192 * 1024);
}

TEST(MemoryInfo, UnknownMachineIsZero) {
  FakeRoot root;
  EXPECT_EQ(ReadMachineMemory(root.path()).total_bytes, 0);
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 0);
  EXPECT_EQ(ReadProcessMemory(root.path()).resident_bytes, 0);
  root.Write("/proc/meminfo", "MemTotal: lots\nMemAvailableX: 5 kB");
  EXPECT_EQ(ReadMachineMemory(root.path()).total_bytes, 0);
  EXPECT_EQ(ReadMachineMemory(root.path()).available_bytes, 0);
}

TEST(MemoryInfo, CgroupV2TakesTheSmallestLimitOnTheWayUp) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/user/service/app\n");
  root.Write("/sys/fs/cgroup/user/service/app/memory.max", "max\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 0);
  root.Write("/sys/fs/cgroup/user/memory.max", "1000000\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 1000000);
  root.Write("/sys/fs/cgroup/user/service/memory.max", "2000000\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 1000000);
  root.Write("/sys/fs/cgroup/user/service/app/memory.high", "900000\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 900000);
}

TEST(MemoryInfo, CgroupV2InsideAContainer) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/\n");
  root.Write("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 536870912);
}

TEST(MemoryInfo, CgroupV1FindsTheMemoryHierarchy) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "9:name=systemd:/\n7:cpu,cpuacct:/x\n4:hugetlb,memory:/jobs/7\n0::/\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 0);
  root.Write("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4194304\n");
  root.Write("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 4194304);
}

TEST(MemoryInfo, CgroupV1WhosePathIsOutsideTheMount) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "4:memory:/docker/0123\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 1048576);
}

TEST(MemoryInfo, CgroupV2SubtractsWhatOthersHold) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/jobs/7\n");
  root.Write("/sys/fs/cgroup/jobs/7/memory.max", "10000000\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).share_bytes, 10000000) << "the use is unknown";
  root.Write("/sys/fs/cgroup/jobs/7/memory.current", "7000000\n");
  root.Write("/sys/fs/cgroup/jobs/7/memory.stat",
             "anon 4500000\nfile 2300000\nshmem 300000\ninactive_file 1500000\nactive_file 500000\n"
             "slab_reclaimable 100000\nslab 200000\n");
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).limit_bytes, 10000000);
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).share_bytes, 10000000 - (4900000 - 1000000));
  EXPECT_EQ(ReadCgroupMemory(5000000, root.path()).share_bytes, 10000000) << "nobody else is there";

  // A larger limit above may leave less.
  root.Write("/sys/fs/cgroup/jobs/memory.max", "20000000\n");
  root.Write("/sys/fs/cgroup/jobs/memory.current", "19000000\n");
  root.Write("/sys/fs/cgroup/jobs/memory.stat", "inactive_file 1000000\n");
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).limit_bytes, 10000000);
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).share_bytes, 20000000 - 17000000);
  root.Write("/sys/fs/cgroup/jobs/memory.current", "90000000\n");
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).share_bytes, 1) << "known, and nothing is left";
}

TEST(MemoryInfo, CgroupV1SubtractsWhatOthersHold) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "4:memory:/jobs/7\n0::/\n");
  root.Write("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "10000000\n");
  root.Write("/sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "7000000\n");
  root.Write("/sys/fs/cgroup/memory/jobs/7/memory.stat",
             "cache 1\ninactive_file 5\ntotal_inactive_file 1500000\ntotal_active_file 500000\n");
  EXPECT_EQ(ReadCgroupMemory(1000000, root.path()).share_bytes, 10000000 - (5000000 - 1000000));
}

TEST(MemoryInfo, SurvivesNonsense) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "\n::\n0:\n4:memory\n4:memory:\n4:memory:nowhere\n0::relative/path\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-5\n");
  root.Write("/sys/fs/cgroup/memory.max", "99999999999999999999999\n");
  EXPECT_EQ(ReadCgroupMemory(0, root.path()).limit_bytes, 0);
}

TEST(MemoryInfo, ThisProcessGrowsWithWhatItTouches) {
  const ProcessMemory before = ReadProcessMemory();
  ASSERT_GT(before.resident_bytes, 0);
  ASSERT_GE(before.virtual_bytes, before.resident_bytes);
  const std::vector<char> touched(size_t{64} << 20, 1);
  const ProcessMemory after = ReadProcessMemory();
  EXPECT_GE(after.resident_bytes - before.resident_bytes, int64_t{60} << 20);
  EXPECT_GE(after.anonymous_bytes - before.anonymous_bytes, int64_t{60} << 20);
  EXPECT_LT(after.anonymous_bytes, after.resident_bytes) << "code is pages of a file";
  EXPECT_EQ(touched.back(), 1);
}

TEST(MemoryRate, AProbeTakesAQuarterOfWhatIsLeftAndNoMoreThanItShould) {
  FakeRoot root;
  constexpr int64_t kMost = int64_t{256} << 20;
  EXPECT_EQ(AffordableProbeBytes(kMost, root.path()), kMost);
  root.Write("/proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n");
  EXPECT_EQ(AffordableProbeBytes(kMost, root.path()), kMost);
  root.Write("/proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 400000 kB\n");
  EXPECT_EQ(AffordableProbeBytes(kMost, root.path()), 400000 * 1024 / 4);
  root.Write("/proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4 kB\n");
  EXPECT_EQ(AffordableProbeBytes(kMost, root.path()), 8 << 20);
}

}  // namespace
}  // namespace nunspark
