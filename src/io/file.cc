#include "io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace nunspark {
namespace {

// What one read or write call is asked for at most; Linux moves 2 GiB - 4 KiB at a time anyway.
constexpr int64_t kMaxCallBytes = int64_t{1} << 30;

// Opens with EINTR retried; -1 and errno on failure.
int OpenFd(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::string ParentFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File::~File() { Close(); }

void File::Close() {
  // Errors of close concern data that Sync would have reported; after EINTR the descriptor is gone on Linux.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<File> File::OpenRead(const std::string& path, ReadMode mode) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "opening", path);
  if (!S_ISREG(info.st_mode)) {
    return IoError(
        fmt::format("{} is {}, expected a file", path, S_ISDIR(info.st_mode) ? "a folder" : "no regular file"));
  }
  File file;
  file.path_ = path;
  file.fd_ = OpenFd(path, O_RDONLY | (mode == ReadMode::kDirect ? O_DIRECT : 0));
  if (file.fd_ >= 0) return file;
  if (mode == ReadMode::kDirect && errno == EINVAL) {
    return UnsupportedError(fmt::format("{}: the file system refuses O_DIRECT", path));
  }
  return ErrnoStatus(errno, "opening", path);
}

Result<File> File::Create(const std::string& path, FileAccess access) {
  File file;
  file.path_ = path;
  file.fd_ = OpenFd(path, O_RDWR | O_CREAT | O_TRUNC, access == FileAccess::kOwner ? 0600 : 0666);
  if (file.fd_ < 0) return ErrnoStatus(errno, "creating", path);
  return file;
}

Result<File> File::OpenWrite(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = OpenFd(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (file.fd_ < 0) return ErrnoStatus(errno, "creating", path);
  return file;
}

Result<File> File::CreateTemporary(const std::string& folder) {
  File file;
  file.path_ = fmt::format("a temporary file in {}", folder);
  file.fd_ = OpenFd(folder, O_TMPFILE | O_RDWR, 0600);
  // Some network and stacked file systems have no nameless files.
  if (file.fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = JoinPath(folder, "nunspark-XXXXXX");
    file.fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file.fd_ >= 0) (void)::unlink(name.c_str());
  }
  if (file.fd_ < 0) return ErrnoStatus(errno, "creating", file.path_);
  return file;
}

void File::TryDirect() {
  CHECK(is_open());
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
  // A file system that takes the flag may still want more than 4 KiB.
  alignas(4096) static thread_local uint8_t probe[4096];
  if (::pread(fd_, probe, sizeof(probe), 0) < 0) (void)::fcntl(fd_, F_SETFL, flags);
}

Status File::ReadAt(int64_t offset, std::span<uint8_t> out) const {
  CHECK(is_open());
  CHECK(offset >= 0);
  size_t done = 0;
  while (done < out.size()) {
    const size_t ask = std::min(out.size() - done, static_cast<size_t>(kMaxCallBytes));
    const ssize_t got = ::pread(fd_, out.data() + done, ask, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return IoError(
          fmt::format("read of {} bytes at {} in {} failed: {}", out.size(), offset, path_, ErrnoText(errno)));
    }
    if (got == 0) {
      return DataLossError(fmt::format(
          "read of {} bytes at {} in {} failed: expected at least {} bytes, the file "
          "ends at {}",
          out.size(), offset, path_, offset + static_cast<int64_t>(out.size()), offset + static_cast<int64_t>(done)));
    }
    done += static_cast<size_t>(got);
  }
  return Status();
}

Status File::WriteAt(int64_t offset, std::span<const uint8_t> data) {
  CHECK(is_open());
  CHECK(offset >= 0);
  size_t done = 0;
  while (done < data.size()) {
    const size_t ask = std::min(data.size() - done, static_cast<size_t>(kMaxCallBytes));
    const ssize_t put = ::pwrite(fd_, data.data() + done, ask, offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    // A write that moves nothing and gives no reason would loop for ever.
    const int error = put < 0 ? errno : EIO;
    if (put <= 0) {
      return ErrnoStatus(error, fmt::format("write of {} bytes at {} to", data.size(), offset), path_);
    }
    done += static_cast<size_t>(put);
  }
  return Status();
}

Status File::Truncate(int64_t bytes) {
  CHECK(is_open());
  int result = 0;
  do {
    result = ::ftruncate(fd_, bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? Status() : ErrnoStatus(errno, fmt::format("resizing to {} bytes of", bytes), path_);
}

Status File::Sync() {
  CHECK(is_open());
  int result = 0;
  do {
    result = ::fsync(fd_);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? Status() : ErrnoStatus(errno, "fsync of", path_);
}

Result<int64_t> File::Size() const {
  CHECK(is_open());
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) return ErrnoStatus(errno, "reading the size of", path_);
  return static_cast<int64_t>(info.st_size);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : file_(std::move(other.file_)), path_(std::move(other.path_)), bytes_(other.bytes_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    file_ = std::move(other.file_);
    path_ = std::move(other.path_);
    bytes_ = other.bytes_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (!file_.is_open()) return;
  ::unlink(file_.path().c_str());
  file_.Close();
}

Result<AtomicFile> AtomicFile::Create(const std::string& path, FileAccess access) {
  // Unique within the machine: other processes may be writing the same file.
  static std::atomic<unsigned> counter{0};
  // The rename at the end would put a plain file in the place of a device, a pipe or a link.
  struct stat existing {};
  if (::lstat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    return InvalidArgumentError(fmt::format("{} is there and is no regular file; name a new file", path));
  }
  AtomicFile atomic;
  atomic.path_ = path;
  ASSIGN_OR_RETURN(atomic.file_, File::Create(fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter++), access));
  return atomic;
}

Status AtomicFile::Append(std::string_view data) {
  RETURN_IF_ERROR(file_.WriteAt(bytes_, {reinterpret_cast<const uint8_t*>(data.data()), data.size()}));
  bytes_ += static_cast<int64_t>(data.size());
  return Status();
}

Status AtomicFile::Commit() {
  RETURN_IF_ERROR(file_.Sync());
  if (::rename(file_.path().c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, "renaming to", path_);
  file_.Close();  // the name is the new file's now: nothing to remove any more
  return SyncFolder(ParentFolder(path_));
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file.Append(content));
  return file.Commit();
}

Status SyncFolder(const std::string& folder) {
  const int fd = OpenFd(folder, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return ErrnoStatus(errno, "opening folder", folder);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network and FUSE file systems cannot sync folders; there is nothing more to do then.
  if (result != 0 && error != EINVAL && error != ENOTSUP) return ErrnoStatus(error, "fsync of folder", folder);
  return Status();
}

bool FileExists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool FolderExists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::vector<std::string>> ListFolder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (folder == nullptr) return ErrnoStatus(errno, "opening folder", path);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, "reading folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  if (folder.empty()) return std::string(name);
  return folder == "/" ? fmt::format("/{}", name) : fmt::format("{}/{}", folder, name);
}

}  // namespace nunspark
