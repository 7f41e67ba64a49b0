// Unicode 16 properties of code points, as the tokenizers need them.
//
// The data is generated (tools/make_unicode_tables.mjs). Look-ups are two array reads; the tables are built once, on
// first use. Everything here may be used by many threads.
#ifndef NUNSPARK_TEXT_UNICODE_UNICODE_H_
#define NUNSPARK_TEXT_UNICODE_UNICODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nunspark::text {

// The general category, with white space that Unicode files under Cc set apart, so that every class that a tokenizer
// pattern names is a set of these 32.
enum class CharClass : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kControlSpace,    // tab, vertical tab, form feed, U+0085
  kControlNewline,  // CR, LF
};

// A set of classes as a bit mask.
using ClassSet = uint32_t;
constexpr ClassSet SetOf(CharClass c) { return ClassSet{1} << static_cast<int>(c); }
template <typename... Classes>
constexpr ClassSet SetOf(CharClass first, Classes... rest) {
  return SetOf(first) | SetOf(rest...);
}

inline constexpr ClassSet kLetters =
    SetOf(CharClass::kLu, CharClass::kLl, CharClass::kLt, CharClass::kLm, CharClass::kLo);
inline constexpr ClassSet kMarks = SetOf(CharClass::kMn, CharClass::kMc, CharClass::kMe);
inline constexpr ClassSet kNumbers = SetOf(CharClass::kNd, CharClass::kNl, CharClass::kNo);
inline constexpr ClassSet kPunctuation = SetOf(CharClass::kPc, CharClass::kPd, CharClass::kPs, CharClass::kPe,
                                               CharClass::kPi, CharClass::kPf, CharClass::kPo);
inline constexpr ClassSet kSymbols = SetOf(CharClass::kSm, CharClass::kSc, CharClass::kSk, CharClass::kSo);
inline constexpr ClassSet kSeparators = SetOf(CharClass::kZs, CharClass::kZl, CharClass::kZp);
inline constexpr ClassSet kControls = SetOf(CharClass::kCc, CharClass::kControlSpace, CharClass::kControlNewline);
inline constexpr ClassSet kNewlines = SetOf(CharClass::kControlNewline);
// White_Space, and so \s.
inline constexpr ClassSet kWhiteSpace = kSeparators | SetOf(CharClass::kControlSpace, CharClass::kControlNewline);

inline constexpr uint32_t kCodePointLimit = 0x110000;

// The built tables.
class UnicodeTable {
 public:
  static const UnicodeTable& Get();

  CharClass ClassOf(uint32_t c) const { return static_cast<CharClass>(Entry(c) & 31); }
  // REQUIRES: c < kCodePointLimit, as in all of the below.
  bool In(uint32_t c, ClassSet set) const { return (set >> (Entry(c) & 31) & 1) != 0; }

  // Assigned in Unicode 16 but not in 9: the reference's normal forms leave such characters alone.
  bool AddedAfterUnicode9(uint32_t c) const { return (Entry(c) & 32) != 0; }

  // What the reference's Punctuation step splits on: P* of Unicode 8 and all ASCII punctuation.
  bool IsReferencePunctuation(uint32_t c) const { return (Entry(c) & 64) != 0; }

  // GraphemeClass with its flag, see grapheme.cc.
  uint8_t GraphemeEntry(uint32_t c) const { return graphemes_[graphemes_index_[c >> 7] * 128u + (c & 127)]; }

 private:
  UnicodeTable();
  uint8_t Entry(uint32_t c) const { return classes_[classes_index_[c >> 7] * 128u + (c & 127)]; }

  std::array<uint16_t, kCodePointLimit / 128> classes_index_;
  std::array<uint16_t, kCodePointLimit / 128> graphemes_index_;
  std::unique_ptr<uint8_t[]> classes_;
  std::unique_ptr<uint8_t[]> graphemes_;
};

// \w of the regex crate: Alphabetic, marks, decimal numbers, connector punctuation, and the two joiners.
bool IsWordCharacter(uint32_t c);

// What the reference leaves to Rust's standard library, which is at Unicode 17: numbers (char::is_numeric) and the
// full lower-case mapping without context rules (char::to_lowercase), which is appended.
bool IsStandardNumber(uint32_t c);
void AppendLowercase(uint32_t c, std::string& out);

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
};
// Alphabetic beyond letters, marks and letter numbers; and the marks that are Alphabetic.
std::span<const CodePointRange> OtherAlphabetic();
std::span<const CodePointRange> AlphabeticMarks();
// Script=Han.
std::span<const CodePointRange> HanScript();

// All code points of `set` but surrogates, ascending and not touching.
std::vector<CodePointRange> RangesOf(ClassSet set);

// Offset of the end of the extended grapheme cluster that starts at `offset` (Unicode 16, UAX 29).
// REQUIRES: valid UTF-8, offset < text.size() and a cluster boundary.
size_t NextGrapheme(std::string_view text, size_t offset);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_UNICODE_UNICODE_H_
