// Extended grapheme clusters (UAX 29, Unicode 16): rules GB3 to GB13 in order.
#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

// Numbers are those of tools/make_unicode_tables.mjs.
enum GraphemeClass : uint8_t {
  kOther,
  kCr,
  kLf,
  kControl,
  kExtend,
  kZwj,
  kRegional,
  kPrepend,
  kSpacingMark,
  kL,
  kV,
  kT,
  kLv,
  kLvt,
  kPictographic,  // Extended_Pictographic, otherwise Other
  kConsonant,     // InCB=Consonant, otherwise Other
  kLinker,        // InCB=Linker, otherwise Extend
};
constexpr uint8_t kConjunctExtend = 32;  // flag: InCB=Extend

// What the rules that look further back than one character need to know.
struct History {
  bool conjunct_consonant = false;  // consonant, then only InCB Extend or Linker (GB9c)
  bool conjunct_linker = false;     // at least one Linker since that consonant
  bool pictograph_zwj = false;      // pictographic Extend* ZWJ (GB11)
  bool pictograph_extend = false;   // pictographic Extend*
  bool odd_regionals = false;       // GB12, GB13

  void Add(uint8_t entry) {
    const uint8_t kind = entry & 31;
    pictograph_zwj = pictograph_extend && kind == kZwj;
    pictograph_extend = kind == kPictographic || (pictograph_extend && (kind == kExtend || kind == kLinker));
    odd_regionals = kind == kRegional && !odd_regionals;
    if (kind == kConsonant) {
      conjunct_consonant = true;
      conjunct_linker = false;
    } else if (kind == kLinker) {
      conjunct_linker = conjunct_consonant;
    } else if ((entry & kConjunctExtend) == 0) {
      conjunct_consonant = conjunct_linker = false;
    }
  }
};

bool IsExtend(uint8_t kind) { return kind == kExtend || kind == kLinker; }

bool Breaks(uint8_t before, uint8_t after, const History& history) {
  if (before == kCr && after == kLf) return false;                                                  // GB3
  if (before == kControl || before == kCr || before == kLf) return true;                            // GB4
  if (after == kControl || after == kCr || after == kLf) return true;                               // GB5
  if (before == kL && (after == kL || after == kV || after == kLv || after == kLvt)) return false;  // GB6
  if ((before == kLv || before == kV) && (after == kV || after == kT)) return false;                // GB7
  if ((before == kLvt || before == kT) && after == kT) return false;                                // GB8
  if (IsExtend(after) || after == kZwj || after == kSpacingMark) return false;                      // GB9, GB9a
  if (before == kPrepend) return false;                                                             // GB9b
  if (history.conjunct_linker && after == kConsonant) return false;                                 // GB9c
  if (history.pictograph_zwj && after == kPictographic) return false;                               // GB11
  return !(history.odd_regionals && after == kRegional);                                            // GB12, GB13
}

}  // namespace

size_t NextGrapheme(std::string_view text, size_t offset) {
  const UnicodeTable& table = UnicodeTable::Get();
  Utf8Char c = DecodeUtf8(text, offset);
  uint8_t entry = table.GraphemeEntry(c.code_point);
  History history;
  history.Add(entry);
  offset += c.bytes;
  while (offset < text.size()) {
    c = DecodeUtf8(text, offset);
    const uint8_t next = table.GraphemeEntry(c.code_point);
    if (Breaks(entry & 31, next & 31, history)) break;
    history.Add(next);
    entry = next;
    offset += c.bytes;
  }
  return offset;
}

}  // namespace nunspark::text
