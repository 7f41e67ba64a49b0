// Requests as the engine understands them, whatever API they came through.
#ifndef NUNSPARK_SERVER_REQUEST_H_
#define NUNSPARK_SERVER_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/text_options.h"
#include "nunspark/status.h"

namespace nunspark::server {

enum class ToolUse : uint8_t { kNone, kAuto, kRequired, kNamed };

enum class ResponseKind : uint8_t { kText, kJsonObject, kJsonSchema, kGrammar };

struct TextRequest {
  std::string model;  // empty: whatever is served
  // One of the two: a conversation in OpenAI's form, or text as it is.
  Json messages;
  std::string prompt;
  std::vector<int32_t> prompt_ids;

  Json tools;  // OpenAI's list; null: none
  ToolUse tool_use = ToolUse::kAuto;
  std::string tool_name;  // kNamed
  Json template_kwargs;   // an object; null: none
  std::optional<bool> thinking;
  std::string reasoning_effort;             // as the client wrote it
  std::optional<int64_t> reasoning_budget;  // tokens of reasoning at most; negative: as many as there may be
  ResponseKind response = ResponseKind::kText;
  std::string response_form;  // the schema's or the grammar's text
  // As a chat's client wrote them; what comes of both stands in `text`.
  std::optional<bool> logprobs;
  int32_t top_logprobs = 0;

  TextOptions text;
  int32_t choices = 1;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
};

// A body as JSON. Errors: kInvalidArgument, also for one whose values would take far more memory than its text.
Result<Json> ParseBody(std::string_view body);

// kInvalidArgument: what the field `name` must be, and what it is.
Status WrongField(std::string_view name, std::string_view wanted, const Json& found);

// What becomes of a field of a request.
enum class FieldUse : uint8_t { kHonoured, kIgnored, kRefused };

struct Field {
  std::string_view name;
  FieldUse use;
  std::string_view note;  // for docs/serving-api.md, and for the client where it is refused
  Status (*take)(const Json& value, TextRequest& request);  // of those that are honoured; nullptr: TakeTextField does
};

// By API. Fields that are in none of the tables are ignored.
std::span<const Field> ChatFields();
std::span<const Field> CompletionFields();
std::span<const Field> MessagesFields();

// `defaults`: of fields that the request does not have. A field that is null counts as absent.
// Errors: kInvalidArgument naming the field, what it must be and what it is; kUnsupported for what is refused.
Result<TextRequest> ParseRequest(std::string_view body, std::span<const Field> fields, const TextRequest& defaults);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_REQUEST_H_
