#include "text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

constexpr uint16_t kNoEntry = UINT16_MAX;
// In the library's table a combination index from here on marks the second character of a composition.
constexpr uint16_t kSecondOfPair = 0x8000;
constexpr int kDecomposedMax = 32;  // no character decomposes into more than 18

bool Composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool IsCompatibility(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }

bool IsHangulSyllable(uint32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }
bool IsJoiningJamo(uint32_t c) { return c >= 0x1161 && c <= 0x11C2; }  // vowels and finals

// Whether a text may be cut before `c`, and `c` alone is its own normal form. May say no where yes is right.
bool IsStable(NormalForm form, uint32_t c) {
  if (c < (form == NormalForm::kNfc ? 0x300u : 0x80u)) return true;
  if (UnicodeTable::Get().AddedAfterUnicode9(c)) return true;
  if (IsHangulSyllable(c)) return Composes(form);
  if (Composes(form) && IsJoiningJamo(c)) return false;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->combining_class != 0) return false;
  if (property->decomp_seqindex != kNoEntry && (property->decomp_type == 0 || IsCompatibility(form))) return false;
  return !Composes(form) || property->comb_index == kNoEntry || property->comb_index < kSecondOfPair;
}

utf8proc_option_t OptionsOf(NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= Composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (IsCompatibility(form)) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

// Marks behind each other in the order of their classes. The library's own way to sort them is quadratic.
void SortMarks(std::vector<utf8proc_int32_t>& buffer, size_t count) {
  const auto class_of = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t at = 0; at < count; ++at) {
    if (class_of(buffer[at]) == 0) continue;
    const size_t begin = at;
    while (at < count && class_of(buffer[at]) != 0) ++at;
    std::stable_sort(buffer.begin() + static_cast<ptrdiff_t>(begin), buffer.begin() + static_cast<ptrdiff_t>(at),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return class_of(a) < class_of(b); });
  }
}

// Appends the normal form of a part without newer characters.
void AppendNormalized(utf8proc_option_t options, std::string_view part, std::vector<utf8proc_int32_t>& buffer,
                      std::string& out) {
  size_t count = 0;
  uint32_t bytes = 0;
  for (size_t at = 0; at < part.size(); at += bytes) {
    const auto c = static_cast<utf8proc_int32_t>(DecodeValidUtf8(part.data() + at, bytes));
    if (buffer.size() < count + kDecomposedMax) buffer.resize(2 * count + 16 * kDecomposedMax);
    int bound_class = 0;
    const utf8proc_ssize_t added =
        utf8proc_decompose_char(c, buffer.data() + count, kDecomposedMax, options, &bound_class);
    CHECK(added >= 0 && added <= kDecomposedMax);
    count += static_cast<size_t>(added);
  }
  SortMarks(buffer, count);
  const utf8proc_ssize_t kept = utf8proc_normalize_utf32(buffer.data(), static_cast<utf8proc_ssize_t>(count), options);
  CHECK(kept >= 0);
  for (utf8proc_ssize_t i = 0; i < kept; ++i) AppendUtf8(static_cast<uint32_t>(buffer[static_cast<size_t>(i)]), out);
}

}  // namespace

bool Normalize(NormalForm form, std::string_view text, std::string& out) {
  const utf8proc_option_t options = OptionsOf(form);
  std::vector<utf8proc_int32_t> buffer;
  bool changed = false;
  size_t copied = 0;      // text before this is in out
  size_t part_begin = 0;  // last stable character
  for (size_t at = 0; at < text.size();) {
    uint32_t bytes = 0;
    uint32_t c = DecodeValidUtf8(text.data() + at, bytes);
    if (IsStable(form, c)) {
      part_begin = at;
      at += bytes;
      continue;
    }
    // An unstable run together with the stable character before it, unless that one takes no part in anything.
    size_t end = at;
    while (end < text.size()) {
      c = DecodeValidUtf8(text.data() + end, bytes);
      if (IsStable(form, c)) break;
      end += bytes;
    }
    if (part_begin < at) {
      uint32_t first_bytes = 0;
      const uint32_t first = DecodeValidUtf8(text.data() + part_begin, first_bytes);
      if (UnicodeTable::Get().AddedAfterUnicode9(first)) part_begin += first_bytes;
    }
    out.append(text, copied, part_begin - copied);
    AppendNormalized(options, text.substr(part_begin, end - part_begin), buffer, out);
    changed = true;
    copied = part_begin = at = end;
  }
  if (!changed) return false;
  out.append(text, copied, text.size() - copied);
  return true;
}

}  // namespace nunspark::text
