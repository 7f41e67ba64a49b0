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

}  // namespace

ReadDriver::ReadDriver(std::unique_ptr<ReadQueue> queue, int32_t jobs, OnDone on_done)
    : queue_(std::move(queue)), on_done_(std::move(on_done)), jobs_(static_cast<size_t>(jobs)) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { Run(); });
}

ReadDriver::~ReadDriver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Kick();
  thread_.join();
}

void ReadDriver::Start(int32_t job, std::span<const Extent> extents, uint8_t* slot, ReadPriority priority) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  CHECK(!extents.empty() && !entry.queued && entry.in_flight == 0);
  entry = Job();
  entry.extents = extents;
  entry.slot = slot;
  entry.priority = priority;
  Append(job);
}

void ReadDriver::Promote(int32_t job) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[static_cast<size_t>(job)];
  if (entry.priority == ReadPriority::kDemand) return;
  const bool queued = entry.queued;
  if (queued) Remove(job);
  InFlight(ReadPriority::kPrefetch) -= entry.in_flight;
  InFlight(ReadPriority::kDemand) += entry.in_flight;
  entry.priority = ReadPriority::kDemand;
  if (queued) Append(job);
}

void ReadDriver::Kick() {
  const std::lock_guard lock(mutex_);
  if (thread_state_ == Thread::kIdle) work_.notify_one();
  if (thread_state_ == Thread::kPolling) queue_->Wake();
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
    requests_.clear();
    const bool was_reading = TotalInFlight() > 0;
    if (!stopping_) CutRequests();
    if (TotalInFlight() == 0) {
      if (stopping_) return;
      thread_state_ = Thread::kIdle;
      work_.wait(lock);
      thread_state_ = Thread::kBusy;
      continue;
    }
    if (!was_reading) reading_since_ = std::chrono::steady_clock::now();
    thread_state_ = Thread::kPolling;
    lock.unlock();
    for (const ReadRequest& request : requests_) queue_->Submit(request);
    completions_.clear();
    queue_->Poll(ReadQueue::Wait::kYes, completions_);
    lock.lock();
    thread_state_ = Thread::kBusy;
    done_.clear();
    for (const ReadCompletion& completion : completions_) Apply(completion);
    if (TotalInFlight() == 0) {
      read_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - reading_since_).count();
    }
    if (done_.empty()) continue;
    lock.unlock();
    for (const Done& done : done_) on_done_(done.job, done.status);
    lock.lock();
  }
}

void ReadDriver::CutRequests() {
  List& demand = Waiting(ReadPriority::kDemand);
  while (demand.first >= 0) CutOne(demand.first, std::numeric_limits<int64_t>::max());
  List& prefetch = Waiting(ReadPriority::kPrefetch);
  while (prefetch.first >= 0 && InFlight(ReadPriority::kDemand) == 0 &&
         InFlight(ReadPriority::kPrefetch) < kPrefetchChunks) {
    CutOne(prefetch.first, kPrefetchChunkBytes);
  }
}

// The job's next request, at most `bytes_max` long; leaves its list with the last one.
void ReadDriver::CutOne(int32_t index, int64_t bytes_max) {
  Job& job = jobs_[static_cast<size_t>(index)];
  const Extent& extent = job.extents[job.extent];
  const int64_t bytes = std::min(extent.bytes - job.offset, bytes_max);
  requests_.push_back({.file = extent.file,
                       .offset = extent.file_offset + job.offset,
                       .bytes = bytes,
                       .dst = job.slot + extent.slot_offset + job.offset,
                       .tag = static_cast<uint64_t>(index)});
  ++job.in_flight;
  ++InFlight(job.priority);
  job.offset += bytes;
  if (job.offset < extent.bytes) return;
  job.offset = 0;
  if (++job.extent == job.extents.size()) Remove(index);
}

void ReadDriver::Apply(const ReadCompletion& completion) {
  const auto index = static_cast<int32_t>(completion.tag);
  CHECK(completion.tag < jobs_.size());
  Job& job = jobs_[static_cast<size_t>(index)];
  CHECK(job.in_flight > 0);
  --job.in_flight;
  --InFlight(job.priority);
  if (!completion.status.ok()) {
    if (job.status.ok()) job.status = completion.status;
    if (job.queued) Remove(index);  // the rest would be read for nothing
  }
  // The slot is free again only when nothing can write to it any more, also after an error.
  if (job.in_flight == 0 && !job.queued) done_.push_back({index, std::exchange(job.status, Status())});
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
