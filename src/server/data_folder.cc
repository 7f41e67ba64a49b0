#include "server/data_folder.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace nunspark::server {
namespace {

constexpr std::string_view kLockName = "lock";

// Who holds the lock has written its process id there.
std::string HolderOf(const std::string& path) {
  const Result<std::string> text = ReadRegularFile(path, {.max_bytes = 64});
  const std::string id = text.ok() ? text->substr(0, text->find('\n')) : std::string();
  return id.empty() ? "another process" : "process " + id;
}

}  // namespace

Result<DataFolder> DataFolder::Open(const std::string& path) {
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, "creating", path);
  if (!FolderExists(path)) return InvalidArgumentError(fmt::format("{} is a file, expected a folder", path));
  if (made) RETURN_IF_ERROR(SyncFolder(JoinPath(path, "..")));
  DataFolder folder;
  folder.path_ = path;
  const std::string lock = folder.Path(kLockName);
  ASSIGN_OR_RETURN(folder.lock_, File::OpenWrite(lock));
  if (::flock(folder.lock_.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "locking", lock);
    return InvalidArgumentError(
        fmt::format("{} is in use by {}; a folder serves one server at a time", path, HolderOf(lock)));
  }
  RETURN_IF_ERROR(folder.lock_.Truncate(0));
  const std::string id = fmt::format("{}\n", ::getpid());
  RETURN_IF_ERROR(folder.lock_.WriteAt(0, {reinterpret_cast<const uint8_t*>(id.data()), id.size()}));
  return folder;
}

}  // namespace nunspark::server
