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

// What tokenizer_config.json adds to files that have no added tokens of their own.
struct ConfigToken {
  TokenId id;
  AddedToken token;
};

// A SentencePiece model (BPE or Unigram). `tokens` as the folder's config has them; without a config the model's
// control pieces are not looked for in the text.
Result<std::unique_ptr<PipelineTokenizer>> LoadSentencePiece(std::string_view content, std::string_view what,
                                                             const std::vector<ConfigToken>& tokens);

// A tiktoken rank file: lines of base64 and rank. The pattern is not part of the file: `pattern`, or where that is
// empty the one that goes with the number of ranks (GPT-2, cl100k, Llama 3, Qwen, Kimi, o200k).
Result<std::unique_ptr<PipelineTokenizer>> LoadTiktoken(std::string_view content, std::string_view what,
                                                        const std::vector<ConfigToken>& tokens,
                                                        std::string_view pattern);

// Whether the content looks like one of the two.
bool LooksLikeTiktoken(std::string_view content);
bool LooksLikeSentencePiece(std::string_view content);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_LOAD_H_
