// How fast this machine's memory is read: the rate that bounds decoding when all weights are in memory.
#ifndef NUNSPARK_BASE_MEMORY_RATE_H_
#define NUNSPARK_BASE_MEMORY_RATE_H_

#include <cstdint>

#include "nunspark/status.h"

namespace nunspark {

// Bytes per second that `threads` threads together read front to back from `bytes` of memory of their own (in huge
// pages where the system gives them): the best of a few passes. Takes a tenth of a second or two. `bytes` must exceed
// what the processor's caches hold; never more than a quarter of what this process may still take is used. Errors:
// kResourceExhausted when the system refuses memory or threads.
Result<double> MeasureMemoryRate(int threads, int64_t bytes = int64_t{256} << 20);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MEMORY_RATE_H_
