// The tokenizer inside a GGUF file, and the tokens that end a text.
#ifndef NUNSPARK_FORMATS_GGUF_VOCAB_H_
#define NUNSPARK_FORMATS_GGUF_VOCAB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "nunspark/status.h"

namespace nunspark {

// What tokenizer.* says, as it is; nothing in it is interpreted. Texts are borrowed from the file's keys.
struct GgufVocab {
  std::string_view model;                // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
  std::string_view pre;                  // tokenizer.ggml.pre, how texts are cut: "qwen2"; may be empty
  std::string_view model_name;           // general.name; may be empty
  std::vector<std::string_view> tokens;  // by id
  std::vector<float> scores;             // by id, or empty
  // By id, or empty. 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
  std::vector<int32_t> token_types;
  std::vector<std::string_view> merges;  // "left right", best first; or empty
  // Ids outside the vocabulary count as absent, as in llama.cpp: writers put -1 there.
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unk_id;
  std::optional<int32_t> pad_id;
  std::optional<bool> add_bos;  // absent: what `model` does by itself
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::string_view precompiled_charsmap;  // of SentencePiece's normaliser, or empty
  std::string_view chat_template;         // or empty
  std::vector<std::pair<std::string_view, std::string_view>> named_chat_templates;  // name, template: "tool_use"
};

// A vocabulary with the file that its texts belong to. Move-only.
struct GgufVocabFile {
  GgufVocabFile() = default;
  GgufVocabFile(GgufVocabFile&&) noexcept = default;
  GgufVocabFile& operator=(GgufVocabFile&&) noexcept = default;

  GgufFile file;
  GgufVocab vocab;
};

// Reads the vocabulary of a model's first (or only) file.
// Errors: as ReadGguf; kNotFound when the file has no tokens; kDataLoss for a key of the wrong type or lists of
// different lengths (file, key, expected, found).
Result<GgufVocabFile> ReadGgufVocab(const std::string& path);

// The same for a file that was read already and outlives the result.
Result<GgufVocab> GgufVocabOf(const GgufFile& file);

// Ids that end a text, llama.cpp's rule (llama-vocab.cpp, special_eog_ids): eos, eot and eom of the metadata, and
// tokens known by their text ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", ...). "</s>" counts only as a control token:
// in vocabularies with HTML it is a word. Ascending, without repetitions. Empty for a file without tokens.
std::vector<int32_t> GgufEndIds(const GgufFile& file);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_VOCAB_H_
