// A fixed team of threads for splitting the work of one step.
//
// The caller is a member of the team. Workers spin briefly for the next job, then sleep: on shared cores a team that
// only spins falls to a few percent of its speed. Work is split into contiguous ranges of items; which thread computes
// what must never change a result. One ParallelFor at a time; it may not be nested.
#ifndef NUNSPARK_BASE_THREAD_POOL_H_
#define NUNSPARK_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

class ThreadPool {
 public:
  // `threads`: the caller included. REQUIRES: threads >= 1.
  // Errors: kResourceExhausted when the system refuses a thread.
  static Result<std::unique_ptr<ThreadPool>> Create(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(begin, end, thread) so that [0, count) is covered once; ranges are multiples of `grain` except the last.
  // Returns when all are done. thread is in [0, threads()).
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, const Fn& fn) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) {
      fn(int64_t{0}, count, 0);
      return;
    }
    Run(
        count, grain,
        [](const void* context, int64_t begin, int64_t end, int thread) {
          (*static_cast<const Fn*>(context))(begin, end, thread);
        },
        &fn);
  }

 private:
  using Invoke = void (*)(const void* context, int64_t begin, int64_t end, int thread);

  ThreadPool() = default;
  void Run(int64_t count, int64_t grain, Invoke invoke, const void* context);
  void WorkerLoop(int thread);
  void RunShare(int thread) const;

  std::vector<std::thread> workers_;
  int spins_ = 0;  // before a waiting thread sleeps

  // The job; written by the caller before epoch_ moves on.
  int64_t count_ = 0;
  int64_t grain_ = 1;
  Invoke invoke_ = nullptr;
  const void* context_ = nullptr;

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> unfinished_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace nunspark

#endif  // NUNSPARK_BASE_THREAD_POOL_H_
