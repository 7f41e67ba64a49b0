// Waiting for reads, though not for ever.
#ifndef NUNSPARK_IO_AWAIT_READS_H_
#define NUNSPARK_IO_AWAIT_READS_H_

#include <chrono>
#include <vector>

#include "io/read_queue.h"

namespace nunspark {

// How long a drive may leave all that is asked of it unanswered.
inline constexpr std::chrono::milliseconds kReadTimeout{30'000};

// Adds what has come back to `out`, after waiting for it if need be. False: nothing came for `timeout`; the reads are
// in flight still, so that their memory has to stay (base/keep_forever.h). REQUIRES: something is in flight.
bool AwaitReads(ReadQueue& queue, std::chrono::milliseconds timeout, std::vector<ReadCompletion>& out);

}  // namespace nunspark

#endif  // NUNSPARK_IO_AWAIT_READS_H_
