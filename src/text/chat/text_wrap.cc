// textwrap.wrap: words to lines.
#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

using Text32 = std::u32string;
using View32 = std::u32string_view;

bool IsBlank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsLetter(char32_t c) { return IsWord(c) && !IsDecimal(c); }
bool IsWordPunctuation(char32_t c) { return IsWord(c) || View32(U"!\"'&.,?").find(c) != View32::npos; }

// Splits a line into white space, words and the parts of words that may be separated: after hyphens between letters and
// around dashes of two or more.
class ChunkReader {
 public:
  ChunkReader(const Text32& text, bool break_on_hyphens) : text_(text), hyphens_(break_on_hyphens) {}

  // Views of the text.
  std::vector<View32> Read() {
    std::vector<View32> chunks;
    for (size_t i = 0; i < text_.size();) {
      const size_t end = ChunkEnd(i);
      chunks.push_back(View32(text_).substr(i, end - i));
      i = end;
    }
    return chunks;
  }

 private:
  bool Letter(size_t i) const { return i < text_.size() && IsLetter(text_[i]); }
  // A dash of two hyphens or more at i, between word characters.
  size_t DashEnd(size_t i) const {
    if (i == 0 || !IsWordPunctuation(text_[i - 1])) return i;
    size_t end = i;
    while (end < text_.size() && text_[end] == '-') ++end;
    return end - i >= 2 && end < text_.size() && IsWord(text_[end]) ? end : i;
  }
  bool HyphenBreak(size_t i) const {  // text_[i] is a hyphen: may the line end behind it?
    if (text_[i] != '-') return false;
    const bool two_letters = i >= 2 && Letter(i - 1) && Letter(i - 2);
    const bool letter_hyphen_letter = i >= 3 && Letter(i - 1) && text_[i - 2] == '-' && Letter(i - 3);
    if (!two_letters && !letter_hyphen_letter) return false;
    if (!Letter(i + 1)) return false;
    return Letter(i + 2) || (i + 2 < text_.size() && text_[i + 2] == '-' && Letter(i + 3));
  }
  size_t ChunkEnd(size_t begin) const {
    size_t i = begin;
    if (IsBlank(text_[i])) {
      while (i < text_.size() && IsBlank(text_[i])) ++i;
      return i;
    }
    if (!hyphens_) {
      while (i < text_.size() && !IsBlank(text_[i])) ++i;
      return i;
    }
    if (const size_t dash = DashEnd(i); dash != i) return dash;
    for (++i; i < text_.size(); ++i) {
      if (HyphenBreak(i)) return i + 1;
      if (IsBlank(text_[i])) return i;
      if (DashEnd(i) != i) return i;
    }
    return i;
  }

  const Text32& text_;
  const bool hyphens_;
};

bool AllBlank(View32 text) {
  return std::all_of(text.begin(), text.end(), [](char32_t c) { return IsSpace(c); });
}

size_t Total(const std::vector<View32>& chunks) {
  size_t total = 0;
  for (const View32 chunk : chunks) total += chunk.size();
  return total;
}

}  // namespace

std::vector<std::string> WrapText(std::string_view text, const WrapStyle& style) {
  Text32 characters;
  for (size_t i = 0; i < text.size();) characters.push_back(NextCodePoint(text, &i));
  std::vector<View32> chunks = ChunkReader(characters, style.break_on_hyphens).Read();
  std::reverse(chunks.begin(), chunks.end());
  const auto width = static_cast<size_t>(style.width);
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<View32> line;
    size_t length = 0;
    if (!lines.empty() && AllBlank(chunks.back())) chunks.pop_back();
    while (!chunks.empty() && length + chunks.back().size() <= width) {
      length += chunks.back().size();
      line.push_back(chunks.back());
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > width) {
      View32& chunk = chunks.back();
      const size_t space = width - length;
      if (style.break_long_words) {
        size_t end = space;
        if (style.break_on_hyphens && chunk.size() > space) {
          // Behind the last hyphen that fits, when something but hyphens stands before it.
          const size_t hyphen = space == 0 ? View32::npos : chunk.rfind(U'-', space - 1);
          if (hyphen != View32::npos && hyphen > 0 && chunk.substr(0, hyphen).find_first_not_of(U'-') != View32::npos) {
            end = hyphen + 1;
          }
        }
        line.push_back(chunk.substr(0, end));
        chunk = chunk.substr(end);
      } else if (line.empty()) {
        line.push_back(chunk);
        chunks.pop_back();
      }
      length = Total(line);
    }
    if (!line.empty() && AllBlank(line.back())) line.pop_back();
    if (line.empty()) continue;
    std::string joined;
    for (const View32 part : line) {
      for (char32_t c : part) AppendCodePoint(c, joined);
    }
    lines.push_back(std::move(joined));
  }
  return lines;
}

}  // namespace nunspark::text::jinja
