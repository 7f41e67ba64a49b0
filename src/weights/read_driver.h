// ReadDriver: the I/O thread, or whoever does its work. Turns jobs (a list of extents into one slot) into requests of a
// ReadQueue and says when a whole job is done.
//
// Demand goes before prefetch: a prefetch is handed over in small chunks, and only while no demand read is in flight,
// so that a demand read never waits behind more than a few of them. A prefetch that becomes wanted is promoted, one
// that is not wanted any more is cancelled. A job that the drive does not answer can be abandoned and read again
// elsewhere.
//
// A thread that will wait for its own reads may drive the queue in the I/O thread's place: the read then begins and its
// end is seen without a switch of threads, which takes longer than a tenth of a read. It never sleeps at that: what it
// does not want to wait for any longer it leaves to the I/O thread, with a Kick.
//
// Thread-safety: all methods by any thread. Locks: callers may hold their own lock while calling, except for Drive and
// KickAndDrive; reports come on the thread that drives, without the driver's lock.
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
  // What a caller keeps outstanding at least before it hands over the next request.
  static constexpr int64_t kLeastWindowBytes = 1 << 20;

  enum class Event : uint8_t {
    kFirst,     // the first extents are in memory, others are still on their way
    kDone,      // the last report of a job: all is in memory, or it failed, or it was cancelled (kCancelled)
    kReturned,  // an abandoned job's slot: nothing writes to it any more
  };
  struct Report {
    int32_t job = 0;
    uint32_t start = 0;  // as Start returned
    Event event = Event::kDone;
    uint8_t* slot = nullptr;
    int64_t bytes = 0;  // handed to the queue
    Status status;
  };
  using OnReport = std::function<void(const Report&)>;

  // Jobs are numbered [0, jobs). Afterwards it allocates only when more requests are in flight than ever before (their
  // number is limited by the extents of all jobs), a read fails or a job is abandoned. Throws std::system_error when
  // the system refuses the thread.
  ReadDriver(std::unique_ptr<ReadQueue> queue, int32_t jobs, OnReport on_report);

  // Drops what the queue has not been given (nothing is reported for it) and waits for the rest.
  ~ReadDriver();
  // The same, and no report comes afterwards. False when the drive has not answered for `timeout`: this object, the
  // slots and whatever else the queue uses then have to stay as long as the process. REQUIRES: nobody else calls any
  // more.
  bool Stop(std::chrono::milliseconds timeout);

  // Queues a job; Kick sends what is queued. The first `first_extents` of `extents` (not empty) are read first and
  // reported on their own; extents.size() or 0: they are not. Extents and slot stay valid until kDone or kReturned.
  // Returns a number that tells this start from others of the job.
  // REQUIRES: the job was never started, or its last start is over: reported done, cancelled or abandoned.
  uint32_t Start(int32_t job, std::span<const Extent> extents, size_t first_extents, uint8_t* slot,
                 ReadPriority priority);
  // Makes a queued or running prefetch a demand read; no effect on others.
  void Promote(int32_t job);
  // Reads no more of a job. True: none of it is in flight, and no report comes. False: kDone is still to come.
  bool Cancel(int32_t job);
  // What was handed to the queue of a job's last start.
  int64_t BytesOf(int32_t job) const;
  // Gives up waiting for a job's reads. False, and no effect, when none of them is in flight.
  bool Abandon(int32_t job);
  // The I/O thread reads what is queued, and goes on with what a caller has begun.
  void Kick();
  // The caller reads what is queued, unless the I/O thread is at work. The caller then either drives on or kicks.
  // Prefetches go to the I/O thread, unless there are `few`: what is in flight at once lasts until the caller is back.
  enum class Prefetches : uint8_t { kMany, kFew };
  void KickAndDrive(Prefetches prefetches = Prefetches::kMany);
  // What can be done at the moment without waiting, where callers drive. False: the I/O thread does.
  bool Drive();

  // Whether reads are in flight and none was handed over or came back for so long. Abandoned ones do not count.
  bool IsSilent(std::chrono::milliseconds since) const;
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
    size_t first_extents = 0;
    uint8_t* slot = nullptr;
    size_t extent = 0;            // where the next request begins
    int64_t offset = 0;           // within that extent
    int32_t in_flight = 0;        // requests
    int32_t first_in_flight = 0;  // those of the first extents
    int64_t bytes = 0;            // handed over
    int64_t outstanding = 0;      // of these, about: not yet back
    ReadPriority priority = ReadPriority::kDemand;
    bool active = false;  // started, and kDone not yet made
    bool queued = false;  // in a list: has more requests to give
    int32_t previous = -1;
    int32_t next = -1;
    uint32_t generation = 0;  // of its requests; changes with each start
    Status status;
  };
  // What is still in flight of an abandoned job.
  struct Orphan {
    int32_t job = 0;
    uint32_t generation = 0;
    int32_t in_flight = 0;
    uint8_t* slot = nullptr;
  };

  void Run();
  void Turn(std::unique_lock<std::mutex>& lock, ReadQueue::Wait wait);
  void DriveLocked(std::unique_lock<std::mutex>& lock);
  void WakeThread();
  void CutRequests();
  void CutOne(int32_t index, int64_t bytes_max);
  void Apply(const ReadCompletion& completion);
  void ApplyToOrphan(int32_t job, uint32_t generation);
  void Append(int32_t index);
  void Remove(int32_t index);
  int32_t& InFlight(ReadPriority priority) { return in_flight_[static_cast<size_t>(priority)]; }
  List& Waiting(ReadPriority priority) { return waiting_[static_cast<size_t>(priority)]; }
  int32_t TotalInFlight() const { return in_flight_[0] + in_flight_[1]; }
  bool IsWaiting(ReadPriority priority) { return Waiting(priority).first >= 0; }

  const std::unique_ptr<ReadQueue> queue_;
  const OnReport on_report_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Job> jobs_;
  List waiting_[2];
  int32_t in_flight_[2] = {0, 0};  // requests, by priority
  int64_t outstanding_ = 0;        // bytes of all jobs
  int64_t callers_window_ = 0;     // how many of them callers keep outstanding
  std::chrono::steady_clock::time_point driven_at_;
  std::vector<Orphan> orphans_;  // not among them
  enum class Thread : uint8_t { kBusy, kIdle, kPolling };
  Thread thread_state_ = Thread::kBusy;
  bool callers_drive_ = false;  // and the I/O thread stays idle
  bool driving_ = false;        // one of them is at it
  Prefetches prefetches_ = Prefetches::kMany;
  bool stopping_ = false;
  bool stopped_ = false;         // the I/O thread has ended
  bool reporting_ = false;       // without the lock
  bool muted_ = false;           // nobody wants reports any more
  std::condition_variable end_;  // of the thread, or of reporting
  int64_t read_ns_ = 0;
  std::chrono::steady_clock::time_point reading_since_;
  std::chrono::steady_clock::time_point heard_at_;  // of the last request handed over or returned

  // Of the thread that drives; their room is reused.
  std::vector<ReadRequest> requests_;
  std::vector<ReadCompletion> completions_;
  std::vector<Report> reports_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_READ_DRIVER_H_
