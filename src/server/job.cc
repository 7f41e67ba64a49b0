#include "server/job.h"

#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/size.h"

namespace nunspark::server {
namespace {

constexpr std::array<std::string_view, 5> kStatusNames = {"queued", "running", "done", "error", "cancelled"};

constexpr int64_t kMostTokens = 1 << 28;
constexpr size_t kMostFiles = 10'000;

Status NotOne(std::string_view name, std::string_view wanted, const Json& found) {
  std::string text = WriteJson(found);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return InvalidArgumentError(fmt::format("\"{}\" must be {}, found {}", name, wanted, text));
}

// Reads members of an object; the first that does not fit is the error.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  void Text(std::string_view name, std::string& out) {
    Take(name, "a string", [&](const Json& value) {
      if (value.is_string()) out = value.as_string();
      return value.is_string();
    });
  }
  void Bool(std::string_view name, bool& out) {
    Take(name, "true or false", [&](const Json& value) {
      if (value.is_bool()) out = value.as_bool();
      return value.is_bool();
    });
  }
  void Int(std::string_view name, int64_t least, int64_t most, int64_t& out) {
    Take(name, fmt::format("an integer from {} to {}", least, most), [&](const Json& value) {
      if (!value.is_int() || value.as_int() < least || value.as_int() > most) return false;
      out = value.as_int();
      return true;
    });
  }
  void Int(std::string_view name, int64_t least, int64_t most, std::optional<int64_t>& out) {
    int64_t value = least - 1;
    Int(name, least, most, value);
    if (value >= least) out = value;
  }
  // Null counts as absent.
  void Take(std::string_view name, std::string_view wanted, const std::function<bool(const Json&)>& take) {
    const Json* const value = object_.Find(name);
    if (!status_.ok() || value == nullptr || value->is_null()) return;
    if (!take(*value)) status_ = NotOne(name, wanted, *value);
  }

  const Status& status() const { return status_; }

 private:
  const Json& object_;
  Status status_;
};

}  // namespace

EngineSettings BatchRequest::Settings() const {
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

bool BatchRequest::GroupsWith(const BatchRequest& other) const {
  return draft.empty() && other.draft.empty() && batch && other.batch && Settings() == other.Settings() &&
         use_chat_template == other.use_chat_template && temperature == other.temperature &&
         max_tokens == other.max_tokens;
}

Result<BatchRequest> ParseBatchRequest(const Json& body) {
  if (!body.is_object()) return NotOne("body", "an object", body);
  BatchRequest request;
  Fields fields(body);
  fields.Text("model", request.model);
  fields.Text("draft", request.draft);
  request.draft = std::string(AsciiTrim(request.draft));
  fields.Take("preset", "\"lossless\" or \"fast\"", [&](const Json& value) {
    if (!value.is_string() || (value.as_string() != "lossless" && value.as_string() != "fast")) return false;
    request.preset = value.as_string();
    return true;
  });
  fields.Text("instruction", request.instruction);
  fields.Bool("use_chat_template", request.use_chat_template);
  fields.Int("max_tokens", 1, kMostTokens, request.max_tokens);
  fields.Take("temperature", "a number from 0 to 100", [&](const Json& value) {
    if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 100)) return false;
    request.temperature = value.as_double();
    return true;
  });
  fields.Text("output_dir", request.output_dir);
  fields.Take("file_ids", "a list of ids, at least one and at most 10000", [&](const Json& value) {
    if (!value.is_array() || value.as_array().empty() || value.as_array().size() > kMostFiles) return false;
    for (const Json& id : value.as_array()) {
      if (!id.is_string()) return false;
      request.file_ids.push_back(id.as_string());
    }
    return true;
  });
  RETURN_IF_ERROR(fields.status());
  const Json* const advanced = body.Find("advanced");
  if (advanced != nullptr && !advanced->is_null()) {
    if (!advanced->is_object()) return NotOne("advanced", "an object", *advanced);
    Fields more(*advanced);
    more.Take("kv_bits", "4 or 8", [&](const Json& value) {
      if (!value.is_int() || (value.as_int() != 4 && value.as_int() != 8)) return false;
      request.kv_bits = value.as_int();
      return true;
    });
    more.Take("kv_group_size", "32, 64 or 128", [&](const Json& value) {
      if (!value.is_int() || (value.as_int() != 32 && value.as_int() != 64 && value.as_int() != 128)) return false;
      request.kv_group_size = value.as_int();
      return true;
    });
    more.Take("budget", "\"auto\" or a size such as \"6GB\"", [&](const Json& value) {
      if (value.is_int() && value.as_int() >= 0) {
        request.budget = fmt::format("{}", value.as_int());
        return true;
      }
      if (!value.is_string()) return false;
      request.budget = value.as_string();
      return AsciiLower(AsciiTrim(request.budget)) == "auto" || ParseSize(request.budget).ok();
    });
    more.Int("accept_top_k", 1, 1000, request.accept_top_k);
    more.Int("num_draft_tokens", 1, 1000, request.num_draft_tokens);
    more.Int("max_prompt_tokens", 1, kMostTokens, request.max_prompt_tokens);
    more.Bool("batch", request.batch);
    RETURN_IF_ERROR(more.status());
  }
  for (const auto& [name, missing] : {std::pair<std::string_view, bool>{"model", request.model.empty()},
                                      {"output_dir", request.output_dir.empty()},
                                      {"file_ids", request.file_ids.empty()}}) {
    if (missing) return InvalidArgumentError(fmt::format("\"{}\" is missing", name));
  }
  return request;
}

Json ToJson(const BatchRequest& request) {
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
                                                {"batch", request.batch}}}};
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
                      {"batch_id", job.batch_id},
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
  const BatchRequest& request = *job.request;
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
