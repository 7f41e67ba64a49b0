// Base64 as tokenizer files hold it (standard alphabet, padded).
#ifndef NUNSPARK_TEXT_TOKENIZER_BASE64_H_
#define NUNSPARK_TEXT_TOKENIZER_BASE64_H_

#include <optional>
#include <string>
#include <string_view>

namespace nunspark::text {

// The decoded bytes; nothing when `text` is not base64.
std::optional<std::string> DecodeBase64(std::string_view text);

std::string EncodeBase64(std::string_view bytes);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_BASE64_H_
