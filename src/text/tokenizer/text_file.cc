#include "text/tokenizer/text_file.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/read_file.h"

namespace nunspark::text {
namespace {

constexpr std::string_view kLimitReason = "the most that a tokenizer file may have";

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
      return ResourceExhaustedError(
          fmt::format("{} unpacks to more than {} bytes, {}", path, options.bytes_max, kLimitReason));
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
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadRegularFile(path, {.max_bytes = options.bytes_max, .limit_reason = kLimitReason}));
  if (!IsGzip(bytes)) {
    bytes.reserve(bytes.size() + options.padding);
    return bytes;
  }
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
