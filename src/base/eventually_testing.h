// What takes place soon in another thread or process, but nobody says when.
#ifndef NUNSPARK_BASE_EVENTUALLY_TESTING_H_
#define NUNSPARK_BASE_EVENTUALLY_TESTING_H_

#include <algorithm>
#include <chrono>
#include <thread>

namespace nunspark {

// Waits until `condition` holds. False: it does not after minutes, many times what the slowest machine takes.
template <typename Condition>
[[nodiscard]] bool Eventually(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  for (Clock::duration left = std::chrono::minutes(5); left > Clock::duration(0);) {
    const Clock::time_point start = Clock::now();
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // A process that was stopped meanwhile has not waited.
    left -= std::min<Clock::duration>(Clock::now() - start, std::chrono::seconds(30));
  }
  return false;
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_EVENTUALLY_TESTING_H_
