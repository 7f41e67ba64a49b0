// checksums.json of a pack (docs/FORMAT.md): covers every byte that no piece's checksum covers - the manifest, the
// headers of the safetensors files and the copied files - and itself.
#ifndef NUNSPARK_FORMATS_CHECKSUMS_H_
#define NUNSPARK_FORMATS_CHECKSUMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

inline constexpr std::string_view kChecksumsFile = "checksums.json";

// The first `bytes` bytes of a file in the pack: all of it, except for safetensors files, where it is the header up to
// the first record.
struct FileChecksum {
  std::string name;
  int64_t bytes = 0;
  std::string checksum;  // "xxh3:" + 32 hex digits

  friend bool operator==(const FileChecksum&, const FileChecksum&) = default;
};

// Of the first `bytes` bytes of folder/name. Errors: as ChecksumOfFile.
Result<FileChecksum> MakeFileChecksum(const std::string& folder, const std::string& name, int64_t bytes);

// The text of checksums.json: files sorted by name, one line each, and a last line with the checksum of all text before
// it. REQUIRES: plain file names, each once.
std::string WriteChecksums(std::vector<FileChecksum> files);

// Accepts only the very bytes that WriteChecksums would write, so that no change to them goes unnoticed.
// Errors: kDataLoss.
Result<std::vector<FileChecksum>> ParseChecksums(std::string_view text, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_CHECKSUMS_H_
