#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "io/queue_backends.h"
#include "io/read_splitter.h"

namespace nunspark {
namespace {

constexpr uint64_t kWakeTag = ~uint64_t{0};
constexpr int kMaxDepth = 1024;
constexpr int kPauseMs = 1;

class UringQueue final : public ReadQueue {
 public:
  UringQueue(std::vector<QueueFile> files, const ReadQueueOptions& options, UringEnter enter)
      : files_(std::move(files)), enter_(std::move(enter)), splitter_(files_, options.split_bytes) {
    const int depth = std::min(options.depth, kMaxDepth);
    slots_.resize(static_cast<size_t>(depth));
    prepared_.reserve(slots_.size() + 1);
    for (int slot = depth - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  }

  ~UringQueue() override;

  // Errors: kUnsupported. After a failure only the destructor may be called.
  Status Start();
  std::vector<QueueFile> TakeFiles() { return std::move(files_); }

  void Submit(const ReadRequest& request) override {
    splitter_.Add(request);
    StartChunks();
    Enter(Sleep::kNo);
  }

  void Poll(Wait wait, std::vector<ReadCompletion>& out) override;

  void Wake() override {
    const uint64_t one = 1;
    // Fails only when the counter is at its maximum, and then the reader wakes anyway.
    while (::write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  std::string Description() const override { return DescribeBackend("io_uring", files_); }
  std::string FallbackReason() const override { return WhyNotDirect(files_); }

 private:
  enum class Sleep { kNo, kYes };

  void StartChunks();
  void Prepare(int slot);
  void ArmWake();
  void Enter(Sleep sleep);
  void Break(int error);
  void Pause();
  void Reap();

  std::vector<QueueFile> files_;
  const UringEnter enter_;
  ReadSplitter splitter_;
  std::vector<Chunk> slots_;  // chunks in flight, by the tag of their ring entry
  std::vector<int> free_slots_;
  std::vector<uint64_t> prepared_;  // tags of entries that the kernel has not taken yet, in order
  std::string broken_;              // why the kernel takes nothing any more; "" while it does
  io_uring ring_ = {};
  bool ring_open_ = false;
  bool files_registered_ = false;
  int wake_fd_ = -1;
  uint64_t wake_value_ = 0;  // written by the kernel
  bool wake_armed_ = false;
  bool woken_ = false;
};

Status Refused(std::string_view call, int error) {
  return UnsupportedError(fmt::format("io_uring is refused here ({}: {})", call, ErrnoText(error)));
}

Status UringQueue::Start() {
  // One entry for every slot and one for the eventfd: the submission queue can never be full.
  int result = io_uring_queue_init(static_cast<unsigned>(slots_.size()) + 1, &ring_, 0);
  if (result < 0) return Refused("io_uring_setup", -result);
  ring_open_ = true;
  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(io_uring_get_probe_ring(&ring_),
                                                                         &io_uring_free_probe);
  if (probe == nullptr || io_uring_opcode_supported(probe.get(), IORING_OP_READ) == 0) {
    return UnsupportedError("io_uring of this kernel is too old: it lacks IORING_OP_READ (Linux 5.6)");
  }
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_fd_ < 0) return Refused("eventfd", errno);
  // Saves looking up and counting the descriptor for every chunk; plain descriptors do as well.
  std::vector<int> fds;
  for (const QueueFile& file : files_) fds.push_back(file.file.fd());
  files_registered_ =
      !fds.empty() && io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size())) == 0;
  return Status();
}

UringQueue::~UringQueue() {
  if (ring_open_) {
    splitter_.DropWaiting();
    while (splitter_.HasChunksOut()) {
      Reap();
      if (splitter_.HasChunksOut()) Enter(Sleep::kYes);
    }
    // The kernel must not write wake_value_ after it is gone.
    if (wake_armed_) Wake();
    while (wake_armed_) {
      Enter(Sleep::kYes);
      Reap();
    }
    io_uring_queue_exit(&ring_);
  }
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void UringQueue::Poll(Wait wait, std::vector<ReadCompletion>& out) {
  while (true) {
    Reap();
    StartChunks();
    const bool some = splitter_.TakeCompletions(out);
    if (some || wait == Wait::kNo || woken_) break;
    if (broken_.empty()) ArmWake();
    Enter(Sleep::kYes);
  }
  if (wait == Wait::kYes) woken_ = false;
  Enter(Sleep::kNo);
}

void UringQueue::StartChunks() {
  if (!broken_.empty()) {
    for (Chunk chunk; splitter_.Next(chunk);) splitter_.Refuse(chunk, broken_);
    return;
  }
  while (!free_slots_.empty()) {
    const int slot = free_slots_.back();
    if (!splitter_.Next(slots_[static_cast<size_t>(slot)])) return;
    free_slots_.pop_back();
    Prepare(slot);
  }
}

void UringQueue::Prepare(int slot) {
  const ReadCall read = splitter_.Call(slots_[static_cast<size_t>(slot)]);
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  CHECK(entry != nullptr);
  const int fd = files_registered_ ? read.file : files_[static_cast<size_t>(read.file)].file.fd();
  // The length of an entry has 32 bits; chunks are cut smaller (see split_bytes).
  io_uring_prep_read(entry, fd, read.dst, static_cast<unsigned>(read.bytes), static_cast<uint64_t>(read.offset));
  if (files_registered_) entry->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(entry, static_cast<uint64_t>(slot));
  prepared_.push_back(static_cast<uint64_t>(slot));
}

void UringQueue::ArmWake() {
  // Armed by the thread that sleeps, not when the ring is made: the kernel cancels what a finished thread submitted.
  if (wake_armed_) return;
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  CHECK(entry != nullptr);
  io_uring_prep_read(entry, wake_fd_, &wake_value_, sizeof wake_value_, 0);
  io_uring_sqe_set_data64(entry, kWakeTag);
  prepared_.push_back(kWakeTag);
  wake_armed_ = true;
}

// Hands prepared entries to the kernel; with kYes waits for a completion of any kind.
void UringQueue::Enter(Sleep sleep) {
  if (!broken_.empty()) {
    if (sleep == Sleep::kYes) Pause();
    return;
  }
  if (sleep == Sleep::kNo && prepared_.empty()) return;
  const int result = enter_(&ring_, sleep == Sleep::kYes ? 1 : 0);
  if (result >= 0) {
    prepared_.erase(prepared_.begin(), prepared_.begin() + result);
  } else if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) {
    // The kernel is short of memory or its completion queue is full: entries stay prepared and go with the next call.
    if (sleep == Sleep::kYes) Pause();
  } else if (result != -EINTR) {
    Break(-result);
  }
}

// The ring is of no use any more (its descriptor was closed, a filter was put in place). What the kernel has taken
// still comes back and may still write to its memory; everything else fails, now and from now on.
void UringQueue::Break(int error) {
  broken_ = fmt::format("io_uring_enter: {}", ErrnoText(error));
  for (const uint64_t tag : prepared_) {
    if (tag == kWakeTag) {
      wake_armed_ = false;
      continue;
    }
    splitter_.Refuse(slots_[static_cast<size_t>(tag)], broken_);
    free_slots_.push_back(static_cast<int>(tag));
  }
  prepared_.clear();
}

// Sleeps a moment, or until Wake where the ring does not look out for that.
void UringQueue::Pause() {
  pollfd wake = {.fd = wake_fd_, .events = POLLIN, .revents = 0};
  if (::poll(&wake, wake_armed_ ? 0 : 1, kPauseMs) <= 0) return;
  woken_ = ::read(wake_fd_, &wake_value_, sizeof wake_value_) > 0;
}

void UringQueue::Reap() {
  io_uring_cqe* completed[64];
  while (true) {
    const unsigned count = io_uring_peek_batch_cqe(&ring_, completed, 64);
    if (count == 0) return;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t tag = io_uring_cqe_get_data64(completed[i]);
      if (tag == kWakeTag) {
        // A cancelled read of the eventfd (its thread ended) is armed again by the next sleeper.
        wake_armed_ = false;
        woken_ = woken_ || completed[i]->res > 0;
        continue;
      }
      const int slot = static_cast<int>(tag);
      CHECK(static_cast<size_t>(slot) < slots_.size());
      Chunk& chunk = slots_[static_cast<size_t>(slot)];
      const bool again = splitter_.Apply(chunk, completed[i]->res) == ReadSplitter::Step::kAgain;
      if (again && broken_.empty()) {
        Prepare(slot);
        continue;
      }
      if (again) splitter_.Refuse(chunk, broken_);
      free_slots_.push_back(slot);
    }
    io_uring_cq_advance(&ring_, count);
  }
}

}  // namespace

int SystemUringEnter(io_uring* ring, unsigned wait_for) { return io_uring_submit_and_wait(ring, wait_for); }

Result<std::unique_ptr<ReadQueue>> MakeUringQueue(std::vector<QueueFile>& files, const ReadQueueOptions& options,
                                                  UringEnter enter) {
  auto queue = std::make_unique<UringQueue>(std::move(files), options, std::move(enter));
  if (const Status status = queue->Start(); !status.ok()) {
    files = queue->TakeFiles();
    return status;
  }
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

}  // namespace nunspark
