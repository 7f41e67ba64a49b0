// How fast this machine's memory is read: the rate that bounds decoding when all weights are in memory.
#ifndef NUNSPARK_BASE_MEMORY_RATE_H_
#define NUNSPARK_BASE_MEMORY_RATE_H_

#include <cstdint>
#include <string>

#include "nunspark/status.h"

namespace nunspark {

// Bytes per second that `threads` threads together read front to back from `bytes` of memory of their own (in huge
// pages where the system gives them): the best of a few passes. Takes a tenth of a second or two. `bytes` must exceed
// what the processor's caches hold. Errors:
// kResourceExhausted when the system refuses memory or threads.
Result<double> MeasureMemoryRate(int threads, int64_t bytes);

// `most`, or a quarter of what the machine and its control groups leave to this process if that is less; but 8 MiB.
// `root`: as in base/memory_info.h.
int64_t AffordableProbeBytes(int64_t most, const std::string& root = "");

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MEMORY_RATE_H_
