#include "io/await_reads.h"

#include <thread>

#include "base/spin.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at a read that takes longer than spinning is worth.
constexpr std::chrono::microseconds kLookAgain{100};

}  // namespace

bool AwaitReads(ReadQueue& queue, std::chrono::milliseconds timeout, std::vector<ReadCompletion>& out) {
  const size_t before = out.size();
  const auto poll = [&] {
    queue.Poll(ReadQueue::Wait::kNo, out);
    return out.size() > before;
  };
  const Clock::time_point since = Clock::now();
  if (SpinUntil(shared_cores.Seen() ? 0 : kSpinAloneNs, poll)) return true;
  while (Clock::now() - since <= timeout) {
    std::this_thread::sleep_for(kLookAgain);
    if (poll()) return true;
  }
  return false;
}

}  // namespace nunspark
