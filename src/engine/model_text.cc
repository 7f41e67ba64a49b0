#include "engine/model_text.h"

#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "formats/gguf_model.h"
#include "formats/gguf_vocab.h"
#include "text/tokenizer/gguf_vocab.h"
#include "text/tokenizer/text_file.h"

namespace nunspark {
namespace {

text::GgufVocab TextVocab(const GgufVocab& from) {
  text::GgufVocab vocab;
  vocab.model = from.model;
  vocab.pre = from.pre;
  vocab.model_name = from.model_name;
  vocab.tokens = from.tokens;
  vocab.scores = from.scores;
  vocab.token_types = from.token_types;
  vocab.merges = from.merges;
  vocab.charsmap = from.precompiled_charsmap;
  vocab.bos_id = from.bos_id;
  vocab.eos_id = from.eos_id;
  vocab.unknown_id = from.unk_id;
  vocab.padding_id = from.pad_id;
  vocab.add_bos = from.add_bos;
  vocab.add_eos = from.add_eos;
  vocab.add_space_prefix = from.add_space_prefix;
  vocab.remove_extra_whitespaces = from.remove_extra_whitespaces;
  if (!from.chat_template.empty()) vocab.chat_templates.push_back({"default", from.chat_template});
  for (const auto& [name, source] : from.named_chat_templates) vocab.chat_templates.push_back({name, source});
  return vocab;
}

// The GGUF file that `path` is, or that a folder holds; "" when there is none.
Result<std::string> GgufOf(const std::string& path) {
  if (IsGgufName(path)) return path;
  Result<std::string> found = FindGgufModel(path);
  // Of several models none is meant; whoever opens the folder as a model is told so.
  return found.ok() ? found : Result<std::string>(std::string());
}

}  // namespace

Result<std::map<std::string, std::string>> ReadGgufTextFiles(const std::string& path) {
  std::map<std::string, std::string> files;
  const Result<GgufVocabFile> file = ReadGgufVocab(path);
  if (file.status().code() == StatusCode::kNotFound) return files;
  RETURN_IF_ERROR(file.status());
  const text::GgufVocab vocab = TextVocab(file->vocab);
  ASSIGN_OR_RETURN(files["tokenizer.json"], text::GgufTokenizerJson(vocab, path));
  files["tokenizer_config.json"] = WriteJson(text::GgufTokenizerConfig(vocab), 2) + "\n";
  return files;
}

Result<std::unique_ptr<text::Tokenizer>> OpenTokenizer(const std::string& path) {
  if (!text::IsFolder(path) && !text::FileExists(path))
    return NotFoundError(fmt::format("{}: no such file or folder", path));
  if (!IsGgufName(path)) {
    Result<std::unique_ptr<text::Tokenizer>> tokenizer = text::Tokenizer::Load(path);
    if (tokenizer.ok() || tokenizer.status().code() != StatusCode::kNotFound) return tokenizer;
    ASSIGN_OR_RETURN(const std::string gguf, GgufOf(path));
    if (gguf.empty()) return tokenizer.status();
    return OpenTokenizer(gguf);
  }
  ASSIGN_OR_RETURN(const GgufVocabFile file, ReadGgufVocab(path));
  return text::LoadGgufVocab(TextVocab(file.vocab), path);
}

Result<text::ChatSource> OpenChatSource(const std::string& path) {
  if (!IsGgufName(path)) {
    if (!text::IsFolder(path)) return NotFoundError(fmt::format("{}: no such folder", path));
    ASSIGN_OR_RETURN(text::ChatSource source, text::LoadChatSource(path));
    if (source.status.code() != StatusCode::kNotFound) return source;
    ASSIGN_OR_RETURN(const std::string gguf, GgufOf(path));
    if (gguf.empty()) return source;
    ASSIGN_OR_RETURN(text::ChatSource inside, OpenChatSource(gguf));
    for (const auto& [name, value] : source.special_tokens.as_object()) inside.special_tokens.Set(name, value);
    return inside;
  }
  ASSIGN_OR_RETURN(const GgufVocabFile file, ReadGgufVocab(path));
  return text::ChatSourceOf(text::GgufTokenizerConfig(TextVocab(file.vocab)), path);
}

}  // namespace nunspark
