#include "io/locked_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace nunspark {

Result<std::optional<File>> OpenLocked(const std::string& path) {
  ASSIGN_OR_RETURN(File file, File::OpenWrite(path));
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::optional<File>();
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != EINVAL) return ErrnoStatus(errno, "locking", path);
  }
  // Between open and lock the holder may have finished and removed the file.
  struct stat mine = {}, named = {};
  if (::fstat(file.fd(), &mine) != 0 || ::stat(path.c_str(), &named) != 0 || mine.st_ino != named.st_ino) {
    return std::optional<File>();
  }
  return std::optional<File>(std::move(file));
}

}  // namespace nunspark
