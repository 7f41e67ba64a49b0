// Unicode normal forms as the reference has them.
#ifndef NUNSPARK_TEXT_TOKENIZER_NORMAL_FORM_H_
#define NUNSPARK_TEXT_TOKENIZER_NORMAL_FORM_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nunspark::text {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Writes the normal form of `text` (valid UTF-8) to `out` and gives true, or gives false when the text is in that form
// already. Characters that came after Unicode 9 neither decompose, reorder nor compose, because the tables of the
// reference end there and its token ids depend on it.
bool Normalize(NormalForm form, std::string_view text, std::string& out);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_NORMAL_FORM_H_
