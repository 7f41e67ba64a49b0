#include "base/utf8.h"

#include <algorithm>

namespace nunspark {
namespace {

struct Lead {
  uint32_t length;  // of the whole character; 0 for a byte that starts none
  uint8_t low;      // allowed range of the second byte (Unicode table 3-7)
  uint8_t high;
};

Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Number of bytes from `offset` that form a correct prefix of a character with `lead`, the lead byte included.
uint32_t GoodPrefix(std::string_view text, size_t offset, const Lead& lead) {
  uint32_t good = 1;
  while (good < lead.length && offset + good < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[offset + good]);
    const uint8_t low = good == 1 ? lead.low : 0x80;
    const uint8_t high = good == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++good;
  }
  return good;
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t offset) {
  const uint8_t first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {0xFFFD, 1, false};
  const uint32_t good = GoodPrefix(text, offset, lead);
  if (good < lead.length) return {0xFFFD, good, false};
  uint32_t code_point = first & (0xFFu >> (lead.length + 1));
  for (uint32_t i = 1; i < lead.length; ++i) {
    code_point = code_point << 6 | (static_cast<uint8_t>(text[offset + i]) & 0x3Fu);
  }
  return {code_point, lead.length, true};
}

void AppendUtf8(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!c.valid) return false;
    i += c.bytes;
  }
  return true;
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (c.valid) {
      out.append(text, i, c.bytes);
    } else {
      AppendUtf8(0xFFFD, out);
    }
    i += c.bytes;
  }
  return out;
}

size_t IncompleteUtf8Suffix(std::string_view text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t length = 1; length <= longest; ++length) {
    const size_t offset = text.size() - length;
    const Lead lead = LeadOf(static_cast<uint8_t>(text[offset]));
    if (lead.length == 0) continue;
    return lead.length > length && GoodPrefix(text, offset, lead) == length ? length : 0;
  }
  return 0;
}

}  // namespace nunspark
