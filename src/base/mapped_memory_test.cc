#include "base/mapped_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_info.h"
#include "base/sanitized_testing.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

bool IsAligned(const void* pointer, uintptr_t unit) { return reinterpret_cast<uintptr_t>(pointer) % unit == 0; }

TEST(MappedMemory, IsZeroedAlignedAndWritable) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{4097}, 2 * kMiB, 9 * kMiB + 5}) {
    const MappedMemory memory = MappedMemory::Create(bytes, "a test", "").value();
    EXPECT_TRUE(IsAligned(memory.data(), 4096));
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_EQ(memory.data()[0], 0);
    EXPECT_EQ(memory.data()[bytes - 1], 0);
    memory.data()[0] = 1;
    memory.data()[bytes - 1] = 1;
  }
  EXPECT_TRUE(IsAligned(MappedMemory::Create(MappedMemory::kHugeFromBytes, "a test", "").value().data(), 2 * kMiB));
}

TEST(MappedMemory, NothingIsNoMemory) {
  const MappedMemory memory = MappedMemory::Create(0, "a test", "").value();
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(MappedMemory, MovesLeaveOneOwner) {
  MappedMemory a = MappedMemory::Create(10 * kMiB, "a test", "").value();
  uint8_t* const data = a.data();
  MappedMemory b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = MappedMemory::Create(4096, "a test", "").value();
  EXPECT_NE(b.data(), data);
}

// The sanitizers' shadow memory would be counted too.
#ifndef NUNSPARK_SANITIZED
// The plan counts what it asks for, so neither alignment nor huge pages may take more.
TEST(MappedMemory, TakesNoMoreThanAsked) {
  constexpr int64_t kBytes = 33 * kMiB + 4096, kElsewhere = 64 << 10;
  const ProcessMemory before = ReadProcessMemory();
  const MappedMemory memory = MappedMemory::Create(kBytes, "a test", "").value();
  const int64_t mapped = ReadProcessMemory().virtual_bytes - before.virtual_bytes;
  EXPECT_LE(std::abs(mapped - kBytes), kElsewhere) << "the process maps and unmaps a few pages meanwhile";
  for (int64_t at = 0; at < kBytes; at += 4096) memory.data()[at] = 1;
  const int64_t grown = ReadProcessMemory().resident_bytes - before.resident_bytes;
  EXPECT_GE(grown, kBytes);
  EXPECT_LE(grown, kBytes + kMiB / 2) << "and what the test itself touches";
}
#endif

TEST(MappedMemory, SmallRegionsAreResidentOnlyWhereTouched) {
  const MappedMemory memory = MappedMemory::Create(MappedMemory::kHugeFromBytes - 4096, "a test", "").value();
  const ProcessMemory before = ReadProcessMemory();
  memory.data()[4 * kMiB] = 1;
  EXPECT_LE(ReadProcessMemory().resident_bytes - before.resident_bytes, kMiB);
}

TEST(MappedMemory, PartsAreGivenUpAndComeBackZeroed) {
  MappedMemory memory = MappedMemory::Create(9 * kMiB, "a test", "", MappedMemory::Use::kParts).value();
  memory.data()[5 * kMiB] = 1;  // one small page, wherever huge ones are the rule
  EXPECT_LT(memory.page_use().resident_bytes, kMiB);
  std::fill_n(memory.data(), 9 * kMiB, uint8_t{7});
  EXPECT_GE(memory.page_use().resident_bytes, 9 * kMiB);
  memory.GiveUp(kMiB, 6 * kMiB);
  EXPECT_LT(memory.page_use().resident_bytes, 4 * kMiB);
  EXPECT_EQ(memory.data()[kMiB - 1], 7);
  EXPECT_EQ(memory.data()[kMiB], 0);
  EXPECT_EQ(memory.data()[7 * kMiB - 1], 0);
  EXPECT_EQ(memory.data()[7 * kMiB], 7);
}

TEST(MappedMemory, RefusalSaysWhatForAndWhatToDo) {
  const Result<MappedMemory> memory = MappedMemory::Create(int64_t{1} << 60, "the KV cache", "use a shorter context");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.status().message(), HasSubstr("for the KV cache: Cannot allocate memory (ENOMEM); use a shorter"));
}

constexpr char kSmaps[] =
    "7f0000000000-7f0000800000 rw-p 00000000 00:00 0 \n"
    "Size:               8192 kB\n"
    "Rss:                6144 kB\n"
    "AnonHugePages:      4096 kB\n"
    "VmFlags: rd wr mr mw me ac hg \n"
    "7f0000800000-7f0000801000 r--p 00000000 fe:00 7 /usr/lib/a-b.so\n"
    "Rss:                   4 kB\n"
    "AnonHugePages:         0 kB\n"
    "7f0001000000-7f0001400000 rw-p 00000000 00:00 0 \n"
    "Rss:                4096 kB\n"
    "AnonHugePages:      4096 kB\n"
    "ShmemPmdMapped:     2048 kB\n";

TEST(ReadPageUse, CountsTheAreasOfARangeAndSharesThoseThatReachBeyondIt) {
  const auto expect = [](uint64_t begin, uint64_t end, int64_t resident, int64_t huge) {
    std::istringstream smaps(kSmaps);
    const PageUse use = ReadPageUse(smaps, begin, end);
    EXPECT_EQ(use.resident_bytes, resident);
    EXPECT_EQ(use.huge_bytes, huge);
  };
  expect(0x7f0000000000, 0x7f0000800000, 6 * kMiB, 4 * kMiB);
  expect(0x7f0000000000, 0x7f0000400000, 3 * kMiB, 2 * kMiB);
  expect(0x7f0000000000, 0x7f0001400000, 10 * kMiB + 4096, 8 * kMiB);
  expect(0x7f0001000000, 0x7f0001400000, 4 * kMiB, 4 * kMiB);
  expect(0x7f0000800000, 0x7f0000801000, 4096, 0);
  expect(0x600000000000, 0x600000001000, 0, 0);
}

TEST(HugePages, AreCountedWithinTheMemoryThatHasThem) {
  const MappedMemory memory = MappedMemory::Create(16 * kMiB, "a test", "").value();
  for (int64_t at = 0; at < memory.bytes(); at += 4096) memory.data()[at] = 1;
  const PageUse use = memory.page_use();
  EXPECT_GT(use.resident_bytes, 0);
  EXPECT_LE(use.huge_bytes, use.resident_bytes);
  if (!HugePageRefusal().empty()) {
    EXPECT_EQ(use.huge_bytes, 0);
  }
  EXPECT_EQ(MappedMemory().page_use().resident_bytes, 0);
}

TEST(HugePages, ARefusalNamesTheSetting) {
  const std::string root = testing::TempDir() + "/nunspark-huge-" + std::to_string(::getpid());
  EXPECT_THAT(HugePageRefusal(root), HasSubstr("no transparent huge pages"));
  const std::string folder = root + "/sys/kernel/mm/transparent_hugepage";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/enabled") << "always madvise [never]\n";
  EXPECT_EQ(HugePageRefusal(root), "/sys/kernel/mm/transparent_hugepage/enabled says never");
  std::ofstream(folder + "/enabled") << "always [madvise] never\n";
  EXPECT_EQ(HugePageRefusal(root), "");
  std::filesystem::remove_all(root);
}

#ifndef NUNSPARK_SANITIZED
// Runs in a child: 0 when the memory fits a limit that has no room for aligning it.
int CreateUnderAddressLimit(int64_t bytes) {
  const int64_t now = ReadProcessMemory().virtual_bytes;
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(now + bytes + kMiB), .rlim_max = RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  const Result<MappedMemory> memory = MappedMemory::Create(bytes, "a test", "");
  if (!memory.ok()) return 2;
  memory->data()[bytes - 1] = 1;
  return 0;
}

TEST(MappedMemoryDeathTest, FitsAnAddressSpaceWithoutRoomForAligning) {
  EXPECT_EXIT(std::_Exit(CreateUnderAddressLimit(64 * kMiB)), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace nunspark
