#include "server/job.h"

#include <array>
#include <span>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/size.h"
#include "server/request.h"

namespace nunspark::server {
namespace {

constexpr std::array<std::string_view, 5> kStatusNames = {"queued", "running", "done", "error", "cancelled"};

constexpr int64_t kMostTokens = 1 << 28;
constexpr size_t kMostFiles = 10'000;

template <auto member>
bool TakeText(const Json& value, JobRequest& request) {
  if (!value.is_string() || value.as_string().find('\0') != std::string::npos) return false;
  request.*member = value.as_string();
  return true;
}

template <auto member>
bool TakeBool(const Json& value, JobRequest& request) {
  if (value.is_bool()) request.*member = value.as_bool();
  return value.is_bool();
}

template <auto member, int64_t least, int64_t most>
bool TakeInt(const Json& value, JobRequest& request) {
  if (!value.is_int() || value.as_int() < least || value.as_int() > most) return false;
  request.*member = value.as_int();
  return true;
}

template <auto member, int64_t... choices>
bool TakeOneOf(const Json& value, JobRequest& request) {
  if (!value.is_int() || !((value.as_int() == choices) || ...)) return false;
  request.*member = value.as_int();
  return true;
}

bool TakePreset(const Json& value, JobRequest& request) {
  if (!value.is_string() || (value.as_string() != "lossless" && value.as_string() != "fast")) return false;
  request.preset = value.as_string();
  return true;
}

bool TakeTemperature(const Json& value, JobRequest& request) {
  if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 100)) return false;
  request.temperature = value.as_double();
  return true;
}

bool TakeFileIds(const Json& value, JobRequest& request) {
  if (!value.is_array() || value.as_array().empty() || value.as_array().size() > kMostFiles) return false;
  for (const Json& id : value.as_array()) {
    if (!id.is_string()) return false;
    request.file_ids.push_back(id.as_string());
  }
  return true;
}

bool TakeBudget(const Json& value, JobRequest& request) {
  if (value.is_int() && value.as_int() >= 0) {
    request.budget = fmt::format("{}", value.as_int());
    return true;
  }
  if (!value.is_string()) return false;
  request.budget = value.as_string();
  return AsciiLower(AsciiTrim(request.budget)) == "auto" || ParseSize(request.budget).ok();
}

struct JobField {
  std::string_view name, wanted;
  bool (*take)(const Json& value, JobRequest& request);
};
constexpr std::string_view kText = "a string without NUL", kCount = "an integer from 1 to 268435456",
                           kSmall = "an integer from 1 to 1000", kTruth = "true or false";
constexpr JobField kFields[] = {
    {"model", kText, TakeText<&JobRequest::model>},
    {"draft", kText, TakeText<&JobRequest::draft>},
    {"preset", "\"lossless\" or \"fast\"", TakePreset},
    {"instruction", kText, TakeText<&JobRequest::instruction>},
    {"use_chat_template", kTruth, TakeBool<&JobRequest::use_chat_template>},
    {"max_tokens", kCount, TakeInt<&JobRequest::max_tokens, 1, kMostTokens>},
    {"temperature", "a number from 0 to 100", TakeTemperature},
    {"output_dir", kText, TakeText<&JobRequest::output_dir>},
    {"file_ids", "a list of ids, at least one and at most 10000", TakeFileIds},
};
constexpr JobField kAdvanced[] = {
    {"kv_bits", "4 or 8", TakeOneOf<&JobRequest::kv_bits, 4, 8>},
    {"kv_group_size", "32, 64 or 128", TakeOneOf<&JobRequest::kv_group_size, 32, 64, 128>},
    {"budget", "\"auto\" or a size such as \"6GB\"", TakeBudget},
    {"accept_top_k", kSmall, TakeInt<&JobRequest::accept_top_k, 1, 1000>},
    {"num_draft_tokens", kSmall, TakeInt<&JobRequest::num_draft_tokens, 1, 1000>},
    {"max_prompt_tokens", kCount, TakeInt<&JobRequest::max_prompt_tokens, 1, kMostTokens>},
    {"batch", kTruth, TakeBool<&JobRequest::together>},
};

// Null counts as absent; what stands in no table is ignored.
Status TakeFields(const Json& object, std::span<const JobField> fields, JobRequest& request) {
  for (const JobField& field : fields) {
    const Json* const value = object.Find(field.name);
    if (value == nullptr || value->is_null() || field.take(*value, request)) continue;
    return WrongField(field.name, field.wanted, *value);
  }
  return Status();
}

}  // namespace

EngineSettings JobRequest::Settings() const {
  EngineSettings settings{.model = model,
                          .draft = draft,
                          .budget = AsciiLower(AsciiTrim(budget)),
                          .kv_bits = static_cast<int32_t>(kv_bits.value_or(0)),
                          .kv_group_size = static_cast<int32_t>(kv_group_size)};
  if (draft.empty()) return settings;
  const bool fast = preset == "fast";
  settings.draft_tokens = static_cast<int32_t>(num_draft_tokens.value_or(fast ? 24 : 16));
  settings.accept_top_k = static_cast<int32_t>(accept_top_k.value_or(fast ? 3 : 1));
  return settings;
}

bool JobRequest::GroupsWith(const JobRequest& other) const {
  return draft.empty() && other.draft.empty() && together && other.together && Settings() == other.Settings() &&
         use_chat_template == other.use_chat_template && temperature == other.temperature &&
         max_tokens == other.max_tokens;
}

Result<JobRequest> ParseJobRequest(const Json& body) {
  if (!body.is_object()) return WrongField("body", "an object", body);
  JobRequest request;
  RETURN_IF_ERROR(TakeFields(body, kFields, request));
  request.draft = std::string(AsciiTrim(request.draft));
  const Json* const advanced = body.Find("advanced");
  if (advanced != nullptr && !advanced->is_null()) {
    if (!advanced->is_object()) return WrongField("advanced", "an object", *advanced);
    RETURN_IF_ERROR(TakeFields(*advanced, kAdvanced, request));
  }
  for (const auto& [name, missing] : {std::pair<std::string_view, bool>{"model", request.model.empty()},
                                      {"output_dir", request.output_dir.empty()},
                                      {"file_ids", request.file_ids.empty()}}) {
    if (missing) return InvalidArgumentError(fmt::format("\"{}\" is missing", name));
  }
  return request;
}

Json ToJson(const JobRequest& request) {
  const auto number = [](const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); };
  Json::Array ids(request.file_ids.begin(), request.file_ids.end());
  return Json::Object{{"model", request.model},
                      {"draft", request.draft.empty() ? Json() : Json(request.draft)},
                      {"preset", request.preset},
                      {"instruction", request.instruction},
                      {"use_chat_template", request.use_chat_template},
                      {"max_tokens", request.max_tokens},
                      {"temperature", request.temperature},
                      {"output_dir", request.output_dir},
                      {"file_ids", std::move(ids)},
                      {"advanced", Json::Object{{"kv_bits", number(request.kv_bits)},
                                                {"kv_group_size", request.kv_group_size},
                                                {"budget", request.budget},
                                                {"accept_top_k", number(request.accept_top_k)},
                                                {"num_draft_tokens", number(request.num_draft_tokens)},
                                                {"max_prompt_tokens", number(request.max_prompt_tokens)},
                                                {"batch", request.together}}}};
}

std::string_view JobStatusName(JobStatus status) { return kStatusNames[static_cast<size_t>(status)]; }

std::optional<JobStatus> FindJobStatus(std::string_view name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == name) return static_cast<JobStatus>(i);
  }
  return std::nullopt;
}

Json ToJson(const Job& job) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  const auto time = [](int64_t value) { return value == 0 ? Json() : Json(value); };
  return Json::Object{{"id", job.id},
                      {"batch_id", job.request_id},
                      {"file_name", job.file_name},
                      {"status", JobStatusName(job.status)},
                      {"tokens_done", job.tokens_done},
                      {"error", text(job.error)},
                      {"output_path", text(job.output_path)},
                      {"metrics", job.metrics},
                      {"model", job.request->model},
                      {"created", time(job.created)},
                      {"ended", time(job.ended)}};
}

Json SidecarJson(const Job& job) {
  const JobRequest& request = *job.request;
  return Json::Object{{"file_name", job.file_name},
                      {"model", request.model},
                      {"draft", request.draft.empty() ? Json() : Json(request.draft)},
                      {"preset", request.preset},
                      {"instruction", request.instruction},
                      {"max_tokens", request.max_tokens},
                      {"temperature", request.temperature},
                      {"status", JobStatusName(job.status)},
                      {"error", job.error.empty() ? Json() : Json(job.error)},
                      {"metrics", job.metrics}};
}

}  // namespace nunspark::server
