// ReadDriver: the I/O thread. Turns jobs (a list of extents into one slot) into requests of a ReadQueue and says when a
// whole job is done.
//
// Demand goes before prefetch: a prefetch is handed over in small chunks, and only while no demand read is in flight,
// so that a demand read never waits behind more than a few of them. A prefetch that becomes wanted is promoted.
// Thread-safety: all methods by any thread. Locks: callers may hold their own lock while calling; `on_done` is called
// by the I/O thread without the driver's lock.
#ifndef NUNSPARK_WEIGHTS_READ_DRIVER_H_
#define NUNSPARK_WEIGHTS_READ_DRIVER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/read_queue.h"
#include "weights/piece_index.h"

namespace nunspark {

enum class ReadPriority : uint8_t { kDemand, kPrefetch };

class ReadDriver {
 public:
  using OnDone = std::function<void(int32_t job, const Status& status)>;

  // Jobs are numbered [0, jobs). Afterwards it allocates only when more requests are in flight than ever before (their
  // number is limited by the extents of all jobs) or a read fails. Throws std::system_error when the system refuses the
  // thread.
  ReadDriver(std::unique_ptr<ReadQueue> queue, int32_t jobs, OnDone on_done);

  // Drops what the queue has not been given (on_done is not called for it) and waits for the rest.
  ~ReadDriver();

  // Queues a job; Kick sends what is queued. `extents` (not empty) and `slot` stay valid until on_done(job).
  // REQUIRES: the job is not queued or in flight.
  void Start(int32_t job, std::span<const Extent> extents, uint8_t* slot, ReadPriority priority);
  // Makes a queued or running prefetch a demand read; no effect on others.
  void Promote(int32_t job);
  void Kick();

  // Time with at least one read in flight.
  int64_t read_us() const;
  const ReadQueue& queue() const { return *queue_; }

 private:
  // Doubly linked through jobs_, oldest first.
  struct List {
    int32_t first = -1;
    int32_t last = -1;
  };
  struct Job {
    std::span<const Extent> extents;
    uint8_t* slot = nullptr;
    size_t extent = 0;      // where the next request begins
    int64_t offset = 0;     // within that extent
    int32_t in_flight = 0;  // requests
    ReadPriority priority = ReadPriority::kDemand;
    bool queued = false;  // in a list: has more requests to give
    int32_t previous = -1;
    int32_t next = -1;
    Status status;
  };
  struct Done {
    int32_t job;
    Status status;
  };

  void Run();
  void CutRequests();
  void CutOne(int32_t index, int64_t bytes_max);
  void Apply(const ReadCompletion& completion);
  void Append(int32_t index);
  void Remove(int32_t index);
  int32_t& InFlight(ReadPriority priority) { return in_flight_[static_cast<size_t>(priority)]; }
  List& Waiting(ReadPriority priority) { return waiting_[static_cast<size_t>(priority)]; }
  int32_t TotalInFlight() const { return in_flight_[0] + in_flight_[1]; }

  const std::unique_ptr<ReadQueue> queue_;
  const OnDone on_done_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Job> jobs_;
  List waiting_[2];
  int32_t in_flight_[2] = {0, 0};  // requests, by priority
  enum class Thread : uint8_t { kBusy, kIdle, kPolling };
  Thread thread_state_ = Thread::kBusy;
  bool stopping_ = false;
  int64_t read_ns_ = 0;
  std::chrono::steady_clock::time_point reading_since_;

  // Of the I/O thread only; their room is reused.
  std::vector<ReadRequest> requests_;
  std::vector<ReadCompletion> completions_;
  std::vector<Done> done_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_READ_DRIVER_H_
