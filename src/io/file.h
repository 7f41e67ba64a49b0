// Files: RAII descriptors, whole reads, durable atomic writes.
#ifndef NUNSPARK_IO_FILE_H_
#define NUNSPARK_IO_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

enum class ReadMode { kBuffered, kDirect };

// An open file. Move-only; closes in the destructor.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Errors: kNotFound, kPermission, kIo (path and errno). kDirect fails with kUnsupported where the file system refuses O_DIRECT.
  static Result<File> OpenRead(const std::string& path, ReadMode mode = ReadMode::kBuffered);
  // Creates or truncates.
  static Result<File> Create(const std::string& path);

  // Reads exactly out.size() bytes at `offset`, retrying on EINTR and short reads.
  // Errors: kDataLoss when the file ends first (expected and found size); kIo with errno, offset and length.
  Status ReadAt(int64_t offset, std::span<uint8_t> out) const;
  // Writes everything. Errors: kResourceExhausted when the disk is full, else kIo.
  Status WriteAt(int64_t offset, std::span<const uint8_t> data);
  Status Truncate(int64_t bytes);
  Status Sync();
  Result<int64_t> Size() const;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
  std::string path_;
};

// "Input/output error (EIO)".
std::string ErrnoText(int error);

// Whole small files. `max_bytes` guards against being pointed at something huge.
Result<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

// Temporary file beside it, fsync, rename, fsync of the folder: the file is either the old one or all of the new one.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// fsync of a folder, so that renames in it survive a power cut.
Status SyncFolder(const std::string& folder);

bool FileExists(const std::string& path);

}  // namespace nunspark

#endif  // NUNSPARK_IO_FILE_H_
