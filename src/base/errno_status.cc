#include "base/errno_status.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace nunspark {

std::string ErrnoText(int error) {
  // The GNU functions: thread-safe and independent of the locale.
  const char* const text = ::strerrordesc_np(error);
  const char* const name = ::strerrorname_np(error);
  if (text == nullptr || name == nullptr) return fmt::format("error {}", error);
  return fmt::format("{} ({})", text, name);
}

Status ErrnoStatus(int error, std::string_view action, std::string_view path) {
  std::string message = fmt::format("{} {} failed: {}", action, path, ErrnoText(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return NotFoundError(std::move(message));
    case EACCES:
    case EPERM:
    case EROFS: return PermissionError(std::move(message));
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ResourceExhaustedError(std::move(message));
    default: return IoError(std::move(message));
  }
}

}  // namespace nunspark
