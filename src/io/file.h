// Files: RAII descriptors, durable atomic writes. Whole reads are in base/read_file.h.
#ifndef NUNSPARK_IO_FILE_H_
#define NUNSPARK_IO_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What works with files reports errno and reads some of them whole.
#include "base/errno_status.h"
#include "base/read_file.h"
#include "nunspark/status.h"

namespace nunspark {

enum class ReadMode { kBuffered, kDirect };

// Who may open a new file: whom the process's umask lets, or its owner alone.
enum class FileAccess { kUmask, kOwner };

// An open file. Move-only; closes in the destructor.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Only regular files: opening a pipe could wait for ever.
  // Errors: kNotFound, kPermission, kIo (path and errno). kDirect fails with kUnsupported where the file system refuses
  // O_DIRECT.
  static Result<File> OpenRead(const std::string& path, ReadMode mode = ReadMode::kBuffered);
  // Creates or truncates. `access`: of one that is new.
  static Result<File> Create(const std::string& path, FileAccess access = FileAccess::kUmask);
  // Creates, or opens and keeps what is there, to read and write. Refuses a symbolic link (kIo, ELOOP): it could lead
  // anywhere.
  static Result<File> OpenWrite(const std::string& path);

  // A new file without a name, which is gone when it is closed, to read and write. Errors: as Create, naming the
  // folder.
  static Result<File> CreateTemporary(const std::string& folder);

  // Reads and writes without the system's cache from here on, where the file system does that for multiples of 4 KiB:
  // offsets, sizes and addresses must then be such.
  void TryDirect();

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

// A file that appears under its name only when it is complete. Move-only; without Commit the destructor removes the
// temporary file, so a failure leaves the old file as it was.
class AtomicFile {
 public:
  AtomicFile() = default;
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Creates the temporary file beside `path`.
  static Result<AtomicFile> Create(const std::string& path, FileAccess access = FileAccess::kUmask);

  // Appends. Errors: as File::WriteAt.
  Status Append(std::string_view data);

  // fsync, rename to `path`, fsync of the folder.
  Status Commit();

 private:
  void Discard();

  File file_;
  std::string path_;
  int64_t bytes_ = 0;
};

// Temporary file beside it, fsync, rename, fsync of the folder: the file is either the old one or all of the new one.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// fsync of a folder, so that renames in it survive a power cut.
Status SyncFolder(const std::string& folder);

// A regular file, also through symbolic links.
bool FileExists(const std::string& path);
bool FolderExists(const std::string& path);

// Names of the entries of a folder, sorted by bytes, without "." and "..". Errors: kNotFound, kPermission, kIo.
Result<std::vector<std::string>> ListFolder(const std::string& path);

// "folder/name" with exactly one slash between.
std::string JoinPath(std::string_view folder, std::string_view name);

}  // namespace nunspark

#endif  // NUNSPARK_IO_FILE_H_
