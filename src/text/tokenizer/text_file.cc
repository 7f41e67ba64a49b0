#include "text/tokenizer/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace nunspark::text {
namespace {

Status SystemError(const std::string& path, std::string_view what, int error) {
  const std::string message = fmt::format("{}: {} failed: {}", path, what, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return NotFoundError(message);
  if (error == EACCES || error == EPERM) return PermissionError(message);
  return IoError(message);
}

Status TooLarge(const std::string& path, int64_t bytes_max, int64_t bytes) {
  return ResourceExhaustedError(
      fmt::format("{}: expected at most {} bytes in a tokenizer file, found {} or more", path, bytes_max, bytes));
}

class FileHandle {
 public:
  explicit FileHandle(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~FileHandle() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

Result<std::string> ReadAll(const std::string& path, const TextFileOptions& options) {
  const FileHandle file(path);
  if (file.get() < 0) return SystemError(path, "open", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return SystemError(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(fmt::format("{}: expected a regular file", path));
  if (info.st_size > options.bytes_max) return TooLarge(path, options.bytes_max, info.st_size);
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size) + options.padding);
  bytes.resize(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, "read", errno);
    if (count == 0) break;  // the file shrank
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

bool IsGzip(std::string_view bytes) { return bytes.size() >= 3 && bytes.starts_with("\x1F\x8B\x08"); }

class Inflater {
 public:
  Inflater() { ok_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }  // 16: a gzip header is expected
  ~Inflater() {
    if (ok_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  bool ok() const { return ok_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
  bool ok_ = false;
};

Result<std::string> Gunzip(const std::string& path, std::string packed, const TextFileOptions& options) {
  const size_t padding = options.padding;
  Inflater inflater;
  if (!inflater.ok()) return ResourceExhaustedError(fmt::format("{}: no memory to unpack it", path));
  z_stream& stream = inflater.stream();
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());  // at most kTokenizerFileBytesMax
  std::string bytes;
  // The last four bytes say how much there is (modulo 2^32); a hint only, since it may lie.
  uint32_t hint = 0;
  if (packed.size() >= sizeof(hint)) std::memcpy(&hint, packed.data() + packed.size() - sizeof(hint), sizeof(hint));
  bytes.reserve(std::min<size_t>(hint, packed.size() * 16) + padding + 1);
  for (;;) {
    const size_t done = bytes.size();
    const size_t step =
        std::max<size_t>(64 * 1024, bytes.capacity() > done + padding ? bytes.capacity() - done - padding : 0);
    bytes.resize(done + step);
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + done);
    stream.avail_out = static_cast<uInt>(step);
    const int code = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(done + step - stream.avail_out);
    if (static_cast<int64_t>(bytes.size()) > options.bytes_max) {
      return TooLarge(path, options.bytes_max, static_cast<int64_t>(bytes.size()));
    }
    if (code == Z_STREAM_END) break;
    if (code != Z_OK || (stream.avail_in == 0 && stream.avail_out != 0)) {
      return DataLossError(fmt::format("{}: not a complete gzip file: {}", path,
                                       stream.msg != nullptr ? stream.msg : "it ends too early"));
    }
  }
  bytes.reserve(bytes.size() + padding);
  return bytes;
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path, const TextFileOptions& options) {
  ASSIGN_OR_RETURN(std::string bytes, ReadAll(path, options));
  if (!IsGzip(bytes)) return bytes;
  return Gunzip(path, std::move(bytes), options);
}

bool FileExists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsFolder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace nunspark::text
