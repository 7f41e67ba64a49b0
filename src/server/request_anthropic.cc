// Anthropic's messages, turned into OpenAI's form, which chat templates take.
#include <fmt/format.h>

#include "server/request.h"

namespace nunspark::server {
namespace {

const std::string* TypeOf(const Json& block) {
  const Json* const type = block.Find("type");
  return type != nullptr && type->is_string() ? &type->as_string() : nullptr;
}

// Text of a string, or of blocks that are all text, joined by a space.
Result<std::string> TextOf(const std::string& where, const Json& content) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) return WrongField(where, "a string or a list of blocks", content);
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& block = content.as_array()[i];
    const std::string* const type = TypeOf(block);
    const Json* const its_text = block.Find("text");
    if (type == nullptr || *type != "text" || its_text == nullptr || !its_text->is_string()) {
      return UnsupportedError(fmt::format("{}[{}]: only blocks of type \"text\" are supported here", where, i));
    }
    text += (i > 0 ? " " : "") + its_text->as_string();
  }
  return text;
}

// One message becomes one, or several: results of tools are messages of their own.
Status AddMessage(const std::string& where, const std::string& role, const Json& content, Json::Array& out) {
  if (content.is_string()) {
    out.push_back(Json::Object{{"role", role}, {"content", content.as_string()}});
    return Status();
  }
  if (!content.is_array()) return WrongField(where + ".content", "a string or a list of blocks", content);
  std::string text;
  Json::Array calls;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& block = content.as_array()[i];
    const std::string at = fmt::format("{}.content[{}]", where, i);
    const std::string* const type = TypeOf(block);
    if (type == nullptr) return WrongField(at, "an object with a \"type\"", block);
    if (*type == "text") {
      const Json* const its_text = block.Find("text");
      if (its_text == nullptr || !its_text->is_string()) return InvalidArgumentError(at + " has no \"text\"");
      text += (text.empty() ? "" : "\n") + its_text->as_string();
    } else if (*type == "tool_use") {
      const Json* const name = block.Find("name");
      const Json* const id = block.Find("id");
      const Json* const input = block.Find("input");
      if (name == nullptr || !name->is_string()) return InvalidArgumentError(at + " has no \"name\"");
      calls.push_back(Json::Object{
          {"id", id != nullptr ? *id : Json("")},
          {"type", "function"},
          {"function",
           Json::Object{{"name", *name}, {"arguments", input != nullptr ? *input : Json(Json::Object{})}}}});
    } else if (*type == "tool_result") {
      const Json* const id = block.Find("tool_use_id");
      const Json* const result = block.Find("content");
      std::string result_text;
      if (result != nullptr && !result->is_null()) {
        ASSIGN_OR_RETURN(result_text, TextOf(at + ".content", *result));
      }
      out.push_back(Json::Object{
          {"role", "tool"}, {"tool_call_id", id != nullptr ? *id : Json("")}, {"content", std::move(result_text)}});
    } else if (*type != "thinking" && *type != "redacted_thinking") {
      return UnsupportedError(
          fmt::format("{}: blocks of type \"{}\" are not supported: this server takes text", at, *type));
    }
  }
  if (text.empty() && calls.empty()) return Status();
  Json message(Json::Object{{"role", role}, {"content", text.empty() ? Json() : Json(std::move(text))}});
  if (!calls.empty()) message.Set("tool_calls", std::move(calls));
  out.push_back(std::move(message));
  return Status();
}

Status TakeMessages(const Json& value, TextRequest& request) {
  if (!value.is_array() || value.as_array().empty())
    return WrongField("messages", "a list of messages, at least one", value);
  Json::Array messages;
  // The system text may have come before.
  if (request.messages.is_array()) messages = request.messages.as_array();
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const Json& message = value.as_array()[i];
    const std::string where = fmt::format("messages[{}]", i);
    const Json* const role = message.Find("role");
    const Json* const content = message.Find("content");
    if (role == nullptr || !role->is_string()) return WrongField(where, "an object with a \"role\"", message);
    if (content == nullptr) return InvalidArgumentError(where + " has no \"content\"");
    RETURN_IF_ERROR(AddMessage(where, role->as_string(), *content, messages));
  }
  request.messages = std::move(messages);
  return Status();
}

Status TakeSystem(const Json& value, TextRequest& request) {
  ASSIGN_OR_RETURN(std::string text, TextOf("system", value));
  Json::Array messages{Json::Object{{"role", "system"}, {"content", std::move(text)}}};
  if (request.messages.is_array()) {
    messages.insert(messages.end(), request.messages.as_array().begin(), request.messages.as_array().end());
  }
  request.messages = std::move(messages);
  return Status();
}

Status TakeStream(const Json& value, TextRequest& request) {
  if (!value.is_bool()) return WrongField("stream", "true or false", value);
  request.stream = value.as_bool();
  return Status();
}

Status TakeStops(const Json& value, TextRequest& request) {
  return TakeTextField("stop", value, request.text).status();
}

Status TakeMaxTokens(const Json& value, TextRequest& request) {
  if (value.is_int() && value.as_int() == 0) return Status();
  return TakeTextField("max_tokens", value, request.text).status();
}

Status TakeTools(const Json& value, TextRequest& request) {
  if (!value.is_array()) return WrongField("tools", "a list", value);
  Json::Array tools;
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const Json& tool = value.as_array()[i];
    const std::string* const type = TypeOf(tool);
    if (type != nullptr && *type != "custom") {
      return UnsupportedError(fmt::format("tools[{}]: tools of type \"{}\" are not supported", i, *type));
    }
    const Json* const name = tool.Find("name");
    const Json* const description = tool.Find("description");
    const Json* const schema = tool.Find("input_schema");
    if (name == nullptr || !name->is_string()) return InvalidArgumentError(fmt::format("tools[{}] has no \"name\"", i));
    Json function(Json::Object{{"name", *name}});
    if (description != nullptr) function.Set("description", *description);
    if (schema != nullptr) function.Set("parameters", *schema);
    tools.push_back(Json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  if (!tools.empty()) request.tools = std::move(tools);
  return Status();
}

Status TakeToolChoice(const Json& value, TextRequest& request) {
  const std::string* const type = TypeOf(value);
  const Json* const name = value.Find("name");
  if (type != nullptr && *type == "auto") {
    request.tool_use = ToolUse::kAuto;
  } else if (type != nullptr && *type == "none") {
    request.tool_use = ToolUse::kNone;
  } else if (type != nullptr && *type == "any") {
    request.tool_use = ToolUse::kRequired;
  } else if (type != nullptr && *type == "tool" && name != nullptr && name->is_string()) {
    request.tool_use = ToolUse::kNamed;
    request.tool_name = name->as_string();
  } else {
    return InvalidArgumentError("\"tool_choice\" must have a \"type\": auto, any, none, or tool with a \"name\"");
  }
  return Status();
}

Status TakeThinking(const Json& value, TextRequest& request) {
  const std::string* const type = TypeOf(value);
  if (type == nullptr) return WrongField("thinking", "an object with a \"type\"", value);
  request.thinking = *type != "disabled";
  const Json* const budget = value.Find("budget_tokens");
  if (!*request.thinking || budget == nullptr || budget->is_null()) return Status();
  if (!budget->is_int() || budget->as_int() < 0) {
    return InvalidArgumentError("\"thinking.budget_tokens\" must be a number of tokens");
  }
  request.reasoning_budget = budget->as_int();
  return Status();
}

Status TakeModel(const Json& value, TextRequest&) {
  if (!value.is_string()) return WrongField("model", "a string", value);
  return Status();
}

constexpr Field kMessages[] = {
    {"model", FieldUse::kHonoured, "any name: one model is served", TakeModel},
    {"messages", FieldUse::kHonoured, "blocks of type text, tool_use, tool_result; thinking blocks are left out",
     TakeMessages},
    {"system", FieldUse::kHonoured, "a string, or blocks of type text", TakeSystem},
    {"max_tokens", FieldUse::kHonoured, "", TakeMaxTokens},
    {"stop_sequences", FieldUse::kHonoured, "", TakeStops},
    {"stream", FieldUse::kHonoured, "", TakeStream},
    {"temperature", FieldUse::kHonoured, "", nullptr},
    {"top_p", FieldUse::kHonoured, "", nullptr},
    {"top_k", FieldUse::kHonoured, "", nullptr},
    {"seed", FieldUse::kHonoured, "not Anthropic's", nullptr},
    {"tools", FieldUse::kHonoured, "your own; not those that run at Anthropic", TakeTools},
    {"tool_choice", FieldUse::kHonoured, "auto, any, none, tool", TakeToolChoice},
    {"thinking", FieldUse::kHonoured, "on or off; after budget_tokens it is closed and the answer begins",
     TakeThinking},
    {"metadata", FieldUse::kIgnored, "", nullptr},
    {"service_tier", FieldUse::kIgnored, "", nullptr},
    {"mcp_servers", FieldUse::kRefused, "this server calls no others", nullptr},
    {"container", FieldUse::kRefused, "there are no containers", nullptr},
};

}  // namespace

std::span<const Field> MessagesFields() { return kMessages; }

}  // namespace nunspark::server
