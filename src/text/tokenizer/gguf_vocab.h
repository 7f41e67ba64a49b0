// The vocabulary that a GGUF file carries, as a tokenizer.
//
// A GGUF file has the tokens, merges or scores of a tokenizer, but of the way texts are cut only a name
// ("tokenizer.ggml.pre"). The rest is put together here: as the tokenizer.json that the family publishes has it, where
// that is known, so that ids are those of the Hugging Face `tokenizers` library; else as llama.cpp has it. What the
// format has lost (lstrip and rstrip of added tokens, which of the control tokens are special) stays lost.
#ifndef NUNSPARK_TEXT_TOKENIZER_GGUF_VOCAB_H_
#define NUNSPARK_TEXT_TOKENIZER_GGUF_VOCAB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "nunspark/status.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

// The values of the "tokenizer." keys, names as there. Strings are borrowed. Absent: empty or nullopt.
struct GgufVocab {
  enum class TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct NamedTemplate {
    std::string_view name;  // "default" for tokenizer.chat_template
    std::string_view source;
  };

  std::string_view model;       // tokenizer.ggml.model: gpt2, llama, t5, gemma4
  std::string_view pre;         // tokenizer.ggml.pre
  std::string_view model_name;  // general.name; the only trace of Phi-3's tokens that swallow white space
  std::vector<std::string_view> tokens;
  std::vector<float> scores;         // one for each token, or none
  std::vector<int32_t> token_types;  // TokenType; one for each token, or none: all normal
  std::vector<std::string_view> merges;
  std::string_view charsmap;  // tokenizer.ggml.precompiled_charsmap
  std::optional<int64_t> bos_id;
  std::optional<int64_t> eos_id;
  std::optional<int64_t> unknown_id;
  std::optional<int64_t> padding_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::vector<NamedTemplate> chat_templates;
};

// `what` names the file in errors.
// Errors: kDataLoss for a vocabulary that contradicts itself; kUnsupported for a model or pre that is not known, with
// the names that are.
Result<std::unique_ptr<Tokenizer>> LoadGgufVocab(const GgufVocab& vocab, std::string_view what);

// The same tokenizer as the text of a tokenizer.json: LoadGgufVocab loads exactly this, so a folder with such a file
// gives the same ids.
Result<std::string> GgufTokenizerJson(const GgufVocab& vocab, std::string_view what);

// What belongs in a tokenizer_config.json beside it: bos_token and the like as far as the file has them, and the chat
// templates. An object; empty when there is nothing.
Json GgufTokenizerConfig(const GgufVocab& vocab);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_GGUF_VOCAB_H_
