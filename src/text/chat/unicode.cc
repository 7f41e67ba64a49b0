#include "text/chat/unicode.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace nunspark::text::jinja {
namespace {

struct CodePointRange {
  uint32_t first, last;
};

// c in first..last with (c - first) % step == 0 maps to c + delta.
struct CaseRun {
  uint32_t first, last;
  uint32_t step;
  int32_t delta;
};

struct LongCase {
  uint32_t from;
  uint32_t to[3];  // zero-padded
};

#include "text/chat/unicode_tables.inc"

template <size_t N>
bool In(const CodePointRange (&table)[N], uint32_t c) {
  auto it = std::upper_bound(std::begin(table), std::end(table), c,
                             [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return it != std::begin(table) && c <= std::prev(it)->last;
}

template <size_t N, size_t M>
void Map(const CaseRun (&runs)[N], const LongCase (&long_cases)[M], uint32_t c, std::string& out) {
  auto special = std::lower_bound(std::begin(long_cases), std::end(long_cases), c,
                                  [](const LongCase& entry, uint32_t value) { return entry.from < value; });
  if (special != std::end(long_cases) && special->from == c) {
    for (uint32_t to : special->to) {
      if (to != 0) AppendCodePoint(to, out);
    }
    return;
  }
  auto it = std::upper_bound(std::begin(runs), std::end(runs), c,
                             [](uint32_t value, const CaseRun& run) { return value < run.first; });
  // Runs with a step may interleave: look at the few that begin before c.
  for (int back = 0; back < 2 && it != std::begin(runs); ++back) {
    --it;
    if (c <= it->last && (c - it->first) % it->step == 0) {
      AppendCodePoint(c + static_cast<uint32_t>(it->delta), out);
      return;
    }
  }
  AppendCodePoint(c, out);
}

void AppendUpper(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else {
    Map(kUpperRuns, kUpperLong, c, out);
  }
}

void AppendTitle(uint32_t c, std::string& out) {
  if (c < 0x80) {
    AppendUpper(c, out);
  } else {
    Map(kTitleRuns, kTitleLong, c, out);
  }
}

bool IsCased(uint32_t c) { return IsLower(c) || IsUpper(c) || IsTitle(c); }

// Greek capital sigma is a final sigma after a letter and not before one; case-ignorable characters do not count.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool letter_before = false;
  for (size_t i = begin; i > 0;) {
    const uint32_t c = PreviousCodePoint(text, &i);
    if (In(kCaseIgnorable, c)) continue;
    letter_before = IsCased(c);
    break;
  }
  if (!letter_before) return false;
  for (size_t i = end; i < text.size();) {
    const uint32_t c = NextCodePoint(text, &i);
    if (In(kCaseIgnorable, c)) continue;
    return !IsCased(c);
  }
  return true;
}

// The character of `text` at [begin, end).
void AppendLower(std::string_view text, uint32_t c, size_t begin, size_t end, std::string& out) {
  constexpr uint32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == kCapitalSigma) {
    AppendCodePoint(IsFinalSigma(text, begin, end) ? kFinalSigma : kSmallSigma, out);
  } else {
    Map(kLowerRuns, kLowerLong, c, out);
  }
}

template <typename Each>
std::string MapEach(std::string_view text, Each each) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = NextCodePoint(text, &i);
    each(c, begin, i, out);
  }
  return out;
}

bool IsSurrogateBytes(std::string_view text, size_t i) {
  return i + 2 < text.size() && static_cast<unsigned char>(text[i]) == 0xED &&
         (static_cast<unsigned char>(text[i + 1]) & 0xE0) == 0xA0 &&
         (static_cast<unsigned char>(text[i + 2]) & 0xC0) == 0x80;
}

}  // namespace

uint32_t NextCodePoint(std::string_view text, size_t* offset) {
  const auto lead = static_cast<unsigned char>(text[*offset]);
  if (lead < 0x80) {
    ++*offset;
    return lead;
  }
  if (IsSurrogateBytes(text, *offset)) {
    const uint32_t c = 0xD000u | (static_cast<unsigned char>(text[*offset + 1]) & 0x3Fu) << 6 |
                       (static_cast<unsigned char>(text[*offset + 2]) & 0x3Fu);
    *offset += 3;
    return c;
  }
  const Utf8Char decoded = DecodeUtf8(text, *offset);
  *offset += decoded.bytes;
  return decoded.code_point;
}

uint32_t PreviousCodePoint(std::string_view text, size_t* end) {
  size_t begin = *end - 1;
  while (begin > 0 && *end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  *end = begin;
  return NextCodePoint(text, &begin);
}

void AppendCodePoint(uint32_t code_point, std::string& out) {
  if (code_point >= 0xD800 && code_point < 0xE000) {
    out.push_back(static_cast<char>(0xED));
    out.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    return;
  }
  AppendUtf8(code_point, out);
}

std::string ToValidText(std::string_view text) {
  if (IsValidUtf8(text)) return std::string(text);
  std::string out;
  for (size_t i = 0; i < text.size();) AppendCodePoint(NextCodePoint(text, &i), out);
  return out;
}

bool HasSurrogates(std::string_view text) {
  for (size_t i = text.find('\xED'); i != std::string_view::npos; i = text.find('\xED', i + 1)) {
    if (IsSurrogateBytes(text, i)) return true;
  }
  return false;
}

size_t ByteOffset(std::string_view text, int64_t code_points) {
  size_t offset = 0;
  for (; code_points > 0 && offset < text.size(); --code_points) {
    ++offset;
    while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) ++offset;
  }
  return offset;
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) { return c < 0x80 ? c >= 0x20 && c < 0x7F : In(kPrintable, c); }
bool IsAlpha(uint32_t c) { return c < 0x80 ? (c | 32) >= 'a' && (c | 32) <= 'z' : In(kAlpha, c); }
bool IsDecimal(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : In(kDecimal, c); }
bool IsDigit(uint32_t c) { return IsDecimal(c) || In(kDigit, c); }
bool IsNumeric(uint32_t c) { return IsDigit(c) || In(kNumeric, c); }
bool IsLower(uint32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : In(kLower, c); }
bool IsUpper(uint32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : In(kUpper, c); }
bool IsTitle(uint32_t c) { return c >= 0x80 && In(kTitle, c); }
bool IsIdentifierStart(uint32_t c) { return In(kIdentifierStart, c); }
bool IsIdentifierPart(uint32_t c) { return In(kIdentifierStart, c) || In(kIdentifierExtra, c); }

int DecimalValue(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  if (!IsDecimal(c)) return -1;
  // Decimal digits stand in runs of ten from zero to nine; some runs touch.
  uint32_t first = c;
  while (c - first < 64 && IsDecimal(first - 1)) --first;
  // Mathematical digits (five styles) are the only run whose start is not ten apart from its neighbours' block.
  return static_cast<int>((c - first) % 10);
}

std::string Upper(std::string_view text) {
  return MapEach(text, [](uint32_t c, size_t, size_t, std::string& out) { AppendUpper(c, out); });
}

std::string Lower(std::string_view text) {
  return MapEach(
      text, [text](uint32_t c, size_t begin, size_t end, std::string& out) { AppendLower(text, c, begin, end, out); });
}

std::string CaseFold(std::string_view text) {
  return MapEach(text, [](uint32_t c, size_t, size_t, std::string& out) { Map(kFoldRuns, kFoldLong, c, out); });
}

std::string Title(std::string_view text) {
  bool after_letter = false;
  return MapEach(text, [text, &after_letter](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (after_letter) {
      AppendLower(text, c, begin, end, out);
    } else {
      AppendTitle(c, out);
    }
    after_letter = IsCased(c);
  });
}

std::string Capitalize(std::string_view text) {
  return MapEach(text, [text](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (begin == 0) {
      AppendTitle(c, out);
    } else {
      AppendLower(text, c, begin, end, out);
    }
  });
}

std::string SwapCase(std::string_view text) {
  return MapEach(text, [text](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (IsUpper(c)) {
      AppendLower(text, c, begin, end, out);
    } else if (IsLower(c)) {
      AppendUpper(c, out);
    } else {
      AppendCodePoint(c, out);
    }
  });
}

}  // namespace nunspark::text::jinja
