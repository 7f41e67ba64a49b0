#include "weights/read_driver.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

// Completes at once and looks at the thread that calls.
class WatchingQueue final : public ReadQueue {
 public:
  explicit WatchingQueue(std::atomic<int>& takes_signals) : takes_signals_(takes_signals) {}

  void Submit(const ReadRequest& request) override {
    sigset_t blocked;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
    takes_signals_ = sigismember(&blocked, SIGINT) == 0 || sigismember(&blocked, SIGTERM) == 0;
    done_.push_back({.tag = request.tag, .status = Status()});
  }
  void Poll(Wait /*wait*/, std::vector<ReadCompletion>& out) override {
    out.insert(out.end(), done_.begin(), done_.end());
    done_.clear();
  }
  void Wake() override {}
  std::string Description() const override { return "watching"; }
  std::string FallbackReason() const override { return ""; }

 private:
  std::atomic<int>& takes_signals_;
  std::vector<ReadCompletion> done_;
};

TEST(ReadDriver, ItsThreadTakesNoSignals) {
  std::atomic<int> takes_signals = -1;
  std::atomic<bool> done = false;
  ReadDriver driver(std::make_unique<WatchingQueue>(takes_signals), 1, [&](const ReadDriver::Report&) {
    done = true;
    done.notify_all();
  });
  const std::vector<Extent> extents = {{.file = 0, .file_offset = 0, .bytes = 4096, .slot_offset = 0}};
  driver.Start(0, extents, 0, nullptr, ReadPriority::kDemand);
  driver.Kick();
  done.wait(false);
  EXPECT_EQ(takes_signals, 0);
}

// Keeps requests until it is told to complete them; says who submits.
class HoldingQueue final : public ReadQueue {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ReadRequest> held;
    std::vector<ReadCompletion> done;
    std::thread::id submitter;
    int submitted = 0;
  };
  explicit HoldingQueue(std::shared_ptr<State> state) : state_(std::move(state)) {}

  void Submit(const ReadRequest& request) override {
    const std::lock_guard lock(state_->mutex);
    state_->held.push_back(request);
    state_->submitter = std::this_thread::get_id();
    ++state_->submitted;
  }
  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    std::unique_lock lock(state_->mutex);
    if (wait == Wait::kYes) state_->changed.wait(lock, [&] { return woken_ || !state_->done.empty(); });
    woken_ = false;
    out.insert(out.end(), state_->done.begin(), state_->done.end());
    state_->done.clear();
  }
  void Wake() override {
    const std::lock_guard lock(state_->mutex);
    woken_ = true;
    state_->changed.notify_all();
  }
  std::string Description() const override { return "holding"; }
  std::string FallbackReason() const override { return ""; }

  static void CompleteAll(State& state) {
    const std::lock_guard lock(state.mutex);
    for (const ReadRequest& request : state.held) state.done.push_back({.tag = request.tag, .status = Status()});
    state.held.clear();
    state.changed.notify_all();
  }
  static int Submitted(State& state) {
    const std::lock_guard lock(state.mutex);
    return state.submitted;
  }

 private:
  const std::shared_ptr<State> state_;
  bool woken_ = false;
};

// Jobs of one request of `bytes` each, and who reported the last one.
struct DrivenCase {
  DrivenCase(int32_t jobs, int64_t bytes) : extents({{.file = 0, .file_offset = 0, .bytes = bytes, .slot_offset = 0}}) {
    driver = std::make_unique<ReadDriver>(std::make_unique<HoldingQueue>(state), jobs, [this](const auto& report) {
      EXPECT_TRUE(report.status.ok());
      reporter = std::this_thread::get_id();
      ++reports;
      reports.notify_all();
    });
    // The I/O thread is at rest once it has done something.
    Start(0);
    driver->Kick();
    while (HoldingQueue::Submitted(*state) == 0) std::this_thread::yield();
    HoldingQueue::CompleteAll(*state);
    reports.wait(0);
  }
  void Start(int32_t job) { driver->Start(job, extents, 0, nullptr, ReadPriority::kDemand); }
  // Until this thread is the one that drives.
  void StartDriving(int32_t job) {
    Start(job);
    driver->KickAndDrive();
    while (!driver->Drive()) {
      for (const int before = reports; reports == before && !driver->Drive();) {
        HoldingQueue::CompleteAll(*state);
        std::this_thread::yield();
      }
      Start(job);
      driver->KickAndDrive();
    }
  }

  const std::vector<Extent> extents;
  std::shared_ptr<HoldingQueue::State> state = std::make_shared<HoldingQueue::State>();
  std::thread::id reporter;
  std::atomic<int> reports = 0;
  std::unique_ptr<ReadDriver> driver;
};

TEST(ReadDriver, ACallerReadsAndSeesTheEndWithoutAnotherThread) {
  DrivenCase c(2, 4096);
  c.StartDriving(1);
  EXPECT_EQ(c.state->submitter, std::this_thread::get_id());
  const int before = c.reports;
  HoldingQueue::CompleteAll(*c.state);
  EXPECT_EQ(c.reports, before);
  EXPECT_TRUE(c.driver->Drive());
  EXPECT_EQ(c.reports, before + 1);
  EXPECT_EQ(c.reporter, std::this_thread::get_id());
}

TEST(ReadDriver, WhatACallerHasBegunTheThreadEnds) {
  DrivenCase c(2, 4096);
  c.StartDriving(1);
  const int before = c.reports;
  c.driver->Kick();
  EXPECT_FALSE(c.driver->Drive());
  HoldingQueue::CompleteAll(*c.state);
  c.reports.wait(before);
  EXPECT_NE(c.reporter, std::this_thread::get_id());
}

TEST(ReadDriver, ACallersPiecesAreReadOneAfterTheOther) {
  DrivenCase c(4, 2 << 20);
  c.StartDriving(1);
  const int before = HoldingQueue::Submitted(*c.state);
  c.Start(2);
  c.Start(3);
  c.driver->KickAndDrive();
  EXPECT_EQ(HoldingQueue::Submitted(*c.state), before);
  HoldingQueue::CompleteAll(*c.state);
  c.driver->Drive();
  EXPECT_EQ(HoldingQueue::Submitted(*c.state), before + 1);
  // The thread has no window.
  c.driver->Kick();
  while (HoldingQueue::Submitted(*c.state) < before + 2) std::this_thread::yield();
  HoldingQueue::CompleteAll(*c.state);
}

TEST(ReadDriver, ADriveFoundIdleGetsMoreAtOnce) {
  DrivenCase c(8, 2 << 20);
  c.StartDriving(1);
  for (int32_t job = 2; job < 8; ++job) c.Start(job);
  c.driver->KickAndDrive();
  const int before = HoldingQueue::Submitted(*c.state);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // away, as if computing
  HoldingQueue::CompleteAll(*c.state);
  c.driver->Drive();
  const int first = HoldingQueue::Submitted(*c.state) - before;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  HoldingQueue::CompleteAll(*c.state);
  c.driver->Drive();
  EXPECT_GT(HoldingQueue::Submitted(*c.state) - before - first, first);
  c.driver->Kick();
  while (HoldingQueue::Submitted(*c.state) < before + 6) {
    HoldingQueue::CompleteAll(*c.state);
    std::this_thread::yield();
  }
  HoldingQueue::CompleteAll(*c.state);
}

}  // namespace
}  // namespace nunspark
