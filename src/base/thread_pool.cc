#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "base/check.h"
#include "base/cpu_count.h"
#include "base/spin.h"
#include "base/thread_signals.h"

namespace nunspark {
namespace {

// About 20-50 us of pauses: longer than the gap between two jobs of a step, shorter than a time slice.
constexpr int kSpins = 2000;

// Spins, then sleeps, until the value is no longer `old`.
uint32_t AwaitChange(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    SpinPause();
  }
  while (true) {
    value.wait(old, std::memory_order_acquire);
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads) {
  CHECK(threads >= 1);
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  // A spinning thread that shares its CPU with the one it waits for only delays it.
  pool->spins_ = threads <= DefaultThreads() ? kSpins : 0;
  // Signals are for the threads that know what they interrupt.
  const BlockedSignals blocked;
  for (int thread = 1; thread < threads; ++thread) {
    try {
      pool->workers_.emplace_back([raw = pool.get(), thread] { raw->WorkerLoop(thread); });
    } catch (const std::system_error& error) {
      return ResourceExhaustedError(fmt::format("the system refuses compute thread {} of {}: {}; use fewer --threads",
                                                thread + 1, threads, error.code().message()));
    }
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, int64_t grain, Invoke invoke, const void* context) {
  count_ = count;
  grain_ = std::max<int64_t>(grain, 1);
  invoke_ = invoke;
  context_ = context;
  unfinished_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  RunShare(0);
  uint32_t left = unfinished_.load(std::memory_order_acquire);
  while (left != 0) left = AwaitChange(unfinished_, left, spins_);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(epoch_, seen, spins_);
    if (stopping_.load(std::memory_order_relaxed)) return;
    RunShare(thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

void ThreadPool::RunShare(int thread) const {
  const int64_t team = threads();
  const int64_t grains = (count_ + grain_ - 1) / grain_;
  const int64_t begin = grains * thread / team * grain_;
  const int64_t end = std::min(count_, grains * (thread + 1) / team * grain_);
  if (begin < end) invoke_(context_, begin, end, thread);
}

}  // namespace nunspark
