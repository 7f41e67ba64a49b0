#include "pack/output_file.h"

#include <fcntl.h>

#include <cerrno>

#include <fmt/format.h>

namespace nunspark {
namespace {

// Pages that wait to be written are handed to the drive in units of this size, one unit ahead of the one waited for.
constexpr int64_t kWindowBytes = int64_t{64} << 20;

}  // namespace

Result<OutputFile> OutputFile::Open(const std::string& path, int64_t bytes) {
  OutputFile out;
  ASSIGN_OR_RETURN(out.file_, File::OpenWrite(path));
  RETURN_IF_ERROR(out.file_.Truncate(bytes));
  if (bytes == 0) return out;
  // Not posix_fallocate: where the file system cannot reserve, that writes every block.
  int result = 0;
  do {
    result = ::fallocate(out.file_.fd(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    return ErrnoStatus(errno, fmt::format("reserving {} bytes for", bytes), path);
  }
  return out;
}

Status OutputFile::WriteAt(int64_t offset, std::span<const uint8_t> data) {
  RETURN_IF_ERROR(file_.WriteAt(offset, data));
  WriteBehind(offset, offset + static_cast<int64_t>(data.size()));
  return Status();
}

Status OutputFile::WriteAt(int64_t offset, std::string_view data) {
  return WriteAt(offset, std::span(reinterpret_cast<const uint8_t*>(data.data()), data.size()));
}

// Without this gigabytes of dirty pages pile up and push out what other programs have cached. Failures are not reported
// here: Sync reports every write that did not reach the drive.
void OutputFile::WriteBehind(int64_t offset, int64_t end) {
  if (offset < started_) return;                                      // a header written late
  if (offset > started_ + kWindowBytes) waited_ = started_ = offset;  // the first write of a continued run
  if (end - started_ < kWindowBytes) return;
  (void)::sync_file_range(file_.fd(), started_, end - started_, SYNC_FILE_RANGE_WRITE);
  if (started_ > waited_) {
    (void)::sync_file_range(file_.fd(), waited_, started_ - waited_,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)::posix_fadvise(file_.fd(), waited_, started_ - waited_, POSIX_FADV_DONTNEED);
  }
  waited_ = started_;
  started_ = end;
}

Status OutputFile::Sync() {
  RETURN_IF_ERROR(file_.Sync());
  (void)::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
  return Status();
}

}  // namespace nunspark
