#include "text/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

// Fields of a unit of a darts-clone double array.
uint32_t Label(uint32_t unit) { return unit & 0x800000FFu; }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t LeafValue(uint32_t unit) { return unit & 0x7FFFFFFFu; }
size_t Offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 0x200u) >> 6); }

// The reference tries a whole grapheme only below this length.
constexpr size_t kGraphemeBytesEnd = 6;

// Real keys are a character and its marks. In a corrupt trie a walk may go round in circles.
constexpr size_t kKeyBytesMax = 256;

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view blob, std::string_view where) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) {
    return DataLossError(fmt::format("{}: expected a character map of at least 4 bytes, found {}", where, blob.size()));
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));  // little endian, like every machine we build for
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0 || trie_bytes > blob.size()) {
    return DataLossError(fmt::format("{}: expected a trie of at most {} bytes in units of 4, found a size of {}", where,
                                     blob.size(), trie_bytes));
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = std::string(blob.substr(trie_bytes));
  if (!IsValidUtf8(map.replacements_)) {
    return DataLossError(fmt::format("{}: expected replacements in UTF-8, found other bytes", where));
  }
  return map;
}

std::optional<Charsmap::Match> Charsmap::Find(std::string_view text, Prefer prefer) const {
  size_t bytes = 0;  // of the key that counts
  size_t begin = 0;  // of its replacement
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kKeyBytesMax); ++i) {
    const uint32_t byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const size_t value = LeafValue(units_[node]);
    if (value > replacements_.size()) continue;
    if (value < replacements_.size() && IsUtf8Continuation(replacements_[value])) continue;  // a corrupt map
    bytes = i + 1;
    begin = value;
    if (prefer == Prefer::kShortest) break;
  }
  if (bytes == 0) return std::nullopt;
  const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
  return Match{bytes, std::string_view(replacements_).substr(begin, end - begin)};
}

std::optional<Charsmap::Match> Charsmap::FindLongest(std::string_view text) const {
  return Find(text, Prefer::kLongest);
}
std::optional<Charsmap::Match> Charsmap::FindShortest(std::string_view text) const {
  return Find(text, Prefer::kShortest);
}

Result<bool> Charsmap::RewriteGraphemes(std::string_view text, WorkLimit& work, std::string& out) const {
  bool changed = false;
  const auto rewrite = [&](std::string_view unit) -> Result<bool> {
    const std::optional<Match> match = FindShortest(unit);
    if (!match.has_value()) return false;
    RETURN_IF_ERROR(work.Spend(kStepsPerReplacedByte * match->replacement.size()));
    out += match->replacement;
    changed = true;
    return true;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = NextGrapheme(text, at);
    const std::string_view grapheme = text.substr(at, end - at);
    at = end;
    if (grapheme.size() < kGraphemeBytesEnd) {
      ASSIGN_OR_RETURN(const bool rewritten, rewrite(grapheme));
      if (rewritten) continue;
    }
    for (size_t i = 0; i < grapheme.size();) {
      const std::string_view character = grapheme.substr(i, ValidUtf8Length(grapheme[i]));
      ASSIGN_OR_RETURN(const bool rewritten, rewrite(character));
      if (!rewritten) out += character;
      i += character.size();
    }
  }
  return changed;
}

int64_t Charsmap::memory_bytes() const {
  return static_cast<int64_t>(units_.capacity() * sizeof(uint32_t) + replacements_.capacity());
}

}  // namespace nunspark::text
