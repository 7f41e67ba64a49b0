#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/errno_status.h"

namespace nunspark {
namespace {

constexpr int64_t kLeastBytes = 4096;  // that are asked for, also of what has no size: pipes, files in /proc
constexpr size_t kMaxCallBytes = size_t{1} << 30;

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) {
    do {
      fd_ = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
    } while (fd_ < 0 && errno == EINTR);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

Status TooLarge(const std::string& path, const ReadFileOptions& options) {
  return ResourceExhaustedError(
      fmt::format("{} is larger than {} bytes, {}", path, options.max_bytes, options.limit_reason));
}

// `expected_bytes` is a hint: the file may be changing.
Result<std::string> ReadToEnd(int fd, const std::string& path, int64_t expected_bytes, const ReadFileOptions& options) {
  std::string content;
  // One byte beyond the size, so that the end is seen without growing.
  const size_t first_bytes = static_cast<size_t>(std::max(expected_bytes + 1, kLeastBytes));
  content.reserve(first_bytes + kReadFilePadding);
  content.resize(first_bytes);
  size_t done = 0;
  while (true) {
    if (done == content.size()) {
      content.reserve(2 * done + kReadFilePadding);
      content.resize(2 * done);
    }
    const ssize_t got = ::read(fd, content.data() + done, std::min(content.size() - done, kMaxCallBytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "reading", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
    if (static_cast<int64_t>(done) > options.max_bytes) return TooLarge(path, options);
  }
  content.resize(done);
  return content;
}

}  // namespace

Result<std::string> ReadRegularFile(const std::string& path, const ReadFileOptions& options) {
  // Not blocking: a pipe would wait for its writer before it could be seen to be one. Regular files do not care.
  const Descriptor file(path, O_NONBLOCK | O_NOCTTY);
  if (file.get() < 0) return ErrnoStatus(errno, "opening", path);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "reading the size of", path);
  if (!S_ISREG(info.st_mode)) {
    return IoError(
        fmt::format("{} is {}, expected a file", path, S_ISDIR(info.st_mode) ? "a folder" : "no regular file"));
  }
  if (info.st_size > options.max_bytes) return TooLarge(path, options);
  return ReadToEnd(file.get(), path, info.st_size, options);
}

Result<std::string> ReadWholeFile(const std::string& path, const ReadFileOptions& options) {
  const Descriptor file(path, 0);
  if (file.get() < 0) return ErrnoStatus(errno, "opening", path);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "reading the size of", path);
  const bool regular = S_ISREG(info.st_mode);
  if (regular && info.st_size > options.max_bytes) return TooLarge(path, options);
  return ReadToEnd(file.get(), path, regular ? info.st_size : 0, options);
}

}  // namespace nunspark
