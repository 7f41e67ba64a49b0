// What every ReadQueue does alike, whatever makes the system calls: cuts requests into chunks, judges the result of
// each call (short, early end, transient, failed) and says when a request is complete.
#ifndef NUNSPARK_IO_READ_SPLITTER_H_
#define NUNSPARK_IO_READ_SPLITTER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "io/queue_file.h"
#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

// A part of one request that is read by one system call, or several when calls come back short.
struct Chunk {
  int32_t read = -1;    // the splitter's own index of the request
  int32_t retries = 0;  // since the last byte of progress
  int64_t begin = 0;    // from the start of the request
  int64_t bytes = 0;    // the aligned window
  int64_t needed = 0;   // what the file can deliver of it: less than `bytes` only at the end of a file
  int64_t done = 0;
};

// The system call a chunk wants next.
struct ReadCall {
  int32_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint8_t* dst = nullptr;
};

// Not thread-safe: the pread pool guards it with its mutex. Allocates only while the number of waiting requests grows.
class ReadSplitter {
 public:
  // `files` must outlive this. REQUIRES: split_bytes > 0; it is rounded up to the alignment.
  ReadSplitter(const std::vector<QueueFile>& files, int64_t split_bytes);

  // REQUIRES: the request keeps the rules of ReadRequest.
  void Add(const ReadRequest& request);

  // The next chunk to start, oldest request first; false when there is none. Each chunk must come back through Apply
  // until that says kFinished.
  bool Next(Chunk& chunk);

  ReadCall Call(const Chunk& chunk) const;

  // `result`: bytes read, or -errno. kAgain: make Call(chunk) again.
  enum class Step { kFinished, kAgain };
  Step Apply(Chunk& chunk, int64_t result);

  // Instead of a call and Apply: the chunk cannot be read at all. Its request fails with kIo and `reason`.
  void Refuse(const Chunk& chunk, std::string_view reason);

  // Moves the completions into `out`; true if there was any.
  bool TakeCompletions(std::vector<ReadCompletion>& out);
  bool HasCompletions() const { return !completions_.empty(); }

  // Forgets every request that has no chunk out; the rest starts no further ones.
  void DropWaiting();
  bool HasChunksOut() const { return chunks_out_ > 0; }

 private:
  struct Read {
    ReadRequest request;
    int64_t cut = 0;  // where the next chunk begins
    int32_t chunks_out = 0;
    int32_t next = -1;  // in the list of reads that have more chunks to start
    Status status;
  };

  void Finish(const Chunk& chunk, Status status);
  void Fail(int32_t read, Status status);
  void CompleteIfDone(int32_t read);

  const std::vector<QueueFile>& files_;
  const int64_t split_bytes_;
  std::vector<Read> reads_;
  std::vector<int32_t> free_;
  int32_t first_waiting_ = -1;
  int32_t last_waiting_ = -1;
  int64_t chunks_out_ = 0;
  std::vector<ReadCompletion> completions_;
};

}  // namespace nunspark

#endif  // NUNSPARK_IO_READ_SPLITTER_H_
