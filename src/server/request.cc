#include "server/request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace nunspark::server {
namespace {

constexpr int64_t kMostChoices = 64;

// Values of a document take far more memory than the comma or bracket that can stand for one.
constexpr int64_t kMostValues = 1 << 19;

// No fewer than there are, if it is JSON.
int64_t CountValues(std::string_view text) {
  int64_t count = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (!in_string) count += text[i] == ',' || text[i] == '[' || text[i] == '{' ? 1 : 0;
  }
  return count;
}

Result<bool> BoolOf(std::string_view field, const Json& value) {
  if (value.is_bool()) return value.as_bool();
  return WrongField(field, "true or false", value);
}

Status RefusePart(const std::string& where, std::string_view type) {
  return UnsupportedError(
      fmt::format("{}: parts of type \"{}\" are not supported: this server takes text", where, type));
}

// A string, or a list of parts of which all are text. null: no content.
Result<Json> ContentOf(const std::string& where, const Json& content) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array()) return WrongField(where, "a string or a list of parts", content);
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& part = content.as_array()[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    const Json* const type = part.Find("type");
    if (type == nullptr || !type->is_string()) return WrongField(at, "an object with a \"type\"", part);
    if (type->as_string() != "text" && type->as_string() != "refusal") return RefusePart(at, type->as_string());
    const Json* const its_text = part.Find(type->as_string());
    if (its_text == nullptr || !its_text->is_string()) {
      return InvalidArgumentError(fmt::format("{}: \"{}\" must be a string", at, type->as_string()));
    }
    text += its_text->as_string();
  }
  return Json(std::move(text));
}

// Templates want the arguments of a call as an object; clients send them as text.
void ParseArguments(Json& message) {
  const Json* const calls = message.Find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  Json::Array parsed = calls->as_array();
  for (Json& call : parsed) {
    const Json* const function = call.Find("function");
    const Json* const arguments = function != nullptr ? function->Find("arguments") : nullptr;
    if (arguments == nullptr || !arguments->is_string()) continue;
    Result<Json> object = ParseJson(arguments->as_string(), "arguments");
    if (!object.ok()) continue;
    Json changed = *function;
    changed.Set("arguments", std::move(object).value());
    call.Set("function", std::move(changed));
  }
  message.Set("tool_calls", std::move(parsed));
}

Status TakeMessages(const Json& value, TextRequest& request) {
  if (!value.is_array() || value.as_array().empty())
    return WrongField("messages", "a list of messages, at least one", value);
  Json::Array messages;
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    Json message = value.as_array()[i];
    const Json* const role = message.Find("role");
    if (role == nullptr || !role->is_string()) return WrongField(where, "an object with a \"role\"", message);
    if (role->as_string() == "developer") message.Set("role", "system");
    if (const Json* const content = message.Find("content")) {
      ASSIGN_OR_RETURN(Json text, ContentOf(where + ".content", *content));
      message.Set("content", std::move(text));
    } else if (message.Find("tool_calls") == nullptr) {
      return InvalidArgumentError(fmt::format("{} has no \"content\"", where));
    }
    ParseArguments(message);
    messages.push_back(std::move(message));
  }
  request.messages = std::move(messages);
  return Status();
}

Status TakeModel(const Json& value, TextRequest& request) {
  if (!value.is_string()) return WrongField("model", "a string", value);
  request.model = value.as_string();
  return Status();
}

Status TakeStream(const Json& value, TextRequest& request) {
  ASSIGN_OR_RETURN(request.stream, BoolOf("stream", value));
  return Status();
}

Status TakeStreamOptions(const Json& value, TextRequest& request) {
  if (!value.is_object()) return WrongField("stream_options", "an object", value);
  if (const Json* const usage = value.Find("include_usage"); usage != nullptr && !usage->is_null()) {
    ASSIGN_OR_RETURN(request.include_usage, BoolOf("stream_options.include_usage", *usage));
  }
  return Status();
}

// Missing, null and 0 are the same: as many as the server gives by default.
Status TakeMaxTokens(const Json& value, TextRequest& request) {
  if (value.is_int() && value.as_int() == 0) return Status();
  const Result<bool> taken = TakeTextField("max_tokens", value, request.text);
  return taken.status();
}

Status TakeChoices(const Json& value, TextRequest& request) {
  if (!value.is_int()) return WrongField("n", "an integer", value);
  if (value.as_int() < 1 || value.as_int() > kMostChoices) {
    return InvalidArgumentError(fmt::format("\"n\" must be from 1 to {}, found {}", kMostChoices, value.as_int()));
  }
  request.choices = static_cast<int32_t>(value.as_int());
  return Status();
}

// Of chats: logprobs says whether, top_logprobs how many; whichever comes first.
void CombineLogprobs(TextRequest& request) {
  const bool wanted = request.logprobs.value_or(request.top_logprobs > 0);
  request.text.generate.logprobs = wanted ? request.top_logprobs : -1;
}

Status TakeLogprobs(const Json& value, TextRequest& request) {
  ASSIGN_OR_RETURN(request.logprobs, BoolOf("logprobs", value));
  CombineLogprobs(request);
  return Status();
}

Status TakeTopLogprobs(const Json& value, TextRequest& request) {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > 20) {
    return InvalidArgumentError("\"top_logprobs\" must be an integer from 0 to 20");
  }
  request.top_logprobs = static_cast<int32_t>(value.as_int());
  CombineLogprobs(request);
  return Status();
}

Status TakeTools(const Json& value, TextRequest& request) {
  if (!value.is_array()) return WrongField("tools", "a list", value);
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const Json& tool = value.as_array()[i];
    const Json* const type = tool.Find("type");
    const Json* const function = tool.Find("function");
    if (type != nullptr && type->is_string() && type->as_string() != "function") {
      return UnsupportedError(fmt::format("tools[{}]: tools of type \"{}\" are not supported", i, type->as_string()));
    }
    const Json* const name = function != nullptr ? function->Find("name") : nullptr;
    if (name == nullptr || !name->is_string() || name->as_string().empty()) {
      return InvalidArgumentError(fmt::format("tools[{}] must have a \"function\" with a \"name\"", i));
    }
  }
  if (!value.as_array().empty()) request.tools = value;
  return Status();
}

Status TakeToolChoice(const Json& value, TextRequest& request) {
  constexpr std::pair<std::string_view, ToolUse> kUses[] = {{"none", ToolUse::kNone},
                                                            {"auto", ToolUse::kAuto},
                                                            {"required", ToolUse::kRequired},
                                                            {"any", ToolUse::kRequired}};
  if (value.is_string()) {
    for (const auto& [name, use] : kUses) {
      if (name != value.as_string()) continue;
      request.tool_use = use;
      return Status();
    }
  }
  const Json* const function = value.Find("function");
  const Json* const name = function != nullptr ? function->Find("name") : nullptr;
  if (name == nullptr || !name->is_string()) {
    return InvalidArgumentError(
        "\"tool_choice\" must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": "
        "..}}");
  }
  request.tool_use = ToolUse::kNamed;
  request.tool_name = name->as_string();
  return Status();
}

Status TakeTemplateKwargs(const Json& value, TextRequest& request) {
  if (!value.is_object()) return WrongField("chat_template_kwargs", "an object", value);
  for (const auto& [name, variable] : value.as_object()) request.template_kwargs.Set(name, variable);
  return Status();
}

Status TakeReasoningEffort(const Json& value, TextRequest& request) {
  if (!value.is_string()) return WrongField("reasoning_effort", "a string", value);
  request.reasoning_effort = value.as_string();
  request.thinking = value.as_string() != "none";
  if (request.template_kwargs.Find("reasoning_effort") == nullptr && *request.thinking) {
    request.template_kwargs.Set("reasoning_effort", value);
  }
  return Status();
}

Status TakeBudget(std::string_view field, const Json& value, TextRequest& request) {
  if (!value.is_int()) return WrongField(field, "a number of tokens, or -1 for no bound", value);
  if (value.as_int() < -1) {
    return InvalidArgumentError(fmt::format("\"{}\" must be at least -1, found {}", field, value.as_int()));
  }
  request.reasoning_budget = value.as_int();
  return Status();
}

// One field under the names that servers have for it.
constexpr char kReasoningBudget[] = "reasoning_budget", kTokenBudget[] = "thinking_token_budget",
               kBudgetTokens[] = "thinking_budget_tokens", kThinkingBudget[] = "thinking_budget";
template <const char* name>
Status TakeReasoningBudget(const Json& value, TextRequest& request) {
  return TakeBudget(name, value, request);
}

Status TakeReasoning(const Json& value, TextRequest& request) {
  if (!value.is_object()) return WrongField("reasoning", "an object", value);
  const auto has = [&](const char* name) { return value.Find(name) != nullptr && !value.Find(name)->is_null(); };
  if (has("effort")) RETURN_IF_ERROR(TakeReasoningEffort(*value.Find("effort"), request));
  if (has("max_tokens")) RETURN_IF_ERROR(TakeBudget("reasoning.max_tokens", *value.Find("max_tokens"), request));
  if (has("enabled")) {
    ASSIGN_OR_RETURN(request.thinking, BoolOf("reasoning.enabled", *value.Find("enabled")));
  }
  return Status();
}

Status TakeResponseFormat(const Json& value, TextRequest& request) {
  const Json* const type = value.Find("type");
  if (type == nullptr || !type->is_string()) return WrongField("response_format", "an object with a \"type\"", value);
  if (type->as_string() == "text") return Status();
  if (type->as_string() == "json_object") {
    request.response = ResponseKind::kJsonObject;
  } else if (type->as_string() == "json_schema") {
    const Json* const form = value.Find("json_schema");
    const Json* const schema = form != nullptr ? form->Find("schema") : nullptr;
    if (schema == nullptr) return InvalidArgumentError("\"response_format\": \"json_schema\" must have a \"schema\"");
    request.response = ResponseKind::kJsonSchema;
    request.response_form = WriteJson(*schema);
  } else {
    return InvalidArgumentError(fmt::format(
        "\"response_format\": \"type\" must be text, json_object or json_schema, found \"{}\"", type->as_string()));
  }
  return Status();
}

Status TakeGrammar(const Json& value, TextRequest& request) {
  if (!value.is_string()) return WrongField("grammar", "a string", value);
  request.response = ResponseKind::kGrammar;
  request.response_form = value.as_string();
  return Status();
}

Status TakePrompt(const Json& value, TextRequest& request) {
  const Json* prompt = &value;
  // A list of one is what some clients send.
  if (value.is_array() && value.as_array().size() == 1 && !value.as_array()[0].is_int()) prompt = &value.as_array()[0];
  if (prompt->is_string()) {
    request.prompt = prompt->as_string();
    return Status();
  }
  if (!prompt->is_array()) return WrongField("prompt", "a string or a list of token ids", value);
  for (const Json& id : prompt->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) {
      return UnsupportedError(
          "\"prompt\" must be one string or one list of token ids; send one request for each prompt");
    }
    request.prompt_ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return Status();
}

Status TakeEcho(const Json& value, TextRequest& request) {
  ASSIGN_OR_RETURN(request.echo, BoolOf("echo", value));
  return Status();
}

constexpr Field kSampling[] = {
    {"temperature", FieldUse::kHonoured, "0: always the most probable token", nullptr},
    {"top_p", FieldUse::kHonoured, "", nullptr},
    {"top_k", FieldUse::kHonoured, "0 or -1: off", nullptr},
    {"min_p", FieldUse::kHonoured, "", nullptr},
    {"typical_p", FieldUse::kHonoured, "", nullptr},
    {"repetition_penalty", FieldUse::kHonoured, "", nullptr},
    {"presence_penalty", FieldUse::kHonoured, "", nullptr},
    {"frequency_penalty", FieldUse::kHonoured, "", nullptr},
    {"logit_bias", FieldUse::kHonoured, "token ids and numbers", nullptr},
    {"seed", FieldUse::kHonoured, "same seed, same text, whoever else is asking", nullptr},
    {"stop", FieldUse::kHonoured, "a string or a list", nullptr},
    {"stop_ids", FieldUse::kHonoured, "ids of tokens that end the text and are no part of it", nullptr},
    {"stop_token_ids", FieldUse::kHonoured, "the same, vLLM's name", nullptr},
    {"min_tokens", FieldUse::kHonoured, "", nullptr},
    {"ignore_eos", FieldUse::kHonoured, "", nullptr},
};

constexpr Field kChat[] = {
    {"model", FieldUse::kHonoured, "must be one that is served", TakeModel},
    {"messages", FieldUse::kHonoured, "content as text, or parts of type text", TakeMessages},
    {"max_tokens", FieldUse::kHonoured, "missing, null or 0: the server's default", TakeMaxTokens},
    {"max_completion_tokens", FieldUse::kHonoured, "the same", TakeMaxTokens},
    {"n", FieldUse::kHonoured, "answers to one prompt, which is processed once", TakeChoices},
    {"stream", FieldUse::kHonoured, "", TakeStream},
    {"stream_options", FieldUse::kHonoured, "include_usage", TakeStreamOptions},
    {"logprobs", FieldUse::kHonoured, "", TakeLogprobs},
    {"top_logprobs", FieldUse::kHonoured, "0 to 20; an answer that is not streamed holds 131072 logprobs",
     TakeTopLogprobs},
    {"tools", FieldUse::kHonoured, "functions", TakeTools},
    {"tool_choice", FieldUse::kHonoured, "none, auto, required, or one function", TakeToolChoice},
    {"response_format", FieldUse::kHonoured, "text, json_object, json_schema", TakeResponseFormat},
    {"grammar", FieldUse::kHonoured, "GBNF", TakeGrammar},
    {"chat_template_kwargs", FieldUse::kHonoured, "what the chat template sees beside the messages",
     TakeTemplateKwargs},
    {"reasoning_effort", FieldUse::kHonoured,
     "given to the template; where it knows none, minimal, low and medium are a tenth, a fifth and a half of the "
     "answer's tokens; \"none\" turns thinking off",
     TakeReasoningEffort},
    {kReasoningBudget, FieldUse::kHonoured,
     "tokens of reasoning, after which it is closed and the answer begins; 0: none, -1: no bound",
     TakeReasoningBudget<kReasoningBudget>},
    {kTokenBudget, FieldUse::kHonoured, "the same, vLLM's name", TakeReasoningBudget<kTokenBudget>},
    {kBudgetTokens, FieldUse::kHonoured, "the same, llama-server's", TakeReasoningBudget<kBudgetTokens>},
    {kThinkingBudget, FieldUse::kHonoured, "the same, Qwen's", TakeReasoningBudget<kThinkingBudget>},
    {"reasoning", FieldUse::kHonoured, "effort, max_tokens, enabled", TakeReasoning},
    {"user", FieldUse::kIgnored, "", nullptr},
    {"metadata", FieldUse::kIgnored, "", nullptr},
    {"store", FieldUse::kIgnored, "nothing is stored", nullptr},
    {"service_tier", FieldUse::kIgnored, "", nullptr},
    {"parallel_tool_calls", FieldUse::kIgnored, "the model decides", nullptr},
    {"prediction", FieldUse::kIgnored, "drafts are the server's own", nullptr},
    {"modalities", FieldUse::kIgnored, "text is all there is", nullptr},
    {"audio", FieldUse::kRefused, "this server makes text", nullptr},
    {"web_search_options", FieldUse::kRefused, "this server does not search", nullptr},
    {"functions", FieldUse::kRefused, "use \"tools\"", nullptr},
    {"function_call", FieldUse::kRefused, "use \"tool_choice\"", nullptr},
};

constexpr Field kCompletion[] = {
    {"model", FieldUse::kHonoured, "must be one that is served", TakeModel},
    {"prompt", FieldUse::kHonoured, "one string, or one list of token ids", TakePrompt},
    {"max_tokens", FieldUse::kHonoured, "missing, null or 0: the server's default", TakeMaxTokens},
    {"n", FieldUse::kHonoured, "", TakeChoices},
    {"stream", FieldUse::kHonoured, "", TakeStream},
    {"stream_options", FieldUse::kHonoured, "include_usage", TakeStreamOptions},
    {"logprobs", FieldUse::kHonoured, "how many of the most probable tokens, 0 to 100", nullptr},
    {"echo", FieldUse::kHonoured, "the prompt before the text; not with logprobs", TakeEcho},
    {"response_format", FieldUse::kHonoured, "text, json_object, json_schema", TakeResponseFormat},
    {"grammar", FieldUse::kHonoured, "GBNF", TakeGrammar},
    {"user", FieldUse::kIgnored, "", nullptr},
    {"best_of", FieldUse::kRefused, "use \"n\"", nullptr},
    {"suffix", FieldUse::kRefused, "the model writes on, it does not fill in", nullptr},
};

std::vector<Field> With(std::span<const Field> own) {
  std::vector<Field> fields(own.begin(), own.end());
  fields.insert(fields.end(), std::begin(kSampling), std::end(kSampling));
  return fields;
}

bool IsFinite(const Json& json) {
  if (json.is_number()) return std::isfinite(json.as_double());
  if (json.is_array()) return std::all_of(json.as_array().begin(), json.as_array().end(), IsFinite);
  if (!json.is_object()) return true;
  return std::all_of(json.as_object().begin(), json.as_object().end(),
                     [](const auto& member) { return IsFinite(member.second); });
}

}  // namespace

Result<Json> ParseBody(std::string_view body) {
  if (CountValues(body) > kMostValues) {
    return InvalidArgumentError(fmt::format("the request's body holds more than {} values", kMostValues));
  }
  Result<Json> json = ParseJson(body, "the request's body");
  if (!json.ok()) return InvalidArgumentError(json.status().message());
  if (!IsFinite(*json)) return InvalidArgumentError("the request's body holds a number beyond what a double can be");
  return json;
}

Status WrongField(std::string_view name, std::string_view wanted, const Json& found) {
  constexpr size_t kMostShown = 60;
  std::string text = found.is_array() || found.is_object() ? std::string(found.TypeName()) : WriteJson(found);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return InvalidArgumentError(fmt::format("\"{}\" must be {}, found {}", name, wanted, text));
}

std::span<const Field> ChatFields() {
  static const std::vector<Field> fields = With(kChat);
  return fields;
}

std::span<const Field> CompletionFields() {
  static const std::vector<Field> fields = With(kCompletion);
  return fields;
}

Result<TextRequest> ParseRequest(std::string_view body, std::span<const Field> fields, const TextRequest& defaults) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  if (!json.is_object()) return InvalidArgumentError("the request's body must be a JSON object");
  TextRequest request = defaults;
  for (const auto& [name, value] : json.as_object()) {
    if (value.is_null()) continue;
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&wanted = name](const Field& f) { return f.name == wanted; });
    if (field == fields.end() || field->use == FieldUse::kIgnored) continue;
    if (field->use == FieldUse::kRefused) {
      return UnsupportedError(fmt::format("\"{}\" is not supported: {}", name, field->note));
    }
    if (field->take != nullptr) {
      RETURN_IF_ERROR(field->take(value, request));
    } else {
      ASSIGN_OR_RETURN(const bool taken, TakeTextField(name, value, request.text));
      if (!taken) return UnsupportedError(fmt::format("\"{}\" is not supported", name));
    }
  }
  return request;
}

}  // namespace nunspark::server
