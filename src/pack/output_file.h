// A large file that is written once, front to back mostly, without filling the page cache.
#ifndef NUNSPARK_PACK_OUTPUT_FILE_H_
#define NUNSPARK_PACK_OUTPUT_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

// Move-only; the destructor closes without a word about the data, so call Sync first. Not thread-safe.
class OutputFile {
 public:
  // Opens or creates; keeps what is there, makes the file `bytes` long and reserves its space where the file system
  // can. Errors: kResourceExhausted when the drive is full, kPermission, kIo.
  static Result<OutputFile> Open(const std::string& path, int64_t bytes);

  // Writes everything. Errors: kResourceExhausted when the drive is full, else kIo.
  Status WriteAt(int64_t offset, std::span<const uint8_t> data);
  Status WriteAt(int64_t offset, std::string_view data);

  // Until the data is on the drive; then its pages leave the cache.
  Status Sync();

 private:
  void WriteBehind(int64_t offset, int64_t end);

  File file_;
  int64_t started_ = 0;  // [started_, end of the last write): in the cache only
  int64_t waited_ = 0;   // [waited_, started_): on its way to the drive
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_OUTPUT_FILE_H_
