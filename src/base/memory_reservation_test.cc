#include "base/memory_reservation.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

constexpr int64_t kTiB = int64_t{1} << 40;  // far above what any test has resident

class MemoryReservationTest : public ::testing::Test {
 protected:
  MemoryReservationTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nunspark_test_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    folder_ = root_ + "/reservations";
  }
  ~MemoryReservationTest() override { std::filesystem::remove_all(root_); }

  int64_t Outstanding() const { return ReadOutstandingMemory(folder_).bytes; }

  // A process that holds an entry; it has one by the time this returns.
  pid_t StartHolder(int64_t bytes) const {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const MemoryReservation held = MemoryReservation::Take(bytes, folder_);
      (void)!::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static void Kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  std::string root_, folder_;
};

TEST_F(MemoryReservationTest, CountsWhatIsPlannedAndNotResident) {
  EXPECT_EQ(Outstanding(), 0);
  std::optional<MemoryReservation> held = MemoryReservation::Take(kTiB, folder_);
  EXPECT_LT(Outstanding(), kTiB) << "this process has something resident";
  EXPECT_GT(Outstanding(), kTiB - kTiB / 8);
  // One look: what is resident changes from one to the next.
  const auto outstanding = ReadOutstandingMemory(folder_);
  EXPECT_EQ(outstanding.same_group_bytes, outstanding.bytes);
  held.reset();
  EXPECT_EQ(Outstanding(), 0);
}

TEST_F(MemoryReservationTest, APlanThatIsResidentCountsNothing) {
  const MemoryReservation held = MemoryReservation::Take(1, folder_);
  EXPECT_EQ(Outstanding(), 0);
}

TEST_F(MemoryReservationTest, AnotherProcessCountsUntilItDies) {
  const pid_t child = StartHolder(kTiB);
  EXPECT_GT(Outstanding(), kTiB / 2);
  Kill(child);
  EXPECT_EQ(Outstanding(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "what the dead process left is removed";
}

TEST_F(MemoryReservationTest, EntriesOfOneProcessAddUp) {
  const MemoryReservation first = MemoryReservation::Take(kTiB, folder_);
  const MemoryReservation second = MemoryReservation::Take(kTiB, folder_);
  EXPECT_GT(Outstanding(), kTiB + kTiB / 2);
}

TEST_F(MemoryReservationTest, AMovedEntryIsStillOne) {
  MemoryReservation first = MemoryReservation::Take(kTiB, folder_);
  const MemoryReservation second = std::move(first);
  EXPECT_GT(Outstanding(), kTiB / 2);
  EXPECT_LT(Outstanding(), kTiB + kTiB / 2);
}

TEST_F(MemoryReservationTest, WithoutAFolderNothingIsEnteredAndNothingFound) {
  const std::string nowhere = root_ + "/no/such/folder";
  const MemoryReservation held = MemoryReservation::Take(kTiB, nowhere);
  const PlanningLock lock(nowhere);
  EXPECT_EQ(ReadOutstandingMemory(nowhere).bytes, 0);
}

TEST_F(MemoryReservationTest, AFolderBehindALinkIsNotTrusted) {
  std::filesystem::create_directory(root_ + "/other");
  std::filesystem::create_directory_symlink(root_ + "/other", folder_);
  const MemoryReservation held = MemoryReservation::Take(kTiB, folder_);
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/other"));
  EXPECT_EQ(Outstanding(), 0);
}

}  // namespace
}  // namespace nunspark
