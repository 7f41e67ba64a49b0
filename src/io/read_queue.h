// Many reads in flight: io_uring with O_DIRECT where the system allows it, else a pool of threads that pread.
#ifndef NUNSPARK_IO_READ_QUEUE_H_
#define NUNSPARK_IO_READ_QUEUE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

// Alignment of offsets, lengths and memory that direct reads need here; all requests keep to it.
inline constexpr int64_t kIoAlignment = 4096;

struct ReadRequest {
  int32_t file = 0;    // index into the paths given to OpenReadQueue
  int64_t offset = 0;  // multiple of kIoAlignment
  int64_t bytes = 0;   // > 0, multiple of kIoAlignment; may reach past the end of the file by less than one alignment
                       // unit (that part of dst keeps what it held)
  uint8_t* dst = nullptr;  // aligned to kIoAlignment; stays valid until the completion, also after an error elsewhere
  uint64_t tag = 0;        // returned with the completion
};

struct ReadCompletion {
  uint64_t tag = 0;
  Status status;  // kIo: path, offset, length and errno; kDataLoss: the file ended early
};

// Used by one thread (the I/O thread), except Wake. Every request completes exactly once, in any order. Requests start
// in the order of submission; there is no limit on how many wait inside.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;  // waits for everything in flight; drops what has not started

  // Takes one request. Splitting into device-friendly sizes, one retry on EINTR and EAGAIN and the continuation of
  // short reads happen inside.
  virtual void Submit(const ReadRequest& request) = 0;

  // Moves completions into `out` (appended). With `wait`, sleeps until there is at least one or Wake is called. A Wake
  // that finds nobody asleep is kept for the next Poll that waits.
  enum class Wait { kNo, kYes };
  virtual void Poll(Wait wait, std::vector<ReadCompletion>& out) = 0;

  // Makes a sleeping Poll return. Thread-safe.
  virtual void Wake() = 0;

  // "io_uring+O_DIRECT", "io_uring", "pread+O_DIRECT", "pread": what really runs, and why not the better one ("" if it
  // is the best).
  virtual std::string Description() const = 0;
  virtual std::string FallbackReason() const = 0;
};

enum class IoBackend { kAuto, kUring, kPread };

struct ReadQueueOptions {
  IoBackend backend = IoBackend::kAuto;
  bool direct = true;               // try O_DIRECT first; each file falls back by itself
  int depth = 64;                   // requests in flight at the device
  int threads = 4;                  // of the pread pool
  int64_t split_bytes = 512 << 10;  // larger requests are split
};

// Opens every path. The sizes seen here decide where files end; later reads beyond them are kDataLoss.
// Errors: kNotFound, kPermission; kUnsupported when `backend` is kUring and the kernel refuses it.
Result<std::unique_ptr<ReadQueue>> OpenReadQueue(const std::vector<std::string>& paths,
                                                 const ReadQueueOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_IO_READ_QUEUE_H_
