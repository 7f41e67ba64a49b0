#include "pack/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "io/file.h"

namespace nunspark {
namespace {

// Pages that wait to be written are handed to the drive in units of this size, one unit ahead of the one waited for.
constexpr int64_t kWindowBytes = int64_t{64} << 20;

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    started_ = other.started_;
    waited_ = other.waited_;
  }
  return *this;
}

OutputFile::~OutputFile() { Close(); }

void OutputFile::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<OutputFile> OutputFile::Open(const std::string& path, int64_t bytes) {
  OutputFile file;
  file.path_ = path;
  do {
    file.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  } while (file.fd_ < 0 && errno == EINTR);
  if (file.fd_ < 0) return ErrnoStatus(errno, "creating", path);
  int result = 0;
  do {
    result = ::ftruncate(file.fd_, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ErrnoStatus(errno, fmt::format("resizing to {} bytes of", bytes), path);
  if (bytes == 0) return file;
  // Not posix_fallocate: where the file system cannot reserve, that writes every block.
  do {
    result = ::fallocate(file.fd_, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    return ErrnoStatus(errno, fmt::format("reserving {} bytes for", bytes), path);
  }
  return file;
}

Status OutputFile::WriteAt(int64_t offset, std::span<const uint8_t> data) {
  CHECK(is_open());
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t put = ::pwrite(fd_, data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    // A write that moves nothing and gives no reason would loop for ever.
    const int error = put < 0 ? errno : EIO;
    if (put <= 0) return ErrnoStatus(error, fmt::format("write of {} bytes at {} to", data.size(), offset), path_);
    done += static_cast<size_t>(put);
  }
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
  (void)::sync_file_range(fd_, started_, end - started_, SYNC_FILE_RANGE_WRITE);
  if (started_ > waited_) {
    (void)::sync_file_range(fd_, waited_, started_ - waited_,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)::posix_fadvise(fd_, waited_, started_ - waited_, POSIX_FADV_DONTNEED);
  }
  waited_ = started_;
  started_ = end;
}

Status OutputFile::Sync() {
  CHECK(is_open());
  int result = 0;
  do {
    result = ::fsync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ErrnoStatus(errno, "fsync of", path_);
  (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  return Status();
}

}  // namespace nunspark
