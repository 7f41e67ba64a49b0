#include "weights/read_driver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/thread_signals.h"

namespace nunspark {
namespace {

// Enough in flight for a drive's full bandwidth (field data: NVMe saturates at a few MiB), little enough that a demand
// read behind it waits a millisecond or two.
constexpr int64_t kPrefetchChunkBytes = 1 << 20;
constexpr int32_t kPrefetchChunks = 4;

// A caller that waits computes with each piece as it arrives; pieces that are read together would arrive together, at
// the end. So the drive gets the next one only when little is left to read (kLeastWindowBytes): more where it has been
// found idle after the caller was away computing, and less again with time.
constexpr int64_t kMostWindowBytes = 64 << 20;
constexpr int64_t kWindowDecay = 64;
constexpr std::chrono::microseconds kAway{50};

// A request's tag: job, whether it belongs to the first extents, generation.
constexpr uint64_t kFirstBit = uint64_t{1} << 32;
constexpr int kGenerationShift = 33;
constexpr uint32_t kGenerationMask = 0x7fffffff;

}  // namespace

ReadDriver::ReadDriver(std::unique_ptr<ReadQueue> queue, int32_t jobs, OnReport on_report)
    : queue_(std::move(queue)), on_report_(std::move(on_report)), jobs_(static_cast<size_t>(jobs)) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { Run(); });
}

ReadDriver::~ReadDriver() {
  if (thread_.joinable()) (void)Stop(std::chrono::milliseconds::max());
}

bool ReadDriver::Stop(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    // What a caller has left may be back, and nobody has looked.
    if (TotalInFlight() > 0) heard_at_ = Clock::now();
    WakeThread();
    while (!stopped_) {
      const bool reads = TotalInFlight() > 0 || !orphans_.empty();
      if (!reads || reporting_ || timeout == std::chrono::milliseconds::max()) {
        end_.wait(lock);
      } else if (Clock::now() - heard_at_ <= timeout) {
        end_.wait_until(lock, heard_at_ + timeout + std::chrono::milliseconds(1));
      } else {
        muted_ = true;
        thread_.detach();
        return false;
      }
    }
  }
  thread_.join();
  return true;
}

uint32_t ReadDriver::Start(int32_t job, std::span<const Extent> extents, size_t first_extents, uint8_t* slot,
                           ReadPriority priority) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  CHECK(!extents.empty() && first_extents <= extents.size() && !entry.active);
  const uint32_t generation = (entry.generation + 1) & kGenerationMask;
  entry = Job();
  entry.extents = extents;
  entry.first_extents = first_extents == extents.size() ? 0 : first_extents;
  entry.slot = slot;
  entry.priority = priority;
  entry.active = true;
  entry.generation = generation;
  Append(job);
  return generation;
}

void ReadDriver::Promote(int32_t job) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  if (!entry.active || entry.priority == ReadPriority::kDemand) return;
  const bool queued = entry.queued;
  if (queued) Remove(job);
  InFlight(ReadPriority::kPrefetch) -= entry.in_flight;
  InFlight(ReadPriority::kDemand) += entry.in_flight;
  entry.priority = ReadPriority::kDemand;
  if (queued) Append(job);
}

bool ReadDriver::Cancel(int32_t job) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  if (!entry.active) return false;
  if (entry.queued) {
    Remove(job);
    entry.status = CancelledError("cancelled");
  }
  if (entry.in_flight > 0) return false;
  entry.active = false;
  return true;
}

int64_t ReadDriver::BytesOf(int32_t job) const {
  const std::lock_guard lock(mutex_);
  return jobs_[static_cast<size_t>(job)].bytes;
}

bool ReadDriver::Abandon(int32_t job) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  if (!entry.active || entry.in_flight == 0) return false;
  if (entry.queued) Remove(job);
  InFlight(entry.priority) -= entry.in_flight;
  outstanding_ -= entry.outstanding;
  orphans_.push_back({job, entry.generation, entry.in_flight, entry.slot});
  entry.in_flight = 0;
  entry.active = false;
  // The next start has another generation; until then none matches.
  entry.generation = (entry.generation + 1) & kGenerationMask;
  return true;
}

bool ReadDriver::IsSilent(std::chrono::milliseconds since) const {
  const std::lock_guard lock(mutex_);
  return TotalInFlight() > 0 && std::chrono::steady_clock::now() - heard_at_ > since;
}

void ReadDriver::Kick() {
  const std::lock_guard lock(mutex_);
  WakeThread();
}

void ReadDriver::WakeThread() {
  callers_drive_ = false;
  if (thread_state_ == Thread::kIdle) work_.notify_one();
  if (thread_state_ == Thread::kPolling) queue_->Wake();
}

void ReadDriver::KickAndDrive(Prefetches prefetches) {
  std::unique_lock lock(mutex_);
  if (!callers_drive_) {
    if (thread_state_ != Thread::kIdle || TotalInFlight() > 0 || !orphans_.empty()) return WakeThread();
    callers_drive_ = true;
    prefetches_ = prefetches;
  }
  if (prefetches == Prefetches::kFew) prefetches_ = prefetches;
  callers_window_ = std::max(kLeastWindowBytes, callers_window_ - callers_window_ / kWindowDecay);
  DriveLocked(lock);
}

bool ReadDriver::Drive() {
  std::unique_lock lock(mutex_);
  if (callers_drive_) DriveLocked(lock);
  return callers_drive_;
}

void ReadDriver::DriveLocked(std::unique_lock<std::mutex>& lock) {
  if (driving_) return;  // the other one will see what is queued
  driving_ = true;
  const bool was_away = std::chrono::steady_clock::now() - driven_at_ > kAway;
  const bool was_reading = TotalInFlight() > 0;
  do {
    Turn(lock, ReadQueue::Wait::kNo);
    if (was_away && was_reading && TotalInFlight() == 0 && IsWaiting(ReadPriority::kDemand)) {
      callers_window_ = std::min(2 * callers_window_, kMostWindowBytes);
    }
  } while (!requests_.empty() || (TotalInFlight() == 0 && IsWaiting(ReadPriority::kDemand)));
  driving_ = false;
  driven_at_ = std::chrono::steady_clock::now();
  // Many prefetches have to go on while the caller computes.
  const bool many = prefetches_ == Prefetches::kMany && IsWaiting(ReadPriority::kPrefetch);
  if (!callers_drive_ || many) WakeThread();
}

int64_t ReadDriver::read_us() const {
  const std::lock_guard lock(mutex_);
  int64_t ns = read_ns_;
  if (TotalInFlight() > 0) ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - reading_since_).count();
  return ns / 1000;
}

void ReadDriver::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool others = callers_drive_ || driving_;
    const bool wanted = !stopping_ && (IsWaiting(ReadPriority::kDemand) || IsWaiting(ReadPriority::kPrefetch));
    if (others || (!wanted && TotalInFlight() == 0 && orphans_.empty())) {
      if (stopping_ && !others) break;
      thread_state_ = Thread::kIdle;
      work_.wait(lock);
      thread_state_ = Thread::kBusy;
    } else {
      Turn(lock, ReadQueue::Wait::kYes);
    }
  }
  stopped_ = true;
  end_.notify_all();
}

// Hands over what is queued, then takes what has come back.
void ReadDriver::Turn(std::unique_lock<std::mutex>& lock, ReadQueue::Wait wait) {
  requests_.clear();
  const bool was_reading = TotalInFlight() > 0;
  if (!stopping_) CutRequests();
  if (!requests_.empty()) heard_at_ = std::chrono::steady_clock::now();
  if (!was_reading) reading_since_ = heard_at_;
  if (wait == ReadQueue::Wait::kYes) thread_state_ = Thread::kPolling;
  lock.unlock();
  for (const ReadRequest& request : requests_) queue_->Submit(request);
  completions_.clear();
  queue_->Poll(wait, completions_);
  lock.lock();
  if (wait == ReadQueue::Wait::kYes) thread_state_ = Thread::kBusy;
  reports_.clear();
  if (!completions_.empty()) heard_at_ = std::chrono::steady_clock::now();
  const bool still_reading = TotalInFlight() > 0;
  for (const ReadCompletion& completion : completions_) Apply(completion);
  if (still_reading && TotalInFlight() == 0) {
    read_ns_ += std::chrono::nanoseconds(heard_at_ - reading_since_).count();
  }
  if (stopping_) end_.notify_all();
  if (reports_.empty() || muted_) return;
  reporting_ = true;
  lock.unlock();
  for (const Report& report : reports_) on_report_(report);
  lock.lock();
  reporting_ = false;
  if (stopping_) end_.notify_all();
}

void ReadDriver::CutRequests() {
  List& demand = Waiting(ReadPriority::kDemand);
  while (demand.first >= 0 && !(callers_drive_ && outstanding_ >= callers_window_)) {
    CutOne(demand.first, std::numeric_limits<int64_t>::max());
  }
  List& prefetch = Waiting(ReadPriority::kPrefetch);
  while (prefetch.first >= 0 && InFlight(ReadPriority::kDemand) == 0 &&
         InFlight(ReadPriority::kPrefetch) < (callers_drive_ ? 1 : kPrefetchChunks)) {
    CutOne(prefetch.first, kPrefetchChunkBytes);
  }
}

// The job's next request, at most `bytes_max` long; leaves its list with the last one.
void ReadDriver::CutOne(int32_t index, int64_t bytes_max) {
  Job& job = jobs_[static_cast<size_t>(index)];
  const Extent& extent = job.extents[job.extent];
  const int64_t bytes = std::min(extent.bytes - job.offset, bytes_max);
  const bool first = job.extent < job.first_extents;
  requests_.push_back({.file = extent.file,
                       .offset = extent.file_offset + job.offset,
                       .bytes = bytes,
                       .dst = job.slot + extent.slot_offset + job.offset,
                       .tag = static_cast<uint64_t>(index) | (first ? kFirstBit : 0) |
                              (static_cast<uint64_t>(job.generation) << kGenerationShift)});
  ++job.in_flight;
  job.first_in_flight += first ? 1 : 0;
  job.bytes += bytes;
  job.outstanding += bytes;
  outstanding_ += bytes;
  ++InFlight(job.priority);
  job.offset += bytes;
  if (job.offset < extent.bytes) return;
  job.offset = 0;
  if (++job.extent == job.extents.size()) Remove(index);
}

void ReadDriver::Apply(const ReadCompletion& completion) {
  const auto index = static_cast<int32_t>(completion.tag & (kFirstBit - 1));
  const auto generation = static_cast<uint32_t>(completion.tag >> kGenerationShift);
  CHECK(index >= 0 && static_cast<size_t>(index) < jobs_.size());
  Job& job = jobs_[static_cast<size_t>(index)];
  if (!job.active || generation != job.generation) return ApplyToOrphan(index, generation);
  CHECK(job.in_flight > 0);
  // Requests of a job are taken to be of one size.
  const int64_t back = job.outstanding / job.in_flight;
  job.outstanding -= back;
  outstanding_ -= back;
  --job.in_flight;
  --InFlight(job.priority);
  const bool first = (completion.tag & kFirstBit) != 0;
  job.first_in_flight -= first ? 1 : 0;
  if (!completion.status.ok()) {
    if (job.status.ok()) job.status = completion.status;
    if (job.queued) Remove(index);  // the rest would be read for nothing
  }
  // The slot is free again only when nothing can write to it any more, also after an error.
  if (job.in_flight == 0 && !job.queued) {
    job.active = false;
    reports_.push_back({index, generation, Event::kDone, job.slot, job.bytes, std::exchange(job.status, Status())});
  } else if (first && job.first_in_flight == 0 && job.extent >= job.first_extents && job.status.ok()) {
    reports_.push_back({index, generation, Event::kFirst, job.slot, job.bytes, Status()});
  }
}

void ReadDriver::ApplyToOrphan(int32_t job, uint32_t generation) {
  const auto orphan = std::find_if(orphans_.begin(), orphans_.end(), [&](const Orphan& candidate) {
    return candidate.job == job && candidate.generation == generation;
  });
  CHECK(orphan != orphans_.end());
  if (--orphan->in_flight > 0) return;
  reports_.push_back({job, generation, Event::kReturned, orphan->slot, 0, Status()});
  orphans_.erase(orphan);
}

void ReadDriver::Append(int32_t index) {
  Job& job = jobs_[static_cast<size_t>(index)];
  List& list = Waiting(job.priority);
  job.queued = true;
  job.previous = list.last;
  job.next = -1;
  (list.last >= 0 ? jobs_[static_cast<size_t>(list.last)].next : list.first) = index;
  list.last = index;
}

void ReadDriver::Remove(int32_t index) {
  Job& job = jobs_[static_cast<size_t>(index)];
  List& list = Waiting(job.priority);
  job.queued = false;
  (job.previous >= 0 ? jobs_[static_cast<size_t>(job.previous)].next : list.first) = job.next;
  (job.next >= 0 ? jobs_[static_cast<size_t>(job.next)].previous : list.last) = job.previous;
}

}  // namespace nunspark
