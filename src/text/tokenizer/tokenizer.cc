#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/json_section.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/text_file.h"

namespace nunspark::text {
namespace {

Result<std::unique_ptr<PipelineTokenizer>> LoadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kJsonPadding));
  if (content.starts_with("version https://git-lfs")) {
    return DataLossError(fmt::format("{}: expected a tokenizer, found a Git LFS pointer; fetch the real file", path));
  }
  const size_t start = content.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && content[start] == '{') return LoadTokenizerJson(content, path);
  return UnsupportedError(fmt::format("{}: expected a tokenizer.json, found another kind of file", path));
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
  if (type != "LlamaTokenizer" && type != "LlamaTokenizerFast") return Status();
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

Result<std::unique_ptr<PipelineTokenizer>> LoadFolder(const std::string& folder) {
  Json config(Json::Object{});
  const std::string config_path = folder + "/tokenizer_config.json";
  if (FileExists(config_path)) {
    ASSIGN_OR_RETURN(const std::string content, ReadTextFile(config_path));
    ASSIGN_OR_RETURN(config, ParseJson(content, config_path));
  }
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (!FileExists(path)) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, LoadFile(path));
    RETURN_IF_ERROR(ApplyLlamaRule(config, config_path, *tokenizer));
    return tokenizer;
  }
  return NotFoundError(fmt::format("{}: expected a tokenizer.json in the folder, found none", folder));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, IsFolder(path) ? LoadFolder(path) : LoadFile(path));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace nunspark::text
