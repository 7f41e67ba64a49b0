#include "text/tokenizer/charsmap.h"

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
  std::optional<Match> found;
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const size_t begin = LeafValue(units_[node]);
    if (begin > replacements_.size()) continue;
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    if (begin < replacements_.size() && IsUtf8Continuation(replacements_[begin])) continue;  // a corrupt map
    found = Match{i + 1, std::string_view(replacements_).substr(begin, end - begin)};
    if (prefer == Prefer::kShortest) break;
  }
  return found;
}

std::optional<Charsmap::Match> Charsmap::FindLongest(std::string_view text) const {
  return Find(text, Prefer::kLongest);
}
std::optional<Charsmap::Match> Charsmap::FindShortest(std::string_view text) const {
  return Find(text, Prefer::kShortest);
}

bool Charsmap::RewriteGraphemes(std::string_view text, std::string& out) const {
  bool changed = false;
  const auto rewrite = [&](std::string_view unit) {
    const std::optional<Match> match = FindShortest(unit);
    if (!match.has_value()) return false;
    out += match->replacement;
    changed = true;
    return true;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = NextGrapheme(text, at);
    const std::string_view grapheme = text.substr(at, end - at);
    at = end;
    if (grapheme.size() < kGraphemeBytesEnd && rewrite(grapheme)) continue;
    for (size_t i = 0; i < grapheme.size();) {
      const std::string_view character = grapheme.substr(i, ValidUtf8Length(grapheme[i]));
      if (!rewrite(character)) out += character;
      i += character.size();
    }
  }
  return changed;
}

int64_t Charsmap::memory_bytes() const {
  return static_cast<int64_t>(units_.capacity() * sizeof(uint32_t) + replacements_.capacity());
}

}  // namespace nunspark::text
