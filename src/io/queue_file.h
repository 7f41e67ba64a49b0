// The files of a ReadQueue: opened once, each with O_DIRECT where its file system really serves direct reads.
#ifndef NUNSPARK_IO_QUEUE_FILE_H_
#define NUNSPARK_IO_QUEUE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

struct QueueFile {
  File file;
  int64_t bytes = 0;  // when opened
  bool direct = false;
  std::string why_not_direct;  // "" when direct, or when nobody asked for it
};

enum class DirectIo { kTry, kNo };

// Errors: kNotFound, kPermission, kIo.
Result<std::vector<QueueFile>> OpenQueueFiles(const std::vector<std::string>& paths, DirectIo direct);

}  // namespace nunspark

#endif  // NUNSPARK_IO_QUEUE_FILE_H_
