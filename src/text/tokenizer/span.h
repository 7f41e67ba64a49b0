// Pieces of a text as offsets, shared by the steps that cut it.
#ifndef NUNSPARK_TEXT_TOKENIZER_SPAN_H_
#define NUNSPARK_TEXT_TOKENIZER_SPAN_H_

#include <cstdint>

namespace nunspark::text {

// Half-open range of bytes. 32 bits are enough: longer texts are refused (kTextBytesMax).
struct Span {
  uint32_t begin;
  uint32_t end;

  friend bool operator==(const Span&, const Span&) = default;
};

inline constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_SPAN_H_
