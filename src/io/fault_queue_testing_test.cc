#include "io/fault_queue_testing.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/probe.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 8192;

class FaultQueueTest : public ::testing::Test {
 protected:
  void Open(FaultPlan plan) {
    const std::vector<std::string> paths = {path_};
    Result<std::unique_ptr<ReadQueue>> inner = OpenReadQueue(paths, {});
    ASSERT_TRUE(inner.ok());
    queue_ = std::make_unique<FaultQueue>(std::move(inner).value(), paths, std::move(plan));
  }

  // Submits `count` reads of the start of the file, tags from 100, and collects all completions in order.
  std::vector<ReadCompletion> Run(uint64_t count) {
    memory_.clear();
    for (uint64_t i = 0; i < count; ++i) {
      memory_.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(4096, kBytes)), &std::free);
      queue_->Submit({.file = 0, .offset = 0, .bytes = kBytes, .dst = memory_.back().get(), .tag = 100 + i});
    }
    std::vector<ReadCompletion> done;
    while (done.size() < count) queue_->Poll(ReadQueue::Wait::kYes, done);
    return done;
  }

  const TestFolder folder_;
  const std::string content_ = RandomBytes(kBytes, 1);
  const std::string path_ = folder_.Write("data", content_);
  std::unique_ptr<FaultQueue> queue_;
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> memory_;
};

std::map<uint64_t, Status> ByTag(const std::vector<ReadCompletion>& done) {
  std::map<uint64_t, Status> result;
  for (const ReadCompletion& completion : done) result.emplace(completion.tag, completion.status);
  return result;
}

TEST_F(FaultQueueTest, WithoutFaultsChangesNothing) {
  Open({});
  for (const ReadCompletion& completion : Run(10)) EXPECT_TRUE(completion.status.ok());
  for (const auto& memory : memory_) EXPECT_EQ(std::memcmp(memory.get(), content_.data(), kBytes), 0);
  EXPECT_EQ(queue_->submitted(), 10);
  EXPECT_EQ(queue_->injected(), 0);
}

TEST_F(FaultQueueTest, FailsTheChosenRequest) {
  Open({.faults = {{.kind = Fault::Kind::kError, .request = 2, .error = EIO}}});
  const std::map<uint64_t, Status> done = ByTag(Run(4));
  EXPECT_EQ(done.at(102).code(), StatusCode::kIo);
  EXPECT_EQ(done.at(102).message(), "read of 8192 bytes at 0 in " + path_ + " failed: Input/output error (EIO)");
  for (const uint64_t tag : {100, 101, 103}) EXPECT_TRUE(done.at(tag).ok());
  EXPECT_EQ(queue_->injected(), 1);
}

TEST_F(FaultQueueTest, ShortReadsAreDataLossAndLeaveRubbish) {
  Open({.faults = {{.kind = Fault::Kind::kShort, .request = 0, .at = 5000}}});
  const std::vector<ReadCompletion> done = Run(1);
  EXPECT_EQ(done[0].status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(done[0].status.message(), HasSubstr("the file ends at 5000"));
  EXPECT_EQ(std::memcmp(memory_[0].get(), content_.data(), 5000), 0);
  EXPECT_NE(std::memcmp(memory_[0].get() + 5000, content_.data() + 5000, kBytes - 5000), 0);
}

TEST_F(FaultQueueTest, FlipsOneBitAndSucceeds) {
  Open({.faults = {{.kind = Fault::Kind::kFlip, .request = 0, .at = 8 * 17 + 3}}});
  EXPECT_TRUE(Run(1)[0].status.ok());
  EXPECT_EQ(memory_[0].get()[17], static_cast<uint8_t>(content_[17]) ^ 8U);
  memory_[0].get()[17] = static_cast<uint8_t>(content_[17]);
  EXPECT_EQ(std::memcmp(memory_[0].get(), content_.data(), kBytes), 0);
}

TEST_F(FaultQueueTest, DelaysUntilOthersHaveArrived) {
  Open({.faults = {{.kind = Fault::Kind::kDelay, .request = 0, .at = 3}}});
  const std::vector<ReadCompletion> done = Run(6);
  const auto place = std::find_if(done.begin(), done.end(), [](const ReadCompletion& c) { return c.tag == 100; });
  EXPECT_GE(place - done.begin(), 3);
}

TEST_F(FaultQueueTest, ADelayedReadArrivesWhenNothingElseIsLeft) {
  Open({.faults = {{.kind = Fault::Kind::kDelay, .request = 0, .at = 1000}}});
  EXPECT_TRUE(Run(1)[0].status.ok());
}

TEST_F(FaultQueueTest, RandomFaultsRepeatWithTheirSeed) {
  const auto outcome = [&](uint64_t seed) {
    Open({.faults = {},
          .seed = seed,
          .errors_per_mille = 100,
          .shorts_per_mille = 100,
          .flips_per_mille = 100,
          .delays_per_mille = 100});
    std::string codes;
    for (const auto& [tag, status] : ByTag(Run(300))) codes += std::to_string(static_cast<int>(status.code()));
    for (const auto& memory : memory_) codes += std::memcmp(memory.get(), content_.data(), kBytes) == 0 ? '=' : '!';
    EXPECT_GT(queue_->injected(), 60);
    EXPECT_LT(queue_->injected(), 180);
    return codes;
  };
  EXPECT_EQ(outcome(1), outcome(1));
  EXPECT_NE(outcome(1), outcome(2));
}

TEST_F(FaultQueueTest, WakeReachesTheSleeper) {
  Open({});
  std::thread waker([&] { queue_->Wake(); });
  std::vector<ReadCompletion> done;
  queue_->Poll(ReadQueue::Wait::kYes, done);
  waker.join();
  EXPECT_TRUE(done.empty());
}

TEST(Probe, MeasuresWithinItsLimits) {
  const TestFolder folder;
  const std::string path = folder.Write("data", RandomBytes(5 << 20, 1));
  auto queue = OpenReadQueue({path}, {});
  ASSERT_TRUE(queue.ok());
  // With time to spare the limit on bytes ends it, and the file's size.
  const auto three = ProbeReadBandwidth(*queue, 0, 5 << 20, {.max_bytes = 3 << 20, .max_seconds = 60});
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->bytes, 3 << 20);
  EXPECT_GT(three->bytes_per_second, 0);
  const auto all = ProbeReadBandwidth(*queue, 0, 5 << 20, {.max_seconds = 60, .in_flight = 2});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->bytes, 5 << 20);
  // Without time only what was started at once.
  const auto none = ProbeReadBandwidth(*queue, 0, 5 << 20, {.max_seconds = 0, .in_flight = 2});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->bytes, 2 << 20);
}

TEST(Probe, NeedsAFileOfOneRequest) {
  const TestFolder folder;
  auto queue = OpenReadQueue({folder.Write("data", "tiny")}, {});
  ASSERT_TRUE(queue.ok());
  EXPECT_EQ(ProbeReadBandwidth(*queue, 0, 4).status().code(), StatusCode::kInvalidArgument);
}

TEST(Probe, ReportsFailedReads) {
  const TestFolder folder;
  const std::vector<std::string> paths = {folder.Write("data", RandomBytes(5 << 20, 1))};
  auto inner = OpenReadQueue(paths, {});
  ASSERT_TRUE(inner.ok());
  const FaultPlan plan{.faults = {{.kind = Fault::Kind::kError, .request = 3}}};
  auto faulty = std::make_unique<FaultQueue>(std::move(inner).value(), paths, plan);
  const FaultQueue& counts = *faulty;
  std::unique_ptr<ReadQueue> queue = std::move(faulty);
  EXPECT_EQ(ProbeReadBandwidth(queue, 0, 5 << 20).status().code(), StatusCode::kIo);
  EXPECT_EQ(counts.submitted(), 5);
}

TEST(Probe, DoesNotWaitForADriveThatHangs) {
  const TestFolder folder;
  bool hangs = true;
  auto inner = OpenReadQueue({folder.Write("data", RandomBytes(1 << 20, 1))}, {});
  ASSERT_TRUE(inner.ok());
  std::unique_ptr<ReadQueue> queue = std::make_unique<HangingQueue>(std::move(inner).value(), hangs);
  const int queues = HangingQueue::count;
  const auto probe = ProbeReadBandwidth(queue, 0, 1 << 20, {.read_timeout = std::chrono::milliseconds(10)});
  EXPECT_EQ(probe.status().code(), StatusCode::kIo);
  EXPECT_THAT(probe.status().message(), testing::HasSubstr("none has returned for 0.01 s"));
  EXPECT_EQ(queue, nullptr);
  EXPECT_EQ(HangingQueue::count, queues) << "reads that may still come need it";
}

}  // namespace
}  // namespace nunspark
