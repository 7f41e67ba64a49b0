// A fixed team of threads for splitting the work of one step.
//
// The caller is a member of the team. A job is cut into ranges that threads take as they come: a thread that is asleep,
// or that the system lets wait for a CPU, is not waited for unless it has begun a range - the others do its part. Which
// thread computes what must never change a result.
//
// Waiting threads spin for at most 1 ms, then sleep: longer than the pauses between the jobs of a step, so that a step
// runs without system calls; 0.1 ms where others want the cores (base/spin.h, docs/measurements/threads.md).
//
// Where the team has a CPU for each member, every thread but the caller's is bound to one of its own. The caller's
// thread belongs to the caller, and where it may run is left as it is; but when it is kept from running in the middle
// of a job, because others compute on the same CPUs, a waiting worker changes places with it. For that moment its
// affinity mask is set to one CPU; nobody else should set it during a job.
//
// One ParallelFor at a time, by whatever thread; it may not be nested. Threads that read from the drive have no part in
// this: they are not members and never call it.
#ifndef NUNSPARK_BASE_THREAD_POOL_H_
#define NUNSPARK_BASE_THREAD_POOL_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/align.h"
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

  // Calls fn(begin, end, thread) so that [0, count) is covered once; ranges begin at multiples of `grain`. Returns when
  // all are done. thread is in [0, threads()) and runs one range at a time, but perhaps several, or none.
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

  // A loop among several, and what one of its items costs beside those of the others.
  struct Part {
    int64_t items;
    int64_t cost = 1;
  };

  // Several loops in one job, say over the outputs of several matrices: calls fn(part, begin, end, thread) so that
  // [0, part_of(part).items) of every part in [0, parts) is covered once; ranges begin at multiples of `grain`. Every
  // thread's share costs about the same. REQUIRES: costs > 0.
  template <typename PartOf, typename Fn>
  void ParallelForParts(int64_t parts, const PartOf& part_of, int64_t grain, const Fn& fn) {
    // In units of cost. The grains that begin within a range belong to it.
    int64_t units = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const Part part = part_of(i);
      units += CeilDiv(part.items, grain) * part.cost;
    }
    ParallelFor(units, 1, [&](int64_t begin, int64_t end, int thread) {
      int64_t before = 0;
      for (int64_t i = 0; i < parts && before < end; ++i) {
        const Part part = part_of(i);
        const int64_t first = CeilDiv(std::max<int64_t>(begin - before, 0), part.cost) * grain;
        const int64_t last = std::min(CeilDiv(end - before, part.cost) * grain, part.items);
        if (first < last) fn(i, first, last, thread);
        before += CeilDiv(part.items, grain) * part.cost;
      }
    });
  }

 private:
  using Invoke = void (*)(const void* context, int64_t begin, int64_t end, int thread);

  ThreadPool() = default;
  void Run(int64_t count, int64_t grain, Invoke invoke, const void* context);
  void Publish(uint32_t units);
  uint32_t RunRanges(int thread);
  void AwaitRest();
  void WorkerLoop(int thread);
  uint32_t AwaitJob(uint32_t seen);
  void HelpCaller();
  void StopBeingHelped();

  std::vector<std::thread> workers_;
  int64_t spin_ns_ = 0;      // before a waiting thread sleeps
  int64_t ranges_each_ = 1;  // into how many ranges a thread's share is cut
  bool bound_ = false;       // workers have a CPU each
  CpuMask allowed_;          // where they may run otherwise

  // The number of the job in the upper half, its units that nobody has taken yet in the lower one. Units are taken by
  // counting down, which succeeds only while the job is still the one that was read.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  // The job, in the cache line that workers fetch anyway. One of them may read it while the caller writes the next one:
  // it then fails to take units, and what it has read is not used. Hence atomics.
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> grain_{1};  // items of a unit
  std::atomic<uint32_t> units_{0};
  std::atomic<uint32_t> range_{1};  // units that a thread takes at a time
  std::atomic<Invoke> invoke_{nullptr};
  std::atomic<const void*> context_{nullptr};

  alignas(64) std::atomic<uint32_t> unfinished_{0};  // units

  alignas(64) std::atomic<uint32_t> sleeping_{0};  // 1: a worker sleeps, or is about to
  std::atomic<uint32_t> gate_{0};                  // what workers sleep on; moves when they shall wake
  std::atomic<uint32_t> caller_sleeping_{0};       // what the caller sleeps on while it is 1
  std::atomic<bool> stopping_{false};

  // Of a caller that is awake in the middle of a job; 0 otherwise, negative while a worker changes places with it.
  alignas(64) std::atomic<pid_t> caller_{0};
  std::atomic<int> caller_cpu_{-1};
};

}  // namespace nunspark

#endif  // NUNSPARK_BASE_THREAD_POOL_H_
