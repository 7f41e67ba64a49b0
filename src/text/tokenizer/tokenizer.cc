#include "text/tokenizer/tokenizer.h"

#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/json_section.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/text_file.h"

namespace nunspark::text {
namespace {

constexpr size_t kConfigTokensMax = 1 << 20;

Result<std::unique_ptr<PipelineTokenizer>> LoadFile(const std::string& path, const std::vector<ConfigToken>& tokens) {
  ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, {.padding = kJsonPadding}));
  if (content.starts_with("version https://git-lfs")) {
    return DataLossError(fmt::format("{}: expected a tokenizer, found a Git LFS pointer; fetch the real file", path));
  }
  const size_t start = content.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && content[start] == '{') return LoadTokenizerJson(content, path);
  if (LooksLikeTiktoken(content)) return LoadTiktoken(content, path, tokens, "");
  if (LooksLikeSentencePiece(content)) return LoadSentencePiece(content, path, tokens);
  return DataLossError(
      fmt::format("{}: expected a tokenizer.json, a SentencePiece model or tiktoken ranks, found another "
                  "kind of file",
                  path));
}

// A token of tokenizer_config.json: its text or an object with it.
std::string TokenOf(const Json& config, std::string_view key) {
  const Json* token = config.Find(key);
  if (token != nullptr && token->is_object()) token = token->Find("content");
  return token != nullptr && token->is_string() ? token->as_string() : std::string();
}

// LlamaTokenizer and its descendants take the post-processor from two flags and ignore the one of tokenizer.json.
Status ApplyLlamaRule(const Json& config, const std::string& where, PipelineTokenizer& tokenizer) {
  const std::string type = TokenOf(config, "tokenizer_class");
  // InternLM3's class follows the same rule.
  if (type != "LlamaTokenizer" && type != "LlamaTokenizerFast" && type != "InternLM3Tokenizer") return Status();
  const JsonSection section(config, where);
  ASSIGN_OR_RETURN(const bool add_bos, section.BoolOr("add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, section.BoolOr("add_eos_token", false));
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  const std::optional<TokenId> bos = tokenizer.FindToken(TokenOf(config, "bos_token"));
  const std::optional<TokenId> eos = tokenizer.FindToken(TokenOf(config, "eos_token"));
  if ((add_bos && !bos.has_value()) || (add_eos && !eos.has_value())) return Status();
  if (add_bos) before.push_back(*bos);
  if (add_eos) after.push_back(*eos);
  tokenizer.set_post_processor(PostProcessor::Surround(std::move(before), std::move(after)));
  return Status();
}

// "added_tokens_decoder": {"<id>": {"content": ...}}.
Result<std::vector<ConfigToken>> ConfigTokens(const Json& config, const std::string& where) {
  std::vector<ConfigToken> tokens;
  const std::optional<JsonSection> decoder = JsonSection(config, where).Member("added_tokens_decoder");
  if (!decoder.has_value()) return tokens;
  if (!decoder->value().is_object()) return decoder->Mismatch("object");
  if (decoder->value().as_object().size() > kConfigTokensMax) return decoder->Malformed("too many tokens");
  for (const auto& [id, value] : decoder->value().as_object()) {
    const JsonSection section(value, fmt::format("{}.{}", decoder->where(), id));
    ConfigToken token;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token.id);
    if (error != std::errc() || end != id.data() + id.size() || token.id < 0 || token.id > kVocabIdMax) {
      return section.Malformed(fmt::format("expected a token id from 0 to {}", kVocabIdMax));
    }
    ASSIGN_OR_RETURN(token.token.content, section.String("content"));
    if (token.token.content.empty()) continue;
    ASSIGN_OR_RETURN(token.token.special, section.BoolOr("special", false));
    ASSIGN_OR_RETURN(token.token.single_word, section.BoolOr("single_word", false));
    ASSIGN_OR_RETURN(token.token.lstrip, section.BoolOr("lstrip", false));
    ASSIGN_OR_RETURN(token.token.rstrip, section.BoolOr("rstrip", false));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The tokenizer file of a folder: the first that is there, else the only one that ends in .tiktoken.
std::optional<std::string> FindTokenizerFile(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz", "tokenizer.model", "tiktoken.model"}) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (FileExists(path)) return path;
  }
  std::error_code error;
  std::optional<std::string> found;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".tiktoken") continue;
    if (found.has_value()) return std::nullopt;
    found = entry->path().string();
  }
  return found;
}

Result<std::unique_ptr<PipelineTokenizer>> LoadFolder(const std::string& folder) {
  Json config(Json::Object{});
  const std::string config_path = folder + "/tokenizer_config.json";
  if (FileExists(config_path)) {
    ASSIGN_OR_RETURN(const std::string content, ReadTextFile(config_path));
    ASSIGN_OR_RETURN(config, ParseJson(content, config_path));
  }
  const std::optional<std::string> path = FindTokenizerFile(folder);
  if (!path.has_value()) {
    return NotFoundError(
        fmt::format("{}: expected a tokenizer.json, tokenizer.model or one .tiktoken file in the folder, "
                    "found none",
                    folder));
  }
  ASSIGN_OR_RETURN(const std::vector<ConfigToken> tokens, ConfigTokens(config, config_path));
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, LoadFile(*path, tokens));
  RETURN_IF_ERROR(ApplyLlamaRule(config, config_path, *tokenizer));
  return tokenizer;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer,
                   IsFolder(path) ? LoadFolder(path) : LoadFile(path, {}));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace nunspark::text
