#include "text/unicode/unicode.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/utf8.h"

namespace nunspark::text {
namespace {

#include "text/unicode/unicode_data.inc"

constexpr uint32_t kBlock = 128;

// Expands runs into 128-entry blocks and shares equal blocks.
void BuildTwoStage(std::span<const uint32_t> runs, std::span<uint16_t> index, std::unique_ptr<uint8_t[]>& blocks) {
  std::vector<uint8_t> all;
  std::map<std::array<uint8_t, kBlock>, uint16_t> seen;
  size_t run = 0;
  for (uint32_t block = 0; block < kCodePointLimit / kBlock; ++block) {
    std::array<uint8_t, kBlock> values;
    // Most blocks lie inside one run.
    for (uint32_t i = 0; i < kBlock; ++i) {
      const uint32_t c = block * kBlock + i;
      while (run + 1 < runs.size() && runs[run + 1] >> 8 <= c) ++run;
      values[i] = static_cast<uint8_t>(runs[run] & 0xFF);
    }
    const auto [it, fresh] = seen.try_emplace(values, static_cast<uint16_t>(all.size() / kBlock));
    if (fresh) all.insert(all.end(), values.begin(), values.end());
    index[block] = it->second;
  }
  blocks = std::make_unique<uint8_t[]>(all.size());
  std::copy(all.begin(), all.end(), blocks.get());
}

template <size_t N>
std::vector<CodePointRange> ReadRanges(const uint32_t (&words)[N]) {
  std::vector<CodePointRange> ranges;
  for (size_t i = 0; i + 1 < N; i += 2) ranges.push_back({words[i], words[i + 1]});
  return ranges;
}

bool InRanges(std::span<const CodePointRange> ranges, uint32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

uint32_t SimpleLowercase(uint32_t c) {
  constexpr size_t kRuns = std::size(kLowercaseRuns) / 4;
  size_t low = 0;
  size_t high = kRuns;
  while (low < high) {  // first run whose last code point is >= c
    const size_t middle = (low + high) / 2;
    if (kLowercaseRuns[middle * 4 + 1] < c) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  // A run of stride 2 can enclose other runs' code points, but never more than one run.
  for (size_t run = low; run < std::min(low + 2, kRuns); ++run) {
    const uint32_t* words = kLowercaseRuns + run * 4;
    if (c >= words[0] && c <= words[1] && (c - words[0]) % words[2] == 0) return c + words[3];
  }
  return c;
}

}  // namespace

UnicodeTable::UnicodeTable() {
  BuildTwoStage(kClassRuns, classes_index_, classes_);
  BuildTwoStage(kGraphemeRuns, graphemes_index_, graphemes_);
}

const UnicodeTable& UnicodeTable::Get() {
  static const UnicodeTable* const kTable = new UnicodeTable();
  return *kTable;
}

std::span<const CodePointRange> OtherAlphabetic() {
  static const auto* const kRanges = new std::vector<CodePointRange>(ReadRanges(kOtherAlphabetic));
  return *kRanges;
}

std::span<const CodePointRange> AlphabeticMarks() {
  static const auto* const kRanges = new std::vector<CodePointRange>(ReadRanges(kAlphabeticMarks));
  return *kRanges;
}

std::span<const CodePointRange> HanScript() {
  static const auto* const kRanges = new std::vector<CodePointRange>(ReadRanges(kHanScript));
  return *kRanges;
}

std::vector<CodePointRange> RangesOf(ClassSet set) {
  constexpr ClassSet kSurrogates = SetOf(CharClass::kCs);
  std::vector<CodePointRange> ranges;
  for (size_t run = 0; run < std::size(kClassRuns); ++run) {
    if (((set & ~kSurrogates) >> (kClassRuns[run] & 31) & 1) == 0) continue;
    const uint32_t first = kClassRuns[run] >> 8;
    const uint32_t last = (run + 1 < std::size(kClassRuns) ? kClassRuns[run + 1] >> 8 : kCodePointLimit) - 1;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }
  return ranges;
}

bool IsWordCharacter(uint32_t c) {
  constexpr ClassSet kWord = kLetters | kMarks | SetOf(CharClass::kNd, CharClass::kNl, CharClass::kPc);
  if (UnicodeTable::Get().In(c, kWord)) return true;
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && InRanges(OtherAlphabetic(), c));
}

bool IsStandardNumber(uint32_t c) {
  if (UnicodeTable::Get().In(c, kNumbers)) return true;
  return (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

void AppendLowercase(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {  // the one unconditional mapping to two characters
    out += "i\xCC\x87";
  } else if (c == 0xA7CE || c == 0xA7D2 || c == 0xA7D4) {  // of Unicode 17, as the next
    AppendUtf8(c + 1, out);
  } else if (c >= 0x16EA0 && c <= 0x16EB8) {
    AppendUtf8(c + 27, out);
  } else {
    AppendUtf8(SimpleLowercase(c), out);
  }
}

}  // namespace nunspark::text
