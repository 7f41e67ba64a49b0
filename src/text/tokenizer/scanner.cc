#include "text/tokenizer/scanner.h"

#include <array>
#include <iterator>

#include "text/tokenizer/patterns.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

using enum CharClass;

// One character as the patterns see it.
struct Char {
  ClassSet kind;  // the bit of its class; 0 at the end of the text
  uint32_t next;  // offset after it
};

// A piece being scanned.
class Cursor {
 public:
  Cursor(std::string_view text, Span piece) : data_(text.data()), end_(piece.end), table_(UnicodeTable::Get()) {}

  uint32_t end() const { return end_; }
  uint8_t Byte(uint32_t at) const { return at < end_ ? static_cast<uint8_t>(data_[at]) : 0; }

  Char At(uint32_t at) const {
    if (at >= end_) return {0, at};
    uint32_t bytes = 0;
    const uint32_t c = DecodeValidUtf8(data_ + at, bytes);
    return {SetOf(table_.ClassOf(c)), at + bytes};
  }

  uint32_t CodePointAt(uint32_t at, uint32_t& next) const {
    uint32_t bytes = 0;
    const uint32_t c = DecodeValidUtf8(data_ + at, bytes);
    next = at + bytes;
    return c;
  }

  // End of the longest run of characters in `set` that starts at `at`.
  uint32_t RunEnd(uint32_t at, ClassSet set) const {
    for (;;) {
      const Char c = At(at);
      if ((c.kind & set) == 0) return at;
      at = c.next;
    }
  }

  uint32_t RunEnd(uint32_t at, ClassSet set, int count_max) const {
    for (int i = 0; i < count_max; ++i) {
      const Char c = At(at);
      if ((c.kind & set) == 0) return at;
      at = c.next;
    }
    return at;
  }

 private:
  const char* data_;
  uint32_t end_;
  const UnicodeTable& table_;
};

constexpr ClassSet kAll = ~ClassSet{0};
constexpr uint32_t kNoMatch = 0;  // ends of matches are never 0: a match is not empty

enum class Case { kExact, kFolded };

// End of 's|'t|'re|'ve|'m|'ll|'d at `at`, which holds an apostrophe; kNoMatch if none.
template <Case kCase>
uint32_t Contraction(const Cursor& text, uint32_t at) {
  const auto fold = [](uint8_t byte) -> uint8_t {
    return kCase == Case::kFolded && byte >= 'A' && byte <= 'Z' ? static_cast<uint8_t>(byte + 32) : byte;
  };
  const uint8_t first = fold(text.Byte(at + 1));
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd': return at + 2;
    case 'r':
    case 'v': return fold(text.Byte(at + 2)) == 'e' ? at + 3 : kNoMatch;
    case 'l': return fold(text.Byte(at + 2)) == 'l' ? at + 3 : kNoMatch;
    case 0xC5:  // U+017F, the long s, folds to s
      return kCase == Case::kFolded && text.Byte(at + 2) == 0xBF ? at + 3 : kNoMatch;
    default: return kNoMatch;
  }
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at `at`, which holds white space.
uint32_t WhiteSpace(const Cursor& text, uint32_t at) {
  uint32_t newline_end = kNoMatch;
  uint32_t last_begin = at;
  uint32_t end = at;
  for (;;) {
    const Char c = text.At(end);
    if ((c.kind & kWhiteSpace) == 0) break;
    if (c.kind & kNewlines) newline_end = c.next;
    last_begin = end;
    end = c.next;
  }
  if (newline_end != kNoMatch) return newline_end;
  // The last space of a run stays with the word after it.
  return end == text.end() || last_begin == at ? end : last_begin;
}

// \s+(?!\S)|\s+ at `at`, which holds white space.
uint32_t WhiteSpaceWithoutNewlineRule(const Cursor& text, uint32_t at) {
  uint32_t last_begin = at;
  uint32_t end = at;
  for (Char c = text.At(end); c.kind & kWhiteSpace; c = text.At(end)) {
    last_begin = end;
    end = c.next;
  }
  return end == text.end() || last_begin == at ? end : last_begin;
}

// `match(text, at, first)` gives the end of the match that starts at `at`, or kNoMatch.
template <typename Match>
void ScanAll(std::string_view text, Span piece, std::vector<Span>& matches, Match match) {
  const Cursor cursor(text, piece);
  for (uint32_t at = piece.begin; at < piece.end;) {
    const Char first = cursor.At(at);
    const uint32_t end = match(cursor, at, first);
    if (end == kNoMatch) {
      at = first.next;
      continue;
    }
    matches.push_back({at, end});
    at = end;
  }
}

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void ScanGpt2(std::string_view text, Span piece, std::vector<Span>& matches) {
  constexpr ClassSet kOther = kAll & ~(kWhiteSpace | kLetters | kNumbers);
  ScanAll(text, piece, matches, [](const Cursor& cursor, uint32_t at, Char first) -> uint32_t {
    const uint8_t byte = cursor.Byte(at);
    if (byte == '\'') {
      const uint32_t end = Contraction<Case::kExact>(cursor, at);
      if (end != kNoMatch) return end;
    }
    const Char body = byte == ' ' ? cursor.At(first.next) : first;
    if (body.kind & kLetters) return cursor.RunEnd(body.next, kLetters);
    if (body.kind & kNumbers) return cursor.RunEnd(body.next, kNumbers);
    if (body.kind & kOther) return cursor.RunEnd(body.next, kOther);
    return WhiteSpaceWithoutNewlineRule(cursor, at);
  });
}

// cl100k and its relatives (Llama 3, Qwen 2 to 3.5, Seed-OSS):
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,D}| ?[^\s WORD \p{N}]+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+
// where WORD is \p{L} or [\p{L}\p{M}] and TAIL is [\r\n]* or nothing.
template <ClassSet kWord, int kDigits, ClassSet kTail>
void ScanCl100k(std::string_view text, Span piece, std::vector<Span>& matches) {
  constexpr ClassSet kOther = kAll & ~(kWhiteSpace | kWord | kNumbers);
  constexpr ClassSet kNotBeforeWord = kNewlines | kLetters | kNumbers;
  ScanAll(text, piece, matches, [](const Cursor& cursor, uint32_t at, Char first) -> uint32_t {
    if (first.kind & kWord) return cursor.RunEnd(first.next, kWord);
    const uint8_t byte = cursor.Byte(at);
    if (byte == '\'') {
      const uint32_t end = Contraction<Case::kFolded>(cursor, at);
      if (end != kNoMatch) return end;
    }
    if (first.kind & kNumbers) return cursor.RunEnd(first.next, kNumbers, kDigits - 1);
    const Char second = cursor.At(first.next);
    if ((first.kind & kNotBeforeWord) == 0 && (second.kind & kWord)) return cursor.RunEnd(second.next, kWord);
    const Char body = byte == ' ' ? second : first;
    if (body.kind & kOther) return cursor.RunEnd(cursor.RunEnd(body.next, kOther), kTail);
    return WhiteSpace(cursor, at);
  });
}

constexpr ClassSet kUpperLike = SetOf(kLu, kLt, kLm, kLo) | kMarks;
constexpr ClassSet kLowerLike = SetOf(kLl, kLm, kLo) | kMarks;

// UPPER*LOWER+ at `at` with the backtracking that a regex does: when nothing lower-like follows the upper-like run, the
// match ends after the last character of the run that is both.
uint32_t UpperThenLower(const Cursor& text, uint32_t at) {
  uint32_t last_both = kNoMatch;
  for (;;) {
    const Char c = text.At(at);
    if ((c.kind & kUpperLike) == 0) {
      return c.kind & kLowerLike ? text.RunEnd(c.next, kLowerLike) : last_both;
    }
    if (c.kind & kLowerLike) last_both = c.next;
    at = c.next;
  }
}

// UPPER+LOWER* at `at`.
uint32_t UpperThenMaybeLower(const Cursor& text, uint32_t at) {
  const uint32_t end = text.RunEnd(at, kUpperLike);
  return end == at ? kNoMatch : text.RunEnd(end, kLowerLike);
}

enum class Suffix { kNone, kContraction };

// o200k and its relatives (gpt-oss, Youtu, Mistral Nemo):
// [^\r\n\p{L}\p{N}]?UPPER*LOWER+SUFFIX?|[^\r\n\p{L}\p{N}]?UPPER+LOWER*SUFFIX?|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n/]*|...
template <int kDigits, Suffix kSuffix>
void ScanO200k(std::string_view text, Span piece, std::vector<Span>& matches) {
  constexpr ClassSet kOther = kAll & ~(kWhiteSpace | kLetters | kNumbers);
  constexpr ClassSet kNotBeforeWord = kNewlines | kLetters | kNumbers;
  ScanAll(text, piece, matches, [](const Cursor& cursor, uint32_t at, Char first) -> uint32_t {
    if ((first.kind & (kNewlines | kNumbers)) == 0) {
      const bool prefix = (first.kind & kNotBeforeWord) == 0;
      uint32_t end = kNoMatch;
      if (prefix) end = UpperThenLower(cursor, first.next);
      if (end == kNoMatch) end = UpperThenLower(cursor, at);
      if (end == kNoMatch && prefix) end = UpperThenMaybeLower(cursor, first.next);
      if (end == kNoMatch) end = UpperThenMaybeLower(cursor, at);
      if (end != kNoMatch) {
        if (kSuffix == Suffix::kContraction && cursor.Byte(end) == '\'') {
          const uint32_t suffix_end = Contraction<Case::kFolded>(cursor, end);
          if (suffix_end != kNoMatch) return suffix_end;
        }
        return end;
      }
    }
    if (first.kind & kNumbers) return cursor.RunEnd(first.next, kNumbers, kDigits - 1);
    const Char body = cursor.Byte(at) == ' ' ? cursor.At(first.next) : first;
    if (body.kind & kOther) {
      uint32_t end = cursor.RunEnd(body.next, kOther);
      for (uint8_t byte = cursor.Byte(end); byte == '\r' || byte == '\n' || byte == '/'; byte = cursor.Byte(end)) ++end;
      return end;
    }
    return WhiteSpace(cursor, at);
  });
}

bool IsAsciiLetter(uint8_t byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }
bool IsAsciiPunctuation(uint8_t byte) {
  return byte > 0x20 && byte < 0x7F && !IsAsciiLetter(byte) && (byte < '0' || byte > '9');
}

// The third pattern of DeepSeek V3: [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
void ScanDeepSeek(std::string_view text, Span piece, std::vector<Span>& matches) {
  constexpr ClassSet kWord = kLetters | kMarks;
  constexpr ClassSet kSigns = kPunctuation | kSymbols;
  ScanAll(text, piece, matches, [](const Cursor& cursor, uint32_t at, Char first) -> uint32_t {
    const uint8_t byte = cursor.Byte(at);
    if (IsAsciiPunctuation(byte) && IsAsciiLetter(cursor.Byte(at + 1))) {
      uint32_t end = at + 2;
      while (IsAsciiLetter(cursor.Byte(end))) ++end;
      return end;
    }
    if (first.kind & kWord) return cursor.RunEnd(first.next, kWord);
    const Char second = cursor.At(first.next);
    if ((first.kind & (kNewlines | kSigns)) == 0 && (second.kind & kWord)) return cursor.RunEnd(second.next, kWord);
    const Char body = byte == ' ' ? second : first;
    if (body.kind & kSigns) return cursor.RunEnd(cursor.RunEnd(body.next, kSigns), kNewlines);
    return first.kind & kWhiteSpace ? WhiteSpace(cursor, at) : kNoMatch;
  });
}

template <int kDigits>
void ScanDigits(std::string_view text, Span piece, std::vector<Span>& matches) {
  ScanAll(text, piece, matches, [](const Cursor& cursor, uint32_t, Char first) -> uint32_t {
    return first.kind & kNumbers ? cursor.RunEnd(first.next, kNumbers, kDigits - 1) : kNoMatch;
  });
}

// [set]+|[set]+|...: runs of characters of one script group. `group(c)` is 0 for characters outside all of them.
template <typename Group>
void ScanGroups(std::string_view text, Span piece, std::vector<Span>& matches, Group group) {
  const Cursor cursor(text, piece);
  for (uint32_t at = piece.begin; at < piece.end;) {
    uint32_t end = 0;
    const int first = group(cursor.CodePointAt(at, end));
    if (first != 0) {
      for (uint32_t next = 0; end < piece.end && group(cursor.CodePointAt(end, next)) == first;) end = next;
      matches.push_back({at, end});
    }
    at = end;
  }
}

bool Within(uint32_t c, uint32_t first, uint32_t last) { return c >= first && c <= last; }

// CJK ideographs and kana of DeepSeek's and Youtu's patterns.
bool IsHanOrKana(uint32_t c) { return Within(c, 0x4E00, 0x9FA5) || Within(c, 0x3040, 0x30FF); }

void ScanHanRuns(std::string_view text, Span piece, std::vector<Span>& matches) {
  ScanGroups(text, piece, matches, [](uint32_t c) { return IsHanOrKana(c) ? 1 : 0; });
}

int YoutuGroup(uint32_t c) {
  if (c < 0x2014) return 0;
  if (Within(c, 0xAC00, 0xD7A3) || Within(c, 0x3131, 0x318E)) return 1;
  if (Within(c, 0x3001, 0x303F) || Within(c, 0xFE30, 0xFE4F)) return 2;
  switch (c) {
    case 0xFF01:
    case 0x2026:
    case 0x201C:
    case 0x201D:
    case 0x2018:
    case 0x2019:
    case 0x2014:
    case 0xFF1A:
    case 0xFF1B:
    case 0xFF0C: return 2;
    default: break;
  }
  if (Within(c, 0x3105, 0x312F)) return 3;
  return IsHanOrKana(c) ? 4 : 0;
}

void ScanYoutuRuns(std::string_view text, Span piece, std::vector<Span>& matches) {
  ScanGroups(text, piece, matches, YoutuGroup);
}

constexpr std::string_view kPatterns[] = {
    patterns::kGpt2,        patterns::kLlama3,     patterns::kQwen2,      patterns::kQwen35,
    patterns::kSeedOss,     patterns::kO200k,      patterns::kYoutu,      patterns::kTekken,
    patterns::kThreeDigits, patterns::kHanAndKana, patterns::kDeepSeekV3, patterns::kYoutuRuns,
};

constexpr Scanner kScanners[] = {
    ScanGpt2,
    ScanCl100k<kLetters, 3, kNewlines>,
    ScanCl100k<kLetters, 1, kNewlines>,
    ScanCl100k<kLetters | kMarks, 1, kNewlines>,
    ScanCl100k<kLetters, 1, 0>,
    ScanO200k<3, Suffix::kContraction>,
    ScanO200k<1, Suffix::kContraction>,
    ScanO200k<1, Suffix::kNone>,
    ScanDigits<3>,
    ScanHanRuns,
    ScanDeepSeek,
    ScanYoutuRuns,
};
static_assert(std::size(kPatterns) == std::size(kScanners));

}  // namespace

Scanner FindScanner(std::string_view pattern) {
  for (size_t i = 0; i < std::size(kPatterns); ++i) {
    if (kPatterns[i] == pattern) return kScanners[i];
  }
  return nullptr;
}

Scanner Gpt2Scanner() { return ScanGpt2; }

std::span<const std::string_view> ScannerPatterns() { return kPatterns; }

}  // namespace nunspark::text
