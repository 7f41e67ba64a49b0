#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/thread_signals.h"
#include "io/queue_backends.h"
#include "io/read_splitter.h"

namespace nunspark {
namespace {

class PreadQueue final : public ReadQueue {
 public:
  PreadQueue(std::vector<QueueFile> files, const ReadQueueOptions& options, std::string why_pread, PreadCall call)
      : files_(std::move(files)),
        why_pread_(std::move(why_pread)),
        call_(std::move(call)),
        splitter_(files_, options.split_bytes) {}

  ~PreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      splitter_.DropWaiting();
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Status Start(int threads);

  void Submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      splitter_.Add(request);
    }
    // A request usually has several chunks, enough for every thread.
    work_.notify_all();
  }

  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    std::unique_lock lock(mutex_);
    if (wait == Wait::kYes) {
      done_.wait(lock, [&] { return woken_ || splitter_.HasCompletions(); });
      woken_ = false;
    }
    splitter_.TakeCompletions(out);
  }

  void Wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    done_.notify_one();
  }

  std::string Description() const override { return DescribeBackend("pread", files_); }

  std::string FallbackReason() const override {
    const std::string why_not_direct = WhyNotDirect(files_);
    return why_not_direct.empty() ? why_pread_ : fmt::format("{}; {}", why_pread_, why_not_direct);
  }

 private:
  void Work();

  const std::vector<QueueFile> files_;
  const std::string why_pread_;
  const PreadCall call_;

  std::mutex mutex_;
  std::condition_variable work_;  // chunks to read, or stop_
  std::condition_variable done_;  // completions, or woken_
  ReadSplitter splitter_;         // guarded by mutex_, as are the flags
  bool woken_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

Status PreadQueue::Start(int threads) {
  const BlockedSignals blocked;
  std::string error;
  try {
    threads_.reserve(static_cast<size_t>(threads));
    while (static_cast<int>(threads_.size()) < threads) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& failure) {
    // Fewer threads than wished are slower but right.
    error = failure.what();
  }
  if (threads_.empty()) return ResourceExhaustedError(fmt::format("no thread for reading could be started: {}", error));
  return Status();
}

void PreadQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Chunk chunk;
    while (!splitter_.Next(chunk)) {
      if (stop_) return;
      work_.wait(lock);
    }
    ReadSplitter::Step step = ReadSplitter::Step::kAgain;
    while (step == ReadSplitter::Step::kAgain) {
      const ReadCall read = splitter_.Call(chunk);
      const int fd = files_[static_cast<size_t>(read.file)].file.fd();
      lock.unlock();
      const int64_t result = call_(fd, read.dst, read.bytes, read.offset);
      lock.lock();
      step = splitter_.Apply(chunk, result);
    }
    if (splitter_.HasCompletions()) done_.notify_one();
  }
}

}  // namespace

int64_t SystemPread(int fd, uint8_t* dst, int64_t bytes, int64_t offset) {
  const ssize_t got = ::pread(fd, dst, static_cast<size_t>(bytes), offset);
  return got < 0 ? -int64_t{errno} : int64_t{got};
}

Result<std::unique_ptr<ReadQueue>> MakePreadQueue(std::vector<QueueFile> files, const ReadQueueOptions& options,
                                                  std::string why_pread, PreadCall call) {
  auto queue = std::make_unique<PreadQueue>(std::move(files), options, std::move(why_pread), std::move(call));
  RETURN_IF_ERROR(queue->Start(options.threads));
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

}  // namespace nunspark
