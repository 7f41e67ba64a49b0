// Whole files in memory, with limits, plain or gzip-packed.
#ifndef NUNSPARK_TEXT_TOKENIZER_TEXT_FILE_H_
#define NUNSPARK_TEXT_TOKENIZER_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "nunspark/status.h"

namespace nunspark::text {

// The largest tokenizer file that is read; the largest real one has some 40 MB.
inline constexpr int64_t kTokenizerFileBytesMax = int64_t{512} << 20;

struct TextFileOptions {
  int64_t bytes_max = kTokenizerFileBytesMax;  // of the content, unpacked
  size_t padding = 0;                          // spare capacity behind the content, as JSON parsers want it
};

// The content of `path`; a file that begins with the gzip mark is unpacked.
// Errors: kNotFound, kPermission, kIo; kDataLoss for a corrupt gzip stream; kResourceExhausted beyond the limit.
Result<std::string> ReadTextFile(const std::string& path, const TextFileOptions& options = {});

bool FileExists(const std::string& path);
bool IsFolder(const std::string& path);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_TEXT_FILE_H_
