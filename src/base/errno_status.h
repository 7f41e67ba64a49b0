// What a failed system call says, as text and as a Status.
#ifndef NUNSPARK_BASE_ERRNO_STATUS_H_
#define NUNSPARK_BASE_ERRNO_STATUS_H_

#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

// "Input/output error (EIO)".
std::string ErrnoText(int error);

// The status of a failed system call: "<action> <path> failed: <errno text>" with the code that fits the errno
// (kNotFound, kPermission, kResourceExhausted for full disks and quotas, else kIo).
Status ErrnoStatus(int error, std::string_view action, std::string_view path);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_ERRNO_STATUS_H_
