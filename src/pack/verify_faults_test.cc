#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_info.h"
#include "base/sanitized_testing.h"
#include "io/queue_file.h"
#include "pack/test_model.h"
#include "pack/verify.h"

namespace {

// A bad place of the drive: direct reads that touch this offset of any file fail. Negative: the drive is fine.
std::atomic<int64_t> bad_offset = -1;

}  // namespace

// Takes the place of the C library's function in this program.
extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  const int64_t bad = bad_offset;
  if (bad >= offset && bad < offset + static_cast<off_t>(bytes) && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, data, bytes, offset);
}

namespace nunspark {
namespace {

using testing::HasSubstr;

class VerifyFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    MakeTestModel({.layers = 2, .experts = 4, .bits = 4}).WriteTo(work_ / "model");
    const Result<PackReport> report = PackFolder(work_ / "model", {.out_folder = pack_});
    ASSERT_TRUE(report.ok()) << report.status().message();
  }
  void TearDown() override { bad_offset = -1; }

  TempFolder work_;
  std::string pack_ = work_ / "pack";
};

// The page cache may still hold what the drive has lost.
TEST_F(VerifyFaultsTest, ABadPlaceOfTheDriveIsAProblem) {
  const std::string core = "model-core.safetensors";
  const auto probed = OpenQueueFiles({JoinPath(pack_, core)}, DirectIo::kTry);
  ASSERT_TRUE(probed.ok());
  if (!probed->front().direct) GTEST_SKIP() << "no direct reads here: " << probed->front().why_not_direct;
  bad_offset = probed->front().bytes - 1;
  const Result<VerifyReport> report = Verify(pack_);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_GE(report->problem_count, 1);
  EXPECT_EQ(report->problems[0].file, core);
  EXPECT_THAT(report->problems[0].what, HasSubstr("record of"));
  EXPECT_THAT(report->problems[0].found, HasSubstr("Input/output error (EIO)"));
}

TEST_F(VerifyFaultsTest, FileSystemsWithoutDirectReadsAreReadThroughTheCache) {
  bad_offset = 0;  // not even the probe succeeds
  const Result<VerifyReport> report = Verify(pack_);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->problem_count, 0);
}

#ifndef NUNSPARK_SANITIZED
// Runs in a child: 0 when the refusal is as it should be.
int VerifyWithoutMemory(const std::string& pack) {
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(ReadProcessMemory().virtual_bytes + (4 << 20)),
                        .rlim_max = RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  const Result<VerifyReport> report = Verify(pack);
  if (report.ok() || report.status().code() != StatusCode::kResourceExhausted) return 2;
  return report.status().message().find("reading the pack") == std::string::npos ? 3 : 0;
}

TEST_F(VerifyFaultsTest, TooLittleMemoryIsAnError) {
  EXPECT_EXIT(std::_Exit(VerifyWithoutMemory(pack_)), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace nunspark
