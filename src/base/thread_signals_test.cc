#include "base/thread_signals.h"

#include <thread>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

bool TakesSignal(int signal) {
  sigset_t blocked;
  EXPECT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
  return sigismember(&blocked, signal) == 0;
}

TEST(BlockedSignals, HoldForThreadsStartedMeanwhile) {
  bool inside = true;
  std::thread thread;
  {
    const BlockedSignals blocked;
    EXPECT_FALSE(TakesSignal(SIGINT));
    thread = std::thread([&] { inside = TakesSignal(SIGINT) || TakesSignal(SIGTERM) || TakesSignal(SIGALRM); });
  }
  thread.join();
  EXPECT_FALSE(inside);
  EXPECT_TRUE(TakesSignal(SIGINT)) << "the starter has its own mask back";
}

}  // namespace
}  // namespace nunspark
