#include "io/read_queue.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/queue_backends.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

using Memory = std::unique_ptr<uint8_t, void (*)(void*)>;

Memory Allocate(int64_t bytes) {
  return {static_cast<uint8_t*>(std::aligned_alloc(static_cast<size_t>(kIoAlignment), static_cast<size_t>(bytes))),
          &std::free};
}

struct Variant {
  IoBackend backend;
  bool direct;
};

std::string VariantName(const ::testing::TestParamInfo<Variant>& info) {
  return std::string(info.param.backend == IoBackend::kUring ? "Uring" : "Pread") +
         (info.param.direct ? "Direct" : "Buffered");
}

class ReadQueueTest : public ::testing::TestWithParam<Variant> {
 protected:
  // Null (and the test skipped) where the kernel of the test machine refuses io_uring.
  std::unique_ptr<ReadQueue> Open(const std::vector<std::string>& paths, ReadQueueOptions options = {}) {
    options.backend = GetParam().backend;
    options.direct = GetParam().direct;
    Result<std::unique_ptr<ReadQueue>> queue = OpenReadQueue(paths, options);
    if (queue.ok()) return std::move(queue).value();
    EXPECT_EQ(queue.status().code(), StatusCode::kUnsupported) << queue.status().message();
    return nullptr;
  }

  static std::vector<ReadCompletion> Drain(ReadQueue& queue, size_t count) {
    std::vector<ReadCompletion> done;
    while (done.size() < count) queue.Poll(ReadQueue::Wait::kYes, done);
    return done;
  }

  TestFolder folder_;
};

#define OPEN_OR_SKIP(queue, ...)                              \
  const std::unique_ptr<ReadQueue> queue = Open(__VA_ARGS__); \
  if (queue == nullptr) GTEST_SKIP() << "io_uring is refused here"

TEST_P(ReadQueueTest, ReadsRandomRangesOfSeveralFiles) {
  constexpr int64_t kSizes[] = {3'000'001, 4096, 777, 1'048'576};
  std::vector<std::string> contents;
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < 4; ++i) {
    contents.push_back(RandomBytes(static_cast<size_t>(kSizes[i]), i));
    paths.push_back(folder_.Write("file" + std::to_string(i), contents.back()));
  }
  for (const int depth : {1, 3, 64}) {
    OPEN_OR_SKIP(queue, paths, {.depth = depth, .threads = std::min(depth, 4), .split_bytes = 64 << 10});
    std::mt19937 random(9);
    std::vector<ReadRequest> requests;
    std::vector<Memory> memory;
    for (uint64_t tag = 0; tag < 200; ++tag) {
      const int32_t file = static_cast<int32_t>(random() % 4);
      const int64_t units = (kSizes[file] + kIoAlignment - 1) / kIoAlignment;
      const int64_t first = static_cast<int64_t>(random()) % units;
      const int64_t count = 1 + static_cast<int64_t>(random()) % (units - first);
      memory.push_back(Allocate(count * kIoAlignment));
      requests.push_back({.file = file,
                          .offset = first * kIoAlignment,
                          .bytes = count * kIoAlignment,
                          .dst = memory.back().get(),
                          .tag = tag});
      queue->Submit(requests.back());
    }
    std::vector<bool> seen(requests.size());
    for (const ReadCompletion& completion : Drain(*queue, requests.size())) {
      ASSERT_TRUE(completion.status.ok()) << completion.status.message();
      ASSERT_FALSE(seen[completion.tag]) << "completed twice";
      seen[completion.tag] = true;
      const ReadRequest& request = requests[completion.tag];
      const std::string& content = contents[static_cast<size_t>(request.file)];
      const int64_t present = std::min(request.bytes, static_cast<int64_t>(content.size()) - request.offset);
      ASSERT_EQ(std::memcmp(request.dst, content.data() + request.offset, static_cast<size_t>(present)), 0);
    }
  }
}

TEST_P(ReadQueueTest, TailMayReachPastTheEndByLessThanOneUnit) {
  const std::string content = RandomBytes(10'000, 1);
  OPEN_OR_SKIP(queue, {folder_.Write("data", content)});
  const Memory memory = Allocate(16384);
  std::memset(memory.get(), 0x77, 16384);
  queue->Submit({.file = 0, .offset = 0, .bytes = 12288, .dst = memory.get(), .tag = 5});
  const std::vector<ReadCompletion> done = Drain(*queue, 1);
  EXPECT_TRUE(done[0].status.ok()) << done[0].status.message();
  EXPECT_EQ(std::memcmp(memory.get(), content.data(), content.size()), 0);
}

TEST_P(ReadQueueTest, ReadingPastTheEndIsDataLoss) {
  OPEN_OR_SKIP(queue, {folder_.Write("data", RandomBytes(10'000, 1))});
  const Memory memory = Allocate(16384);
  queue->Submit({.file = 0, .offset = 0, .bytes = 16384, .dst = memory.get(), .tag = 5});
  queue->Submit({.file = 0, .offset = 12288, .bytes = 4096, .dst = memory.get(), .tag = 6});
  const std::vector<ReadCompletion> done = Drain(*queue, 2);
  for (const ReadCompletion& completion : done) EXPECT_EQ(completion.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(done[0].status.message(), "read of 16384 bytes at 0 in " + folder_.Path("data") +
                                          " failed: expected a file of at least 12289 bytes, found its end at 10000 "
                                          "(truncated?)");
}

TEST_P(ReadQueueTest, AFileCutWhileOpenIsDataLoss) {
  const std::string path = folder_.Write("data", RandomBytes(100'000, 1));
  OPEN_OR_SKIP(queue, {path});
  ASSERT_EQ(::truncate(path.c_str(), 5000), 0);
  const Memory memory = Allocate(65536);
  queue->Submit({.file = 0, .offset = 0, .bytes = 65536, .dst = memory.get(), .tag = 0});
  const std::vector<ReadCompletion> done = Drain(*queue, 1);
  EXPECT_EQ(done[0].status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(done[0].status.message(), HasSubstr(path));
}

TEST_P(ReadQueueTest, MissingFileIsNotFound) {
  ReadQueueOptions options;
  options.backend = GetParam().backend;
  options.direct = GetParam().direct;
  const auto queue = OpenReadQueue({folder_.Write("a", "x"), folder_.Path("missing")}, options);
  EXPECT_EQ(queue.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(queue.status().message(), HasSubstr(folder_.Path("missing")));
}

TEST_P(ReadQueueTest, WakeEndsASleep) {
  OPEN_OR_SKIP(queue, {folder_.Write("data", "x")});
  std::vector<ReadCompletion> done;
  for (int i = 0; i < 100; ++i) {
    std::thread waker([&] { queue->Wake(); });
    queue->Poll(ReadQueue::Wait::kYes, done);  // would never return without the Wake
    waker.join();
    EXPECT_TRUE(done.empty());
  }
}

TEST_P(ReadQueueTest, AWakeBeforeTheSleepIsKept) {
  OPEN_OR_SKIP(queue, {folder_.Write("data", "x")});
  std::vector<ReadCompletion> done;
  queue->Poll(ReadQueue::Wait::kNo, done);
  queue->Wake();
  queue->Poll(ReadQueue::Wait::kNo, done);  // does not use it up
  queue->Poll(ReadQueue::Wait::kYes, done);
  queue->Wake();
  queue->Wake();
  queue->Poll(ReadQueue::Wait::kYes, done);
  EXPECT_TRUE(done.empty());
}

TEST_P(ReadQueueTest, MayBeUsedByAnotherThreadThanItsMaker) {
  const std::string content = RandomBytes(1 << 20, 3);
  const std::vector<std::string> paths = {folder_.Write("data", content)};
  std::unique_ptr<ReadQueue> queue;
  std::thread maker([&] { queue = Open(paths); });
  maker.join();
  if (queue == nullptr) GTEST_SKIP() << "io_uring is refused here";
  std::thread user([&] {
    const Memory memory = Allocate(1 << 20);
    queue->Submit({.file = 0, .offset = 0, .bytes = 1 << 20, .dst = memory.get(), .tag = 0});
    EXPECT_TRUE(Drain(*queue, 1)[0].status.ok());
    EXPECT_EQ(std::memcmp(memory.get(), content.data(), content.size()), 0);
    std::vector<ReadCompletion> none;
    queue->Wake();
    queue->Poll(ReadQueue::Wait::kYes, none);
  });
  user.join();
  std::vector<ReadCompletion> none;
  queue->Wake();
  queue->Poll(ReadQueue::Wait::kYes, none);
}

TEST_P(ReadQueueTest, DestructorWaitsForReadsInFlight) {
  OPEN_OR_SKIP(first, {folder_.Write("data", RandomBytes(4 << 20, 3))});
  std::unique_ptr<ReadQueue> queue = Open({folder_.Path("data")}, {.split_bytes = 4096});
  const Memory memory = Allocate(4 << 20);
  queue->Submit({.file = 0, .offset = 0, .bytes = 4 << 20, .dst = memory.get(), .tag = 0});
  queue.reset();
  // Whatever was going to arrive has arrived: what is written now stays.
  std::memset(memory.get(), 0x11, 4 << 20);
  const std::vector<uint8_t> expected(4 << 20, 0x11);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::yield();
    ASSERT_EQ(std::memcmp(memory.get(), expected.data(), expected.size()), 0);
  }
}

TEST_P(ReadQueueTest, SaysWhatRuns) {
  OPEN_OR_SKIP(queue, {folder_.Write("data", RandomBytes(8192, 1))});
  const bool ring = GetParam().backend == IoBackend::kUring;
  EXPECT_THAT(queue->Description(), ::testing::StartsWith(ring ? "io_uring" : "pread"));
  if (!GetParam().direct) {
    EXPECT_EQ(queue->Description(), ring ? "io_uring" : "pread");
    EXPECT_THAT(queue->FallbackReason(), HasSubstr("buffered reads were asked for"));
  } else if (queue->Description() == "io_uring+O_DIRECT") {
    EXPECT_EQ(queue->FallbackReason(), "");
  }
  if (!ring) {
    EXPECT_THAT(queue->FallbackReason(), HasSubstr("pread was asked for"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReadQueueTest,
                         ::testing::Values(Variant{IoBackend::kUring, true}, Variant{IoBackend::kUring, false},
                                           Variant{IoBackend::kPread, true}, Variant{IoBackend::kPread, false}),
                         VariantName);

TEST(QueueFiles, EachFileFallsBackToBufferedReadsByItself) {
  // Files of /proc refuse O_DIRECT everywhere.
  const TestFolder folder;
  Result<std::vector<QueueFile>> files =
      OpenQueueFiles({folder.Write("data", std::string(4096, 'x')), "/proc/version"}, DirectIo::kTry);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_FALSE((*files)[1].direct);
  EXPECT_THAT((*files)[1].why_not_direct, HasSubstr("/proc/version"));
  EXPECT_EQ((*files)[0].direct, (*files)[0].why_not_direct.empty());
  EXPECT_EQ(DescribeBackend("pread", *files), "pread");
  EXPECT_NE(WhyNotDirect(*files), "");
}

// A ring whose calls fail with `error` after the first `good` ones; null where the kernel refuses io_uring.
std::unique_ptr<ReadQueue> BreakingRing(const std::string& path, int good, int error) {
  Result<std::vector<QueueFile>> files = OpenQueueFiles({path}, DirectIo::kNo);
  EXPECT_TRUE(files.ok());
  auto queue = MakeUringQueue(*files, {.depth = 4, .split_bytes = 4096},
                              [good, error](io_uring* ring, unsigned wait_for) mutable {
                                return good-- > 0 ? SystemUringEnter(ring, wait_for) : -error;
                              });
  return queue.ok() ? std::move(queue).value() : nullptr;
}

TEST(UringQueue, ReadsFailWhenTheKernelTakesNoMore) {
  const TestFolder folder;
  const std::string path = folder.Write("data", std::string(65536, 'x'));
  const std::unique_ptr<ReadQueue> queue = BreakingRing(path, 0, EBADF);
  if (queue == nullptr) GTEST_SKIP() << "io_uring is refused here";
  const Memory memory = Allocate(65536);
  // Of one chunk, and of more than there are places in the ring; the third comes when all is over.
  for (const int64_t bytes : {4096, 65536, 4096}) {
    queue->Submit({.file = 0, .offset = 0, .bytes = bytes, .dst = memory.get(), .tag = 7});
    std::vector<ReadCompletion> done;
    queue->Poll(ReadQueue::Wait::kYes, done);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].tag, 7U);
    EXPECT_EQ(done[0].status.code(), StatusCode::kIo);
    EXPECT_EQ(done[0].status.message(), "read of " + std::to_string(bytes) + " bytes at 0 in " + path +
                                            " failed: io_uring_enter: Bad file descriptor (EBADF)");
  }
  std::vector<ReadCompletion> done;
  queue->Wake();
  queue->Poll(ReadQueue::Wait::kYes, done);
  EXPECT_TRUE(done.empty());
}

TEST(UringQueue, WhatTheKernelHasTakenStillArrives) {
  const TestFolder folder;
  const std::string path = folder.Write("data", std::string(65536, 'x'));
  const std::unique_ptr<ReadQueue> queue = BreakingRing(path, 1, EINVAL);
  if (queue == nullptr) GTEST_SKIP() << "io_uring is refused here";
  const Memory memory = Allocate(8192);
  queue->Submit({.file = 0, .offset = 0, .bytes = 4096, .dst = memory.get(), .tag = 1});
  queue->Submit({.file = 0, .offset = 4096, .bytes = 4096, .dst = memory.get() + 4096, .tag = 2});
  std::vector<ReadCompletion> done;
  while (done.size() < 2) queue->Poll(ReadQueue::Wait::kYes, done);
  for (const ReadCompletion& completion : done) EXPECT_EQ(completion.status.ok(), completion.tag == 1);
  EXPECT_EQ(memory.get()[4095], 'x');
}

TEST(UringQueue, DestructorReturnsWhenTheRingBreaksWithReadsInFlight) {
  const TestFolder folder;
  const std::string path = folder.Write("data", std::string(65536, 'x'));
  for (const int good : {0, 1, 2}) {
    std::unique_ptr<ReadQueue> queue = BreakingRing(path, good, EPERM);
    if (queue == nullptr) GTEST_SKIP() << "io_uring is refused here";
    const Memory memory = Allocate(65536);
    queue->Submit({.file = 0, .offset = 0, .bytes = 65536, .dst = memory.get(), .tag = 1});
    queue->Wake();
    std::vector<ReadCompletion> done;
    queue->Poll(ReadQueue::Wait::kNo, done);
    queue.reset();
  }
}

TEST(PreadQueue, ReportsDeviceErrors) {
  const TestFolder folder;
  Result<std::vector<QueueFile>> files =
      OpenQueueFiles({folder.Write("data", std::string(1 << 20, 'x'))}, DirectIo::kNo);
  ASSERT_TRUE(files.ok());
  const auto queue = MakePreadQueue(std::move(files).value(), {}, "",
                                    [](int fd, uint8_t* dst, int64_t bytes, int64_t offset) -> int64_t {
                                      return offset == 512 << 10 ? -EIO : SystemPread(fd, dst, bytes, offset);
                                    });
  ASSERT_TRUE(queue.ok());
  const Memory memory = Allocate(1 << 20);
  (*queue)->Submit({.file = 0, .offset = 0, .bytes = 1 << 20, .dst = memory.get(), .tag = 3});
  std::vector<ReadCompletion> done;
  while (done.empty()) (*queue)->Poll(ReadQueue::Wait::kYes, done);
  EXPECT_EQ(done[0].tag, 3U);
  EXPECT_EQ(done[0].status.code(), StatusCode::kIo);
  EXPECT_EQ(done[0].status.message(),
            "read of 1048576 bytes at 0 in " + folder.Path("data") + " failed: Input/output error (EIO)");
}

TEST(PreadQueue, DestructorWaitsForTheCallInProgress) {
  const TestFolder folder;
  Result<std::vector<QueueFile>> files = OpenQueueFiles({folder.Write("data", std::string(65536, 'x'))}, DirectIo::kNo);
  ASSERT_TRUE(files.ok());
  std::promise<void> entered;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> entries{0};
  std::atomic<int> returns{0};
  Result<std::unique_ptr<ReadQueue>> made =
      MakePreadQueue(std::move(files).value(), {.threads = 1, .split_bytes = 4096}, "",
                     [&](int fd, uint8_t* dst, int64_t bytes, int64_t offset) -> int64_t {
                       if (entries++ == 0) entered.set_value();
                       released.wait();
                       const int64_t result = SystemPread(fd, dst, bytes, offset);
                       ++returns;
                       return result;
                     });
  ASSERT_TRUE(made.ok());
  std::unique_ptr<ReadQueue> queue = std::move(made).value();
  const Memory memory = Allocate(65536);
  queue->Submit({.file = 0, .offset = 0, .bytes = 65536, .dst = memory.get(), .tag = 0});
  entered.get_future().wait();
  std::thread destroyer([&] {
    queue.reset();
    EXPECT_EQ(returns, entries);
    EXPECT_GE(returns, 1);
  });
  std::this_thread::yield();
  release.set_value();
  destroyer.join();
}

// Makes a system call whose second argument is `second` (any, if negative) fail with `error` in this process, as
// container runtimes do.
bool Refuse(int call, int second, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | (second < 0 ? BPF_JGE : BPF_JEQ) | BPF_K, static_cast<unsigned>(std::max(second, 0)), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

bool ReadsTheFile(ReadQueue& queue) {
  const Memory memory = Allocate(8192);
  queue.Submit({.file = 0, .offset = 0, .bytes = 8192, .dst = memory.get(), .tag = 0});
  std::vector<ReadCompletion> done;
  queue.Poll(ReadQueue::Wait::kYes, done);
  return done.size() == 1 && done[0].status.ok() && memory.get()[8191] == 'x';
}

// Runs in a child: 0 when everything is as it should be, else the number of the step that is not.
int CheckRefusal(const std::string& path, int error, const std::string& reason) {
  if (!Refuse(SYS_io_uring_setup, -1, error)) return 1;
  const auto forced = OpenReadQueue({path}, {.backend = IoBackend::kUring});
  if (forced.ok() || forced.status().code() != StatusCode::kUnsupported) return 2;
  if (forced.status().message().find(reason) == std::string::npos) return 3;
  const auto automatic = OpenReadQueue({path}, {});
  if (!automatic.ok() || !(*automatic)->Description().starts_with("pread")) return 4;
  if ((*automatic)->FallbackReason().find(reason) == std::string::npos) return 5;
  return ReadsTheFile(**automatic) ? 0 : 6;
}

// As above. The ring works with descriptors that are not registered.
int CheckRefusedRegistration(const std::string& path, bool has_ring) {
  if (!Refuse(SYS_io_uring_register, IORING_REGISTER_FILES, ENOMEM)) return 1;
  const auto queue = OpenReadQueue({path}, {});
  if (!queue.ok() || (*queue)->Description().starts_with("io_uring") != has_ring) return 2;
  return ReadsTheFile(**queue) ? 0 : 3;
}

TEST(ReadQueueDeathTest, FallsBackToPreadWhereIoUringIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TestFolder folder;
  const std::string path = folder.Write("data", std::string(8192, 'x'));
  EXPECT_EXIT(std::_Exit(CheckRefusal(path, EPERM, "Operation not permitted (EPERM)")), ::testing::ExitedWithCode(0),
              "");
  EXPECT_EXIT(std::_Exit(CheckRefusal(path, ENOSYS, "Function not implemented (ENOSYS)")), ::testing::ExitedWithCode(0),
              "");
  EXPECT_EXIT(std::_Exit(CheckRefusal(path, ENOMEM, "Cannot allocate memory (ENOMEM)")), ::testing::ExitedWithCode(0),
              "");
}

TEST(ReadQueueDeathTest, ReadsWithoutTheRegistrationThatTheKernelHasNoMemoryFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TestFolder folder;
  const std::string path = folder.Write("data", std::string(8192, 'x'));
  const bool has_ring = OpenReadQueue({path}, {.backend = IoBackend::kUring}).ok();
  EXPECT_EXIT(std::_Exit(CheckRefusedRegistration(path, has_ring)), ::testing::ExitedWithCode(0), "");
}

TEST(QueueFiles, OpenMoreThanTheSoftLimit) {
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 2048) GTEST_SKIP() << "the system allows no more than " << before.rlim_max << " files";
  struct rlimit low = before;
  low.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const TestFolder folder;
  const std::vector<std::string> paths(1000, folder.Write("data", std::string(4096, 'x')));
  const Result<std::vector<QueueFile>> files = OpenQueueFiles(paths, DirectIo::kNo);
  EXPECT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace nunspark
