// Folders, and the file systems that hold them.
#ifndef NUNSPARK_IO_FILE_SYSTEM_H_
#define NUNSPARK_IO_FILE_SYSTEM_H_

#include <cstdint>
#include <string>

#include "nunspark/status.h"

namespace nunspark {

enum class FileSystemKind : uint8_t { kLocal, kMemory, kNetwork, kOther };

struct FileSystemInfo {
  std::string name;  // "ext4", "nfs"; a number in hexadecimal when it is not known here
  FileSystemKind kind = FileSystemKind::kOther;
  int64_t free_bytes = 0;
};

// Errors: kNotFound, kPermission, kIo.
Result<FileSystemInfo> InspectFileSystem(const std::string& path);

// mkdir -p. Errors: kPermission, kResourceExhausted, kIo.
Status CreateFolders(const std::string& path);

// By the number that statfs reports.
FileSystemInfo FileSystemOf(uint64_t magic);

}  // namespace nunspark

#endif  // NUNSPARK_IO_FILE_SYSTEM_H_
