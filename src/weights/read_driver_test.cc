#include "weights/read_driver.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
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

}  // namespace
}  // namespace nunspark
