#include "io/drive_sweep.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace nunspark {
namespace {

constexpr int64_t kMostInFlightBytes = int64_t{64} << 20;
constexpr int64_t kMostBytesEach = int64_t{1} << 30;

// A drive's rate differs by more from one moment to the next.
constexpr double kNear = 0.95;

}  // namespace

Result<DriveSweep> SweepDrive(const std::string& path, int64_t file_bytes, const ReadQueueOptions& queue_options,
                              const SweepOptions& options) {
  DriveSweep sweep;
  ReadQueueOptions to_open = queue_options;
  to_open.depth = *std::max_element(options.depths.begin(), options.depths.end());
  // What is probed is one request, not its parts.
  to_open.split_bytes = *std::max_element(options.request_bytes.begin(), options.request_bytes.end());
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue, OpenReadQueue({path}, to_open));
  sweep.queue = queue->Description();
  sweep.why_not_better = queue->FallbackReason();
  const auto measure = [&](int64_t bytes, int depth, ProbePattern pattern) -> Result<SweepPoint> {
    ASSIGN_OR_RETURN(const ProbeResult probe, ProbeReadBandwidth(queue, 0, file_bytes,
                                                                 {.max_bytes = kMostBytesEach,
                                                                  .max_seconds = options.seconds_each,
                                                                  .request_bytes = bytes,
                                                                  .in_flight = depth,
                                                                  .pattern = pattern}));
    return SweepPoint{.request_bytes = bytes, .depth = depth, .bytes_per_second = probe.bytes_per_second};
  };
  for (const int64_t bytes : options.request_bytes) {
    for (const int depth : options.depths) {
      if (bytes > file_bytes || bytes * depth > kMostInFlightBytes) continue;
      ASSIGN_OR_RETURN(const SweepPoint point, measure(bytes, depth, ProbePattern::kScattered));
      sweep.scattered.push_back(point);
      if (point.bytes_per_second > sweep.fastest.bytes_per_second) sweep.fastest = point;
    }
  }
  if (sweep.scattered.empty()) {
    return InvalidArgumentError(fmt::format("{} is too small to probe a drive with: {} bytes", path, file_bytes));
  }
  const auto near = std::find_if(sweep.scattered.begin(), sweep.scattered.end(), [&](const SweepPoint& point) {
    return point.bytes_per_second >= kNear * sweep.fastest.bytes_per_second;
  });
  sweep.best = *near;
  const SweepPoint largest = sweep.scattered.back();
  ASSIGN_OR_RETURN(sweep.sequential, measure(largest.request_bytes, largest.depth, ProbePattern::kSequential));
  return sweep;
}

}  // namespace nunspark
