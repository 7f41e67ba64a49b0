#include "pack/source_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace nunspark {
namespace {

constexpr size_t kMaxOpenFiles = 32;

// The largest unit of the page cache; units are aligned to their own size.
constexpr int64_t kMaxFolioBytes = int64_t{2} << 20;

}  // namespace

Status SourceReader::Read(int32_t file, int64_t offset, std::span<uint8_t> out) {
  ASSIGN_OR_RETURN(const File* const opened, Get(file));
  RETURN_IF_ERROR(opened->ReadAt(offset, out));
  DropFromCache(*opened, offset, static_cast<int64_t>(out.size()));
  return Status();
}

void SourceReader::Prefetch(int32_t file, int64_t offset, int64_t bytes) {
  const Result<const File*> opened = Get(file);
  if (opened.ok()) (void)::posix_fadvise((*opened)->fd(), offset, bytes, POSIX_FADV_WILLNEED);
}

void SourceReader::DropAll() {
  for (const OpenFile& open : open_) (void)::posix_fadvise(open.file.fd(), 0, 0, POSIX_FADV_DONTNEED);
}

Result<const File*> SourceReader::Get(int32_t file) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const OpenFile& candidate) { return candidate.index == file; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    ASSIGN_OR_RETURN(File opened, File::OpenRead(index_.files()[static_cast<size_t>(file)].path));
    if (open_.size() == kMaxOpenFiles) open_.pop_back();
    open_.push_front({.index = file, .file = std::move(opened)});
  }
  return &open_.front().file;
}

void DropFromCache(const File& file, int64_t offset, int64_t bytes) {
  // Only whole units are dropped: the one that a slice shares with the slice before it goes with this one.
  const int64_t start = offset / kMaxFolioBytes * kMaxFolioBytes;
  if (bytes > 0) (void)::posix_fadvise(file.fd(), start, offset + bytes - start, POSIX_FADV_DONTNEED);
}

}  // namespace nunspark
