// The template and special tokens that a model folder publishes.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/read_file.h"
#include "text/chat/chat_template.h"

namespace nunspark::text {
namespace {

// Templates are at most tens of KB, configs at most a few MB.
constexpr int64_t kMaxFileBytes = 64 << 20;

// nullopt when there is no such file.
Result<std::optional<std::string>> ReadTextFile(const std::string& path) {
  Result<std::string> text = ReadRegularFile(
      path, {.max_bytes = kMaxFileBytes, .limit_reason = "the most that a chat template or tokenizer config may have"});
  if (text.ok()) return std::optional<std::string>(std::move(text).value());
  if (text.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return text.status();
}

// A null Json when there is no such file.
Result<Json> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, ReadTextFile(path));
  if (!text) return Json();
  ASSIGN_OR_RETURN(Json json, ParseJson(*text, path));
  if (!json.is_object()) return DataLossError(fmt::format("{}: expected an object, found {}", path, json.TypeName()));
  return json;
}

// chat_template as a string or as a list of {name, template}.
Result<std::string> ChooseTemplate(const Json& value, std::string_view name, const std::string& path) {
  if (value.is_string()) {
    if (name.empty() || name == "default") return value.as_string();
    return NotFoundError(fmt::format("{}: has one unnamed chat template, none named '{}'", path, name));
  }
  std::string known;
  auto note = [&known](const std::string& found) { known += (known.empty() ? "" : ", ") + found; };
  const std::string_view wanted = name.empty() ? "default" : name;
  if (value.is_array()) {
    for (const Json& entry : value.as_array()) {
      const Json* entry_name = entry.Find("name");
      const Json* source = entry.Find("template");
      if (entry_name == nullptr || source == nullptr || !entry_name->is_string() || !source->is_string()) {
        return DataLossError(fmt::format("{}: chat_template: expected entries of the form {{name, template}}", path));
      }
      if (entry_name->as_string() == wanted) return source->as_string();
      note(entry_name->as_string());
    }
  } else if (value.is_object()) {
    for (const auto& [entry_name, source] : value.as_object()) {
      if (!source.is_string())
        return DataLossError(fmt::format("{}: chat_template: '{}' is no string", path, entry_name));
      if (entry_name == wanted) return source.as_string();
      note(entry_name);
    }
  } else {
    return DataLossError(
        fmt::format("{}: chat_template: expected a string or a list, found {}", path, value.TypeName()));
  }
  return NotFoundError(fmt::format("{}: no chat template named '{}'; there are: {}", path, wanted, known));
}

}  // namespace

Result<std::string> LoadChatTemplateSource(const std::string& folder, std::string_view name) {
  // Newer folders keep further templates as files of their own.
  if (!name.empty() && name != "default") {
    if (name.find('/') != std::string_view::npos) {
      return InvalidArgumentError(fmt::format("'{}' is no template name: it holds a slash", name));
    }
    ASSIGN_OR_RETURN(std::optional<std::string> named,
                     ReadTextFile(fmt::format("{}/additional_chat_templates/{}.jinja", folder, name)));
    if (named) return *std::move(named);
  } else {
    ASSIGN_OR_RETURN(std::optional<std::string> file, ReadTextFile(folder + "/chat_template.jinja"));
    if (file) return *std::move(file);
  }
  for (const char* file : {"/chat_template.json", "/tokenizer_config.json"}) {
    ASSIGN_OR_RETURN(const Json json, ReadJsonFile(folder + file));
    const Json* value = json.Find("chat_template");
    if (value != nullptr && !value->is_null()) return ChooseTemplate(*value, name, folder + file);
  }
  return NotFoundError(
      fmt::format("{}: no chat template: expected chat_template.jinja, chat_template.json or a "
                  "chat_template in tokenizer_config.json",
                  folder));
}

Result<std::string> ChatTemplateOf(const Json& tokenizer_config, const std::string& where, std::string_view name) {
  const Json* value = tokenizer_config.Find("chat_template");
  if (value != nullptr && !value->is_null()) return ChooseTemplate(*value, name, where);
  return NotFoundError(fmt::format("{}: has no chat template", where));
}

Json SpecialTokensOf(const Json& config) {
  Json tokens{Json::Object()};
  if (!config.is_object()) return tokens;
  for (const auto& [name, value] : config.as_object()) {
    if (!name.ends_with("_token")) continue;
    // A string, or an added token with its text as "content".
    const Json* text = value.is_object() ? value.Find("content") : &value;
    if (text != nullptr && text->is_string()) tokens.Set(name, *text);
  }
  return tokens;
}

Result<Json> LoadSpecialTokens(const std::string& folder) {
  Json tokens{Json::Object()};
  // The config is read last: where both name a token, it counts.
  for (const char* file : {"/special_tokens_map.json", "/tokenizer_config.json"}) {
    ASSIGN_OR_RETURN(const Json json, ReadJsonFile(folder + file));
    const Json found = SpecialTokensOf(json);
    for (const auto& [name, value] : found.as_object()) tokens.Set(name, value);
  }
  return tokens;
}

namespace {

ChatSource SourceOf(Result<std::string> standard, Result<std::string> tool_use, Json special_tokens) {
  ChatSource source;
  source.status = standard.status();
  if (standard.ok()) source.standard = *std::move(standard);
  if (tool_use.ok()) source.tool_use = *std::move(tool_use);
  source.special_tokens = std::move(special_tokens);
  return source;
}

}  // namespace

Result<ChatSource> LoadChatSource(const std::string& folder) {
  ASSIGN_OR_RETURN(Json special_tokens, LoadSpecialTokens(folder));
  return SourceOf(LoadChatTemplateSource(folder), LoadChatTemplateSource(folder, "tool_use"),
                  std::move(special_tokens));
}

ChatSource ChatSourceOf(const Json& tokenizer_config, const std::string& where) {
  return SourceOf(ChatTemplateOf(tokenizer_config, where), ChatTemplateOf(tokenizer_config, where, "tool_use"),
                  SpecialTokensOf(tokenizer_config));
}

}  // namespace nunspark::text
