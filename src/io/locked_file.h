// A file that one process holds at a time.
#ifndef NUNSPARK_IO_LOCKED_FILE_H_
#define NUNSPARK_IO_LOCKED_FILE_H_

#include <optional>
#include <string>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

// Opens or creates `path` to read and write, with an exclusive flock until it is closed. nullopt while another process
// has it. Where the file system has no locks it is simply had. Errors: as File::OpenWrite.
Result<std::optional<File>> OpenLocked(const std::string& path);

}  // namespace nunspark

#endif  // NUNSPARK_IO_LOCKED_FILE_H_
