// The readers of tokenizer files. Each takes the content of one file and fills a pipeline.
#ifndef NUNSPARK_TEXT_TOKENIZER_LOAD_H_
#define NUNSPARK_TEXT_TOKENIZER_LOAD_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pipeline.h"

namespace nunspark::text {

// `content` as ReadTextFile gives it; `what` names the file in errors.
// Errors: kDataLoss for a malformed file, kUnsupported for a part that is not known.

// A Hugging Face tokenizer.json. REQUIRES: at least kJsonPadding bytes of capacity behind the content.
inline constexpr size_t kJsonPadding = 64;
Result<std::unique_ptr<PipelineTokenizer>> LoadTokenizerJson(const std::string& content, std::string_view what);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_LOAD_H_
