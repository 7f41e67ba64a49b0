#include "formats/gguf_vocab.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "formats/gguf_keys.h"

namespace nunspark {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr int64_t kControl = 3;  // token type

Status ReadTypes(const GgufKeys& keys, std::vector<int32_t>& out) {
  const GgufValue* const value = keys.Find(kTypesKey);
  if (value == nullptr) return Status();
  if (!value->is_array() || value->type() != GgufType::kI32) {
    return keys.Wrong(kTypesKey, "an array of i32", value->TypeName());
  }
  out.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) out.push_back(static_cast<int32_t>(*value->Int(i)));
  return Status();
}

Status ReadScores(const GgufKeys& keys, std::vector<float>& out) {
  const GgufValue* const value = keys.Find(kScoresKey);
  if (value == nullptr) return Status();
  if (!value->is_array() || value->type() != GgufType::kF32) {
    return keys.Wrong(kScoresKey, "an array of f32", value->TypeName());
  }
  out.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) out.push_back(static_cast<float>(*value->Number(i)));
  return Status();
}

Status CheckLength(const GgufKeys& keys, std::string_view key, size_t found, size_t expected) {
  if (found == 0 || found == expected) return Status();
  return keys.Wrong(key, fmt::format("{} items, as many as in {}", expected, kTokensKey), fmt::format("{}", found));
}

// An id outside the vocabulary gives nothing.
Status ReadId(const GgufKeys& keys, std::string_view name, size_t vocab_size, std::optional<int32_t>& out) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const GgufValue* const value = keys.Find(key);
  if (value == nullptr) return Status();
  switch (value->is_array() ? GgufType::kArray : value->type()) {
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray: return keys.Wrong(key, "a token id", value->TypeName());
    default: break;
  }
  const std::optional<int64_t> id = value->Int();
  const int64_t size = std::min<int64_t>(static_cast<int64_t>(vocab_size), std::numeric_limits<int32_t>::max());
  if (id.has_value() && *id >= 0 && *id < size) out = static_cast<int32_t>(*id);
  return Status();
}

// llama.cpp, llama-vocab.cpp: tokens that end generation, and those that separate files in code models.
constexpr std::array<std::string_view, 32> kEndTexts = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

bool EndsText(std::string_view text, const GgufValue* types, size_t id) {
  if (std::find(kEndTexts.begin(), kEndTexts.end(), text) == kEndTexts.end()) return false;
  if (text != "</s>") return true;
  return types != nullptr && types->is_array() && id < types->size() && types->Int(id) == kControl;
}

}  // namespace

Result<GgufVocab> GgufVocabOf(const GgufFile& file) {
  const GgufKeys keys(file);
  GgufVocab vocab;
  ASSIGN_OR_RETURN(vocab.tokens, keys.Texts(kTokensKey));
  const size_t size = vocab.tokens.size();
  if (size == 0) return NotFoundError(fmt::format("{}: key {}: expected tokens, found none", keys.what(), kTokensKey));
  ASSIGN_OR_RETURN(vocab.model, keys.Text("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(vocab.pre, keys.Text("tokenizer.ggml.pre"));
  ASSIGN_OR_RETURN(vocab.model_name, keys.Text("general.name"));
  RETURN_IF_ERROR(ReadScores(keys, vocab.scores));
  RETURN_IF_ERROR(ReadTypes(keys, vocab.token_types));
  ASSIGN_OR_RETURN(vocab.merges, keys.Texts("tokenizer.ggml.merges"));
  RETURN_IF_ERROR(CheckLength(keys, kScoresKey, vocab.scores.size(), size));
  RETURN_IF_ERROR(CheckLength(keys, kTypesKey, vocab.token_types.size(), size));
  RETURN_IF_ERROR(ReadId(keys, "bos", size, vocab.bos_id));
  RETURN_IF_ERROR(ReadId(keys, "eos", size, vocab.eos_id));
  RETURN_IF_ERROR(ReadId(keys, "unknown", size, vocab.unk_id));
  RETURN_IF_ERROR(ReadId(keys, "padding", size, vocab.pad_id));
  ASSIGN_OR_RETURN(vocab.add_bos, keys.Flag("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(vocab.add_eos, keys.Flag("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(vocab.add_space_prefix, keys.Flag("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(vocab.remove_extra_whitespaces, keys.Flag("tokenizer.ggml.remove_extra_whitespaces"));
  ASSIGN_OR_RETURN(vocab.precompiled_charsmap, keys.Bytes("tokenizer.ggml.precompiled_charsmap"));
  ASSIGN_OR_RETURN(vocab.chat_template, keys.Text(kTemplateKey));
  const std::string prefix = fmt::format("{}.", kTemplateKey);
  for (const GgufKey& key : file.keys) {
    if (!key.name.starts_with(prefix)) continue;
    ASSIGN_OR_RETURN(const std::string_view text, keys.Text(key.name));
    vocab.named_chat_templates.emplace_back(std::string_view(key.name).substr(prefix.size()), text);
  }
  return vocab;
}

Result<GgufVocabFile> ReadGgufVocab(const std::string& path) {
  GgufVocabFile result;
  ASSIGN_OR_RETURN(result.file, ReadGguf(path));
  ASSIGN_OR_RETURN(result.vocab, GgufVocabOf(result.file));
  return result;
}

std::vector<int32_t> GgufEndIds(const GgufFile& file) {
  const GgufValue* const tokens = file.Find(kTokensKey);
  if (tokens == nullptr || !tokens->is_array() || tokens->type() != GgufType::kString) return {};
  const GgufValue* const types = file.Find(kTypesKey);
  std::set<int32_t> ids;
  std::set<std::string_view> texts;
  for (size_t id = 0; id < tokens->size(); ++id) {
    if (!EndsText(*tokens->Text(id), types, id)) continue;
    ids.insert(static_cast<int32_t>(id));
    texts.insert(*tokens->Text(id));
  }
  for (const std::string_view name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
    std::optional<int32_t> id;
    // A key of the wrong type is reported where the vocabulary is read.
    if (ReadId(GgufKeys(file), name, tokens->size(), id).ok() && id.has_value()) {
      ids.insert(*id);
      texts.insert(*tokens->Text(static_cast<size_t>(*id)));
    }
  }
  // In these formats "<|end|>" ends a message inside the answer.
  const auto has = [&](std::string_view text) { return texts.contains(text); };
  const bool call = has("<|call|>") || has("<|calls|>");
  if (call && (has("<|return|>") || has("<|flush|>"))) {
    std::erase_if(ids, [&](int32_t id) { return *tokens->Text(static_cast<size_t>(id)) == "<|end|>"; });
  }
  return {ids.begin(), ids.end()};
}

}  // namespace nunspark
