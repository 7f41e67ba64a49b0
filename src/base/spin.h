// Waiting by turning round.
//
// Waking a thread that sleeps takes 5-100 us by machine (the most where a hypervisor has to wake the core as well), so
// waits that are mostly short are spent spinning. Where others want these cores, which a spinning thread notices when
// it is kept from running, all waits of this process are short for a while
// (docs/decisions/0020-who-waits-for-the-drive-reads.md).
#ifndef NUNSPARK_BASE_SPIN_H_
#define NUNSPARK_BASE_SPIN_H_

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace nunspark {

// Tells the processor that this thread waits for another one: about 10-50 ns that leave the core's shared units to its
// other hardware thread.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline int64_t ReadClockNs(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether others want the cores on which this process spins: found out from how much of that time they took.
class SharedCores {
 public:
  bool Seen() const { return ReadClockNs(CLOCK_MONOTONIC) < until_ns_.load(std::memory_order_relaxed); }

  // A thread wanted to spin for `spun_ns` and was kept from running for `lost_ns` of it.
  void Count(int64_t spun_ns, int64_t lost_ns) {
    const int64_t lost = lost_ns_.fetch_add(lost_ns, std::memory_order_relaxed) + lost_ns;
    const int64_t spun = spun_ns_.fetch_add(spun_ns, std::memory_order_relaxed) + spun_ns;
    if (spun < kEnoughNs) return;
    spun_ns_.store(0, std::memory_order_relaxed);
    lost_ns_.store(0, std::memory_order_relaxed);
    if (lost < spun / 10) return stay_ns_.store(kShortestStayNs, std::memory_order_relaxed);
    const int64_t stay = stay_ns_.load(std::memory_order_relaxed);
    until_ns_.store(ReadClockNs(CLOCK_MONOTONIC) + stay, std::memory_order_relaxed);
    stay_ns_.store(std::min(2 * stay, kLongestStayNs), std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kEnoughNs = 100'000'000;
  static constexpr int64_t kShortestStayNs = 250'000'000;
  static constexpr int64_t kLongestStayNs = 8'000'000'000;

  std::atomic<int64_t> spun_ns_ = 0, lost_ns_ = 0;
  std::atomic<int64_t> stay_ns_ = kShortestStayNs;
  std::atomic<int64_t> until_ns_ = 0;  // CLOCK_MONOTONIC
};

inline SharedCores shared_cores;

// Where nobody else wants the cores: longer than most waits for the drive in a step that streams.
inline constexpr int64_t kSpinAloneNs = 1'000'000;

// Spins until done() or for `spin_ns`. Returns done().
template <typename Done>
bool SpinUntil(int64_t spin_ns, const Done& done) {
  // A clock costs as much as two or three pauses, so it is read once in this many: first after about 1 us.
  constexpr int kPausesPerLook = 64;
  // Longer than an interrupt, or than the I/O thread takes the core for.
  constexpr int64_t kGapNs = 100'000;
  int64_t begin = 0, looked_at = 0, lost_ns = 0;
  bool is_done = false;
  do {
    for (int i = 0; i < kPausesPerLook && !is_done; ++i) {
      is_done = done();
      if (!is_done) SpinPause();
    }
    if (is_done && begin == 0) return true;
    const int64_t now = ReadClockNs(CLOCK_MONOTONIC);
    if (begin == 0) {
      begin = now;
    } else if (now - looked_at > kGapNs) {
      lost_ns += now - looked_at;
    }
    looked_at = now;
  } while (!is_done && looked_at - begin < spin_ns);
  shared_cores.Count(looked_at - begin, lost_ns);
  return is_done || done();
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_SPIN_H_
