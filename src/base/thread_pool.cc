#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/spin.h"

namespace nunspark {
namespace {

// About 20-50 us of pauses: longer than the gap between two jobs of a step, shorter than a time slice.
constexpr int kSpins = 2000;

// Spins, then sleeps, until the value is no longer `old`.
uint32_t AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
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

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1);
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
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
  while (left != 0) left = AwaitChange(unfinished_, left);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(epoch_, seen);
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

int DefaultThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  // cgroup v2: "<quota> <period>" or "max <period>".
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    cpus = std::min(cpus, std::max(1, static_cast<int>(std::ceil(std::stod(quota) / period))));
  }
  return cpus;
}

}  // namespace nunspark
