// Whole files in memory: small ones, with a limit on what small means.
#ifndef NUNSPARK_BASE_READ_FILE_H_
#define NUNSPARK_BASE_READ_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

struct ReadFileOptions {
  // Guards against being pointed at something huge: kResourceExhausted, with the reason for the limit.
  int64_t max_bytes = int64_t{1} << 30;
  std::string_view limit_reason = "the most that is read of such a file";
};

// Capacity that both functions leave behind the content, so that JSON parsers can work in place.
inline constexpr size_t kReadFilePadding = 64;

// A file of a model or of ours: a regular one, also through symbolic links. Anything else is refused without waiting,
// since opening a pipe could wait for ever.
// Errors: kNotFound, kPermission, kIo (path and errno; what it is when it is no file), kResourceExhausted.
Result<std::string> ReadRegularFile(const std::string& path, const ReadFileOptions& options = {});

// What a user names: pipes and terminals too, read until they end. Errors: as above.
Result<std::string> ReadWholeFile(const std::string& path, const ReadFileOptions& options = {});

}  // namespace nunspark

#endif  // NUNSPARK_BASE_READ_FILE_H_
