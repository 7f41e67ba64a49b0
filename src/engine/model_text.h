// Tokenizer, chat template and special tokens of a model: from the files of its folder, or from inside a GGUF file.
#ifndef NUNSPARK_ENGINE_MODEL_TEXT_H_
#define NUNSPARK_ENGINE_MODEL_TEXT_H_

#include <map>
#include <memory>
#include <string>

#include "nunspark/status.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark {

// What a GGUF file says, as the files that a model folder would have, name -> content: tokenizer.json, and special
// tokens and chat templates in tokenizer_config.json. Exact: both load to the same ids and templates (text/tokenizer/
// gguf_vocab.h). Packs of GGUF models hold these (PackOptions::generated_files). Empty for a model without a
// vocabulary, which takes token ids. `path`: the file that holds the metadata, the first of a split model. Errors: as
// ReadGgufVocab and text::GgufTokenizerJson.
Result<std::map<std::string, std::string>> ReadGgufTextFiles(const std::string& path);

// Everything below takes a folder or a path that ends in ".gguf". A file speaks for itself, whatever lies beside it; in
// a folder, files of its own come before a GGUF model's keys.

// Also takes a single tokenizer file, as text::Tokenizer::Load. Errors: as that and ReadGgufVocab; kNotFound when
// there is none.
Result<std::unique_ptr<text::Tokenizer>> OpenTokenizer(const std::string& path);

// Errors: kNotFound for a path that is not there; kDataLoss for a malformed file.
Result<text::ChatSource> OpenChatSource(const std::string& path);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_MODEL_TEXT_H_
