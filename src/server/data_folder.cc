#include "server/data_folder.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
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

Status MakeOwnFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return SyncFolder(JoinPath(path, ".."));
  if (errno != EEXIST) return ErrnoStatus(errno, "creating", path);
  return FolderExists(path) ? Status() : InvalidArgumentError(fmt::format("{} is a file, expected a folder", path));
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Status();
  return ErrnoStatus(errno, "removing", path);
}

Status RemoveAllBut(const std::vector<std::string>& names, const std::string& folder) {
  const std::set<std::string> known(names.begin(), names.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, ListFolder(folder));
  for (const std::string& name : all) {
    if (!known.contains(name)) RETURN_IF_ERROR(RemoveFile(JoinPath(folder, name)));
  }
  return Status();
}

Result<DataFolder> DataFolder::Open(const std::string& path) {
  RETURN_IF_ERROR(MakeOwnFolder(path));
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
