// Reads from two copies of the same files at once: two drives give nearly twice the bandwidth of one.
#ifndef NUNSPARK_IO_MIRROR_QUEUE_H_
#define NUNSPARK_IO_MIRROR_QUEUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

// Whether two lists of files are copies of each other, as far as sizes and the first and last bytes tell (the headers
// of model files are among them). Errors: kDataLoss naming the file that differs; those of opening.
Status CheckMirror(const std::vector<std::string>& paths, const std::vector<std::string>& mirror_paths);

// Over a queue that has the `files` of one copy open, followed by as many of the other in the same order. Each request
// goes to the copy with fewer bytes in flight, a large one in halves to both. What one copy fails to read is read from
// the other, and Description tells how often; an error names the paths of both.
std::unique_ptr<ReadQueue> MakeMirrorQueue(std::unique_ptr<ReadQueue> inner, int32_t files);

}  // namespace nunspark

#endif  // NUNSPARK_IO_MIRROR_QUEUE_H_
