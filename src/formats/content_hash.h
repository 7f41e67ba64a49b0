// XXH3 hashes of content: checksums of packs and the identity of a model's files. They find accidents, not attacks.
#ifndef NUNSPARK_FORMATS_CONTENT_HASH_H_
#define NUNSPARK_FORMATS_CONTENT_HASH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "nunspark/status.h"

struct XXH3_state_s;

namespace nunspark {

inline constexpr std::string_view kChecksumPrefix = "xxh3:";

// XXH3-128 of bytes that arrive in parts. Move-only.
class ContentHash {
 public:
  ContentHash();
  ContentHash(ContentHash&&) noexcept = default;
  ContentHash& operator=(ContentHash&&) noexcept = default;

  void Update(std::span<const uint8_t> data);
  void Update(std::string_view text);

  // Of everything so far. 32 lower-case hex digits, most significant first (the canonical form of xxhsum).
  std::string Hex() const;
  // "xxh3:" + Hex(), as manifests and checksum files write it.
  std::string Checksum() const;

 private:
  struct Deleter {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Deleter> state_;
};

std::string ChecksumOf(std::span<const uint8_t> data);
std::string ChecksumOf(std::string_view text);

// Whether `text` is "xxh3:" and 32 lower-case hex digits.
bool IsChecksum(std::string_view text);
bool IsLowerHex(std::string_view text, size_t digits);

uint64_t Hash64(std::string_view text);

// Checksum of the first `bytes` of a file, read in pieces of 1 MiB. Errors: kNotFound, kIo; kDataLoss when it is
// shorter.
Result<std::string> ChecksumOfFile(const std::string& path, int64_t bytes);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_CONTENT_HASH_H_
