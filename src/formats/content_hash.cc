#include "formats/content_hash.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "io/file.h"

namespace nunspark {
namespace {

std::string_view View(std::span<const uint8_t> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

std::string Hex128(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

ContentHash::ContentHash() : state_(XXH3_createState()) {
  CHECK(state_ != nullptr);
  CHECK(XXH3_128bits_reset(state_.get()) == XXH_OK);
}

void ContentHash::Deleter::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void ContentHash::Update(std::string_view text) {
  CHECK(XXH3_128bits_update(state_.get(), text.data(), text.size()) == XXH_OK);
}

void ContentHash::Update(std::span<const uint8_t> data) { Update(View(data)); }

std::string ContentHash::Hex() const { return Hex128(XXH3_128bits_digest(state_.get())); }

std::string ContentHash::Checksum() const { return fmt::format("{}{}", kChecksumPrefix, Hex()); }

std::string ChecksumOf(std::string_view text) {
  return fmt::format("{}{}", kChecksumPrefix, Hex128(XXH3_128bits(text.data(), text.size())));
}

std::string ChecksumOf(std::span<const uint8_t> data) { return ChecksumOf(View(data)); }

bool IsLowerHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsChecksum(std::string_view text) {
  return text.starts_with(kChecksumPrefix) && IsLowerHex(text.substr(kChecksumPrefix.size()), 32);
}

uint64_t Hash64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Result<std::string> ChecksumOfFile(const std::string& path, int64_t bytes) {
  ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
  std::vector<uint8_t> buffer(static_cast<size_t>(std::clamp<int64_t>(bytes, 0, 1 << 20)));
  ContentHash hash;
  for (int64_t offset = 0; offset < bytes;) {
    const int64_t part = std::min(bytes - offset, static_cast<int64_t>(buffer.size()));
    const std::span<uint8_t> data(buffer.data(), static_cast<size_t>(part));
    RETURN_IF_ERROR(file.ReadAt(offset, data));
    hash.Update(data);
    offset += part;
  }
  return hash.Checksum();
}

}  // namespace nunspark
