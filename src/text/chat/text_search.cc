#include "text/chat/text_search.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace nunspark::text::jinja {
namespace {

// Up to here the product of both lengths is no harm.
constexpr size_t kShort = 16;

// Knuth, Morris and Pratt from right to left: `fall[i]` is the length of the longest proper suffix of the i last bytes
// of `wanted` that also ends them - read backwards.
size_t FindLastLong(std::string_view text, std::string_view wanted) {
  const size_t size = wanted.size();
  const auto at = [wanted, size](size_t i) { return wanted[size - 1 - i]; };
  std::vector<uint32_t> fall(size + 1, 0);
  for (size_t i = 1, length = 0; i < size; ++i) {
    while (length > 0 && at(i) != at(length)) length = fall[length];
    if (at(i) == at(length)) ++length;
    fall[i + 1] = static_cast<uint32_t>(length);
  }
  size_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && (matched == size || text[i] != at(matched))) matched = fall[matched];
    if (text[i] == at(matched)) ++matched;
    if (matched == size) return i;
  }
  return std::string_view::npos;
}

}  // namespace

size_t FindFirst(std::string_view text, std::string_view wanted, size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  if (wanted.empty()) return begin;
  // The C library promises no bound, but glibc's memmem and musl's are linear.
  const void* const found = ::memmem(text.data() + begin, text.size() - begin, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view wanted) {
  return wanted.size() <= kShort ? text.rfind(wanted) : FindLastLong(text, wanted);
}

}  // namespace nunspark::text::jinja
