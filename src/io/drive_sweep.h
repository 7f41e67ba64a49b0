// The drive under many loads: which size of reads, and how many at once, bring its full rate.
#ifndef NUNSPARK_IO_DRIVE_SWEEP_H_
#define NUNSPARK_IO_DRIVE_SWEEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/probe.h"
#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

struct SweepOptions {
  std::vector<int64_t> request_bytes = {64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20};
  std::vector<int> depths = {1, 4, 16, 64};
  double seconds_each = 0.1;
};

struct SweepPoint {
  int64_t request_bytes = 0;
  int depth = 0;
  double bytes_per_second = 0;
};

struct DriveSweep {
  std::vector<SweepPoint> scattered;  // every size at every depth
  SweepPoint sequential;              // largest size, deepest
  SweepPoint fastest;                 // of the scattered ones
  SweepPoint best;                    // the smallest reads that come near the fastest, at the least depth that does
  std::string queue;                  // "io_uring+O_DIRECT"
  std::string why_not_better;         // "" when it is the best way to read
};

// Reads `path` for a few seconds. Sizes larger than the file are left out; a depth times a size above 64 MiB as well,
// which no engine has in flight. Errors: those of the queue and the probe; kInvalidArgument when the file is smaller
// than every size.
Result<DriveSweep> SweepDrive(const std::string& path, int64_t file_bytes, const ReadQueueOptions& queue,
                              const SweepOptions& options = {});

}  // namespace nunspark

#endif  // NUNSPARK_IO_DRIVE_SWEEP_H_
