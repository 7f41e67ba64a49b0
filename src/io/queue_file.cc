#include "io/queue_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "io/read_queue.h"

namespace nunspark {
namespace {

// Some file systems accept O_DIRECT when opening and refuse it when reading, or want a coarser alignment than ours:
// only a read tells. Returns 0 or the errno.
int TryDirectRead(const File& file) {
  const std::unique_ptr<void, void (*)(void*)> buffer(
      std::aligned_alloc(static_cast<size_t>(kIoAlignment), static_cast<size_t>(kIoAlignment)), &std::free);
  if (buffer == nullptr) return ENOMEM;
  ssize_t got = -1;
  do {
    got = ::pread(file.fd(), buffer.get(), static_cast<size_t>(kIoAlignment), 0);
  } while (got < 0 && errno == EINTR);
  return got < 0 ? errno : 0;
}

Result<QueueFile> OpenOne(const std::string& path, DirectIo direct) {
  QueueFile opened;
  if (direct == DirectIo::kTry) {
    Result<File> file = File::OpenRead(path, ReadMode::kDirect);
    if (file.ok()) {
      const int error = TryDirectRead(*file);
      if (error == 0) {
        opened.file = std::move(file).value();
        opened.direct = true;
      } else {
        opened.why_not_direct = fmt::format("direct read of {} failed: {}", path, ErrnoText(error));
      }
    } else if (file.status().code() == StatusCode::kUnsupported) {
      opened.why_not_direct = file.status().message();
    } else {
      return file.status();
    }
  }
  if (!opened.direct) {
    ASSIGN_OR_RETURN(opened.file, File::OpenRead(path));
    // Requests say exactly what is wanted; guesses of the kernel beyond them would cost bandwidth and page cache.
    (void)::posix_fadvise(opened.file.fd(), 0, 0, POSIX_FADV_RANDOM);
  }
  ASSIGN_OR_RETURN(opened.bytes, opened.file.Size());
  return opened;
}

// A pack with one file for each expert has thousands, more than most systems let a process open until it asks. Whatever
// goes wrong here, opening the files will say.
void MakeRoomFor(size_t files) {
  constexpr rlim_t kOthers = 256;  // files that the process may have open besides
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(static_cast<rlim_t>(files) + kOthers, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::vector<QueueFile>> OpenQueueFiles(const std::vector<std::string>& paths, DirectIo direct) {
  MakeRoomFor(paths.size());
  std::vector<QueueFile> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(QueueFile file, OpenOne(path, direct));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace nunspark
