// EventCount: lets a thread wait for "something has changed" without missing it.
//
// Take Now() while looking at the state (under its lock), then Await that value: it returns once Notify was called in
// between or later, or after a time. Waiting spins briefly, since an arrival is often near, then sleeps: a thread that
// spins on a shared core takes it from the one it waits for.
#ifndef NUNSPARK_WEIGHTS_EVENT_COUNT_H_
#define NUNSPARK_WEIGHTS_EVENT_COUNT_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

#include "base/spin.h"

namespace nunspark {

class EventCount {
 public:
  uint32_t Now() const { return events_.load(std::memory_order_acquire); }

  void Notify() {
    events_.fetch_add(1, std::memory_order_release);
    Futex(FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }

  // False when `timeout` has passed without an event.
  bool Await(uint32_t seen, std::chrono::milliseconds timeout) const {
    if (SpinUntil(shared_cores.Seen() ? kSpinNs : kSpinAloneNs, [&] { return Now() != seen; })) return true;
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (Now() == seen) {
      const int64_t left = std::chrono::nanoseconds(end - std::chrono::steady_clock::now()).count();
      if (left <= 0) return false;
      const timespec time = {.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
      Futex(FUTEX_WAIT_PRIVATE, seen, &time);
    }
    return true;
  }

 private:
  // A fraction of a read from a fast drive.
  static constexpr int64_t kSpinNs = 15'000;

  // std::atomic has no wait that ends by itself.
  void Futex(int operation, uint32_t value, const timespec* timeout) const {
    ::syscall(SYS_futex, &events_, operation, value, timeout, nullptr, 0);
  }

  std::atomic<uint32_t> events_ = 0;
  static_assert(sizeof(events_) == 4 && std::atomic<uint32_t>::is_always_lock_free);
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EVENT_COUNT_H_
