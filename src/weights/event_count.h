// EventCount: lets a thread wait for "something has changed" without missing it.
//
// Take Now() while looking at the state (under its lock), then Await that value: it returns once Notify was called in
// between or later. Waiting spins briefly, since an arrival is often near, then sleeps: a thread that spins on a shared
// core takes it from the one it waits for.
#ifndef NUNSPARK_WEIGHTS_EVENT_COUNT_H_
#define NUNSPARK_WEIGHTS_EVENT_COUNT_H_

#include <atomic>
#include <cstdint>

#include "base/spin.h"

namespace nunspark {

class EventCount {
 public:
  uint32_t Now() const { return events_.load(std::memory_order_acquire); }

  void Notify() {
    events_.fetch_add(1, std::memory_order_release);
    events_.notify_all();
  }

  void Await(uint32_t seen) const {
    for (int i = 0; i < kSpins; ++i) {
      if (Now() != seen) return;
      SpinPause();
    }
    while (Now() == seen) events_.wait(seen, std::memory_order_acquire);
  }

 private:
  // 10-20 us of pauses: a fraction of one read from a fast drive.
  static constexpr int kSpins = 400;

  std::atomic<uint32_t> events_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EVENT_COUNT_H_
