// How fast the drive delivers: a short burst of reads from one large file.
#ifndef NUNSPARK_IO_PROBE_H_
#define NUNSPARK_IO_PROBE_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "io/await_reads.h"
#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

enum class ProbePattern : uint8_t {
  kScattered,   // each read about the golden ratio of the file further on
  kSequential,  // from the front
};

struct ProbeOptions {
  int64_t max_bytes = int64_t{64} << 20;
  double max_seconds = 0.25;                 // no read starts later
  int64_t request_bytes = int64_t{1} << 20;  // multiple of kIoAlignment
  int in_flight = 16;                        // requests; the probe's memory is in_flight x request_bytes
  ProbePattern pattern = ProbePattern::kScattered;
  std::chrono::milliseconds read_timeout = kReadTimeout;
};

struct ProbeResult {
  int64_t bytes = 0;
  double seconds = 0;
  double bytes_per_second = 0;
};

// Reads parts of file `file` of `queue`, each part at most once, until one of the limits. With buffered reads the
// figure includes what the page cache already holds. REQUIRES: nothing in flight in `queue`. Errors: kInvalidArgument
// when the file is smaller than one request; the first failed read; kResourceExhausted without memory for the buffers;
// kIo when no read returns for the timeout, after which `queue` is empty.
Result<ProbeResult> ProbeReadBandwidth(std::unique_ptr<ReadQueue>& queue, int32_t file, int64_t file_bytes,
                                       const ProbeOptions& options = {});

}  // namespace nunspark

#endif  // NUNSPARK_IO_PROBE_H_
