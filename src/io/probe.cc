#include "io/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/keep_forever.h"
#include "base/mapped_memory.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Result<ProbeResult> ProbeReadBandwidth(std::unique_ptr<ReadQueue>& queue, int32_t file, int64_t file_bytes,
                                       const ProbeOptions& options) {
  CHECK(options.request_bytes > 0 && options.request_bytes % kIoAlignment == 0 && options.in_flight > 0);
  const int64_t blocks = file_bytes / options.request_bytes;
  if (blocks < 1) {
    return InvalidArgumentError(fmt::format("a probe of the drive needs a file of at least {} bytes, found {}",
                                            options.request_bytes, file_bytes));
  }
  const int64_t count = std::min(blocks, std::max<int64_t>(1, options.max_bytes / options.request_bytes));
  const int64_t lanes = std::min<int64_t>(count, options.in_flight);
  // In huge pages, as weights are: reads into small ones are slower by a third (docs/measurements/read-queue.md).
  const int64_t memory_bytes = lanes * options.request_bytes;
  ASSIGN_OR_RETURN(MappedMemory memory, MappedMemory::Create(std::max(memory_bytes, MappedMemory::kHugeFromBytes),
                                                             "a probe of the drive", "free some memory"));
  std::memset(memory.data(), 0, static_cast<size_t>(memory_bytes));
  // No block comes twice.
  int64_t stride = options.pattern == ProbePattern::kSequential ? 1 : std::max<int64_t>(1, blocks * 618 / 1000);
  while (std::gcd(stride, blocks) != 1) ++stride;

  int64_t started = 0;
  int64_t finished = 0;
  const auto start_one = [&](uint64_t lane) {
    queue->Submit({.file = file,
                   .offset = started * stride % blocks * options.request_bytes,
                   .bytes = options.request_bytes,
                   .dst = memory.data() + static_cast<int64_t>(lane) * options.request_bytes,
                   .tag = lane});
    ++started;
  };
  const Clock::time_point start = Clock::now();
  for (int64_t lane = 0; lane < lanes; ++lane) start_one(static_cast<uint64_t>(lane));
  Status status;
  std::vector<ReadCompletion> completions;
  while (finished < started) {
    completions.clear();
    if (!AwaitReads(*queue, options.read_timeout, completions)) {
      KeepForever(std::pair(std::move(queue), std::move(memory)));
      return IoError(fmt::format("the drive does not answer: of {} reads none has returned for {:.3g} s",
                                 started - finished, static_cast<double>(options.read_timeout.count()) / 1e3));
    }
    for (const ReadCompletion& completion : completions) {
      ++finished;
      if (status.ok()) status = completion.status;
      if (status.ok() && started < count && SecondsSince(start) < options.max_seconds) start_one(completion.tag);
    }
  }
  RETURN_IF_ERROR(status);
  ProbeResult result{.bytes = finished * options.request_bytes, .seconds = SecondsSince(start), .bytes_per_second = 0};
  result.bytes_per_second = static_cast<double>(result.bytes) / std::max(result.seconds, 1e-9);
  return result;
}

}  // namespace nunspark
