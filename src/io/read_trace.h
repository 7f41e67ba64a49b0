// Read traces: what a run asked of the drive, to be asked again without the run. The time of the repetition is what the
// drive alone would have needed.
//
// A trace is a file of JSON lines: first {"files": [paths], "depth", "split_bytes", "direct"}, then one line per
// request in the order of submission, {"file", "offset", "bytes", "us"} (since the trace began), last {"requests":
// their number}.
#ifndef NUNSPARK_IO_READ_TRACE_H_
#define NUNSPARK_IO_READ_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

struct TracedRead {
  int32_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t us = 0;
};

struct ReadTrace {
  std::vector<std::string> paths;
  int depth = 0;
  int64_t split_bytes = 0;
  bool direct = true;
  std::vector<TracedRead> reads;
};

// `inner`, with a trace of its requests in the file `trace_path`. A write that fails changes no read: the trace then
// lacks its last line, and LoadReadTrace refuses it. `paths`, `options` as given to OpenReadQueue.
// Errors: kNotFound, kPermission, kIo when the file cannot be made.
Result<std::unique_ptr<ReadQueue>> TraceReads(std::unique_ptr<ReadQueue> inner, const std::vector<std::string>& paths,
                                              const ReadQueueOptions& options, const std::string& trace_path);

// Errors: those of the file; kDataLoss for a trace that is incomplete or breaks its rules.
Result<ReadTrace> LoadReadTrace(const std::string& path);

struct ReplayResult {
  int64_t requests = 0;
  int64_t bytes = 0;
  double seconds = 0;
  std::string queue;  // ReadQueue::Description
};

// Reads the trace's list again, as much at once as its queue had room for, the last requests only that have
// `last_bytes` together (< 0 = all). Errors: those of the queue and the first failed read; kInvalidArgument for an
// empty list.
Result<ReplayResult> ReplayReads(const ReadTrace& trace, int64_t last_bytes = -1);

}  // namespace nunspark

#endif  // NUNSPARK_IO_READ_TRACE_H_
