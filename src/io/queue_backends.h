// The two implementations of ReadQueue, for OpenReadQueue and its tests.
#ifndef NUNSPARK_IO_QUEUE_BACKENDS_H_
#define NUNSPARK_IO_QUEUE_BACKENDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/queue_file.h"
#include "io/read_queue.h"
#include "nunspark/status.h"

struct io_uring;

namespace nunspark {

// Submits what is prepared and waits for `wait_for` completions; returns how many entries were taken or -errno. Tests
// replace it.
using UringEnter = std::function<int(io_uring* ring, unsigned wait_for)>;
int SystemUringEnter(io_uring* ring, unsigned wait_for);

// Takes `files` only on success. Errors: kUnsupported with the reason when the kernel refuses io_uring (missing,
// switched off, filtered, out of its memory limit) or lacks the operations used here.
Result<std::unique_ptr<ReadQueue>> MakeUringQueue(std::vector<QueueFile>& files, const ReadQueueOptions& options,
                                                  UringEnter enter = SystemUringEnter);

// One read call; returns bytes or -errno. Tests replace it.
using PreadCall = std::function<int64_t(int fd, uint8_t* dst, int64_t bytes, int64_t offset)>;
int64_t SystemPread(int fd, uint8_t* dst, int64_t bytes, int64_t offset);

// `why_pread` becomes part of FallbackReason. Errors: kResourceExhausted when not a single thread starts.
Result<std::unique_ptr<ReadQueue>> MakePreadQueue(std::vector<QueueFile> files, const ReadQueueOptions& options,
                                                  std::string why_pread, PreadCall call = SystemPread);

// "<backend>" or "<backend>+O_DIRECT", the latter when every file is direct.
std::string DescribeBackend(std::string_view backend, const std::vector<QueueFile>& files);

// The reasons of the first file without direct reads, "" when there is none.
std::string WhyNotDirect(const std::vector<QueueFile>& files);

}  // namespace nunspark

#endif  // NUNSPARK_IO_QUEUE_BACKENDS_H_
