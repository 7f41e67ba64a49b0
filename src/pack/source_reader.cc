#include "pack/source_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace nunspark {
namespace {

constexpr size_t kMaxOpenFiles = 32;
constexpr int64_t kPageBytes = 4096;

}  // namespace

Status SourceReader::Read(int32_t file, int64_t offset, std::span<uint8_t> out) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const OpenFile& candidate) { return candidate.index == file; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    ASSIGN_OR_RETURN(File opened, File::OpenRead(index_.files()[static_cast<size_t>(file)].path));
    if (open_.size() == kMaxOpenFiles) open_.pop_back();
    open_.push_front({.index = file, .file = std::move(opened)});
  }
  RETURN_IF_ERROR(open_.front().file.ReadAt(offset, out));
  DropFromCache(open_.front().file, offset, static_cast<int64_t>(out.size()));
  return Status();
}

void DropFromCache(const File& file, int64_t offset, int64_t bytes) {
  // Only whole pages are dropped: the page that a slice shares with the one before it goes with this one.
  const int64_t start = offset / kPageBytes * kPageBytes;
  if (bytes > 0) (void)::posix_fadvise(file.fd(), start, offset + bytes - start, POSIX_FADV_DONTNEED);
}

}  // namespace nunspark
