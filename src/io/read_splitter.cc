#include "io/read_splitter.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"

namespace nunspark {
namespace {

constexpr int32_t kMaxRetries = 1;

// Lengths of ring entries have 32 bits, and Linux moves no more than 2 GiB a call.
constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;

bool IsAligned(int64_t value) { return value % kIoAlignment == 0; }

Status ReadFailed(const ReadRequest& request, const QueueFile& file, std::string_view reason) {
  return IoError(
      fmt::format("read of {} bytes at {} in {} failed: {}", request.bytes, request.offset, file.file.path(), reason));
}

Status EndsEarly(const ReadRequest& request, const QueueFile& file, int64_t end) {
  // The last alignment unit may be incomplete, so this is the least the file has to have.
  const int64_t least = request.offset + request.bytes - kIoAlignment + 1;
  return DataLossError(
      fmt::format("read of {} bytes at {} in {} failed: expected a file of at least {} bytes, found its "
                  "end at {} (truncated?)",
                  request.bytes, request.offset, file.file.path(), least, end));
}

}  // namespace

ReadSplitter::ReadSplitter(const std::vector<QueueFile>& files, int64_t split_bytes)
    : files_(files), split_bytes_(AlignUp(std::min(split_bytes, kMaxChunkBytes), kIoAlignment)) {
  CHECK(split_bytes > 0);
}

void ReadSplitter::Add(const ReadRequest& request) {
  CHECK(request.file >= 0 && static_cast<size_t>(request.file) < files_.size());
  CHECK(request.offset >= 0 && IsAligned(request.offset));
  CHECK(request.bytes > 0 && IsAligned(request.bytes));
  CHECK(request.dst != nullptr && IsAligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.dst))));
  const QueueFile& file = files_[static_cast<size_t>(request.file)];
  if (request.offset > file.bytes || request.bytes - (file.bytes - request.offset) >= kIoAlignment) {
    completions_.push_back({request.tag, EndsEarly(request, file, file.bytes)});
    return;
  }
  int32_t index = static_cast<int32_t>(reads_.size());
  if (free_.empty()) {
    reads_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  reads_[static_cast<size_t>(index)] = {.request = request, .cut = 0, .chunks_out = 0, .next = -1, .status = Status()};
  if (last_waiting_ >= 0) {
    reads_[static_cast<size_t>(last_waiting_)].next = index;
  } else {
    first_waiting_ = index;
  }
  last_waiting_ = index;
}

bool ReadSplitter::Next(Chunk& chunk) {
  if (first_waiting_ < 0) return false;
  const int32_t index = first_waiting_;
  Read& read = reads_[static_cast<size_t>(index)];
  const int64_t file_left = files_[static_cast<size_t>(read.request.file)].bytes - read.request.offset - read.cut;
  const int64_t bytes = std::min(split_bytes_, read.request.bytes - read.cut);
  chunk = {
      .read = index, .retries = 0, .begin = read.cut, .bytes = bytes, .needed = std::min(bytes, file_left), .done = 0};
  ++read.chunks_out;
  ++chunks_out_;
  read.cut += bytes;
  if (read.cut == read.request.bytes) {
    first_waiting_ = read.next;
    if (first_waiting_ < 0) last_waiting_ = -1;
  }
  return true;
}

ReadCall ReadSplitter::Call(const Chunk& chunk) const {
  const ReadRequest& request = reads_[static_cast<size_t>(chunk.read)].request;
  const int64_t at = chunk.begin + chunk.done;
  return {
      .file = request.file, .offset = request.offset + at, .bytes = chunk.bytes - chunk.done, .dst = request.dst + at};
}

ReadSplitter::Step ReadSplitter::Apply(Chunk& chunk, int64_t result) {
  const ReadRequest& request = reads_[static_cast<size_t>(chunk.read)].request;
  const QueueFile& file = files_[static_cast<size_t>(request.file)];
  Status failure;
  if (result < 0) {
    const int error = static_cast<int>(-result);
    if ((error == EINTR || error == EAGAIN) && chunk.retries++ < kMaxRetries) return Step::kAgain;
    failure = ReadFailed(request, file, ErrnoText(error));
  } else if (result == 0) {
    failure = EndsEarly(request, file, request.offset + chunk.begin + chunk.done);
  } else {
    CHECK(result <= chunk.bytes - chunk.done);
    int64_t done = chunk.done + result;
    if (done < chunk.needed) {
      // A direct read can only continue on a boundary: the incomplete unit is read again.
      if (file.direct) done -= done % kIoAlignment;
      if (done > chunk.done) {
        chunk.done = done;
        chunk.retries = 0;
        return Step::kAgain;
      }
      if (chunk.retries++ < kMaxRetries) return Step::kAgain;
      const int64_t end = request.offset + chunk.begin + chunk.done + result;
      const Result<int64_t> size = file.file.Size();
      failure = size.ok() && *size <= end
                    ? EndsEarly(request, file, *size)
                    : ReadFailed(request, file,
                                 fmt::format("only {} bytes come at a time, fewer than the alignment", result));
    }
  }
  Finish(chunk, std::move(failure));
  return Step::kFinished;
}

void ReadSplitter::Refuse(const Chunk& chunk, std::string_view reason) {
  const ReadRequest& request = reads_[static_cast<size_t>(chunk.read)].request;
  Finish(chunk, ReadFailed(request, files_[static_cast<size_t>(request.file)], reason));
}

void ReadSplitter::Finish(const Chunk& chunk, Status status) {
  const int32_t index = chunk.read;
  if (!status.ok()) Fail(index, std::move(status));
  --chunks_out_;
  --reads_[static_cast<size_t>(index)].chunks_out;
  CompleteIfDone(index);
}

void ReadSplitter::Fail(int32_t index, Status status) {
  Read& read = reads_[static_cast<size_t>(index)];
  if (read.status.ok()) read.status = std::move(status);
  if (read.cut == read.request.bytes) return;
  // Its other chunks are of no use any more. It need not be the oldest waiting read: EndsEarly and failures of several
  // requests interleave.
  read.cut = read.request.bytes;
  int32_t previous = -1;
  int32_t at = first_waiting_;
  while (at != index) {
    previous = at;
    at = reads_[static_cast<size_t>(at)].next;
  }
  (previous < 0 ? first_waiting_ : reads_[static_cast<size_t>(previous)].next) = read.next;
  if (last_waiting_ == index) last_waiting_ = previous;
}

void ReadSplitter::CompleteIfDone(int32_t index) {
  Read& read = reads_[static_cast<size_t>(index)];
  if (read.chunks_out > 0 || read.cut < read.request.bytes) return;
  completions_.push_back({read.request.tag, std::move(read.status)});
  read.status = Status();
  free_.push_back(index);
}

bool ReadSplitter::TakeCompletions(std::vector<ReadCompletion>& out) {
  if (completions_.empty()) return false;
  for (ReadCompletion& completion : completions_) out.push_back(std::move(completion));
  completions_.clear();
  return true;
}

void ReadSplitter::DropWaiting() {
  while (first_waiting_ >= 0) {
    Read& read = reads_[static_cast<size_t>(first_waiting_)];
    const int32_t index = first_waiting_;
    first_waiting_ = read.next;
    read.cut = read.request.bytes;
    if (read.chunks_out == 0) free_.push_back(index);
  }
  last_waiting_ = -1;
}

}  // namespace nunspark
