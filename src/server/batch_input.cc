#include "server/batch_input.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/request.h"

namespace nunspark::server {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;

constexpr std::string_view kEndpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/messages"};

}  // namespace

std::span<const std::string_view> BatchEndpoints() { return kEndpoints; }

Status BatchLineReader::Fill() {
  if (size_ < 0) {
    ASSIGN_OR_RETURN(size_, file_.Size());
  }
  const int64_t count = std::min(kBlockBytes, size_ - read_);
  block_.resize(static_cast<size_t>(count));
  at_ = 0;
  RETURN_IF_ERROR(file_.ReadAt(read_, {reinterpret_cast<uint8_t*>(block_.data()), block_.size()}));
  read_ += count;
  return Status();
}

Result<bool> BatchLineReader::Next() {
  text_.clear();
  bytes_ = 0;
  offset_ = read_ - std::ssize(block_) + static_cast<int64_t>(at_);
  while (true) {
    if (at_ == block_.size()) {
      RETURN_IF_ERROR(Fill());
      if (block_.empty()) break;
    }
    const size_t end = block_.find('\n', at_);
    const size_t count = std::min(end, block_.size()) - at_;
    bytes_ += static_cast<int64_t>(count);
    if (too_long()) {
      text_.clear();
    } else {
      text_.append(block_, at_, count);
    }
    at_ += count;
    if (end == std::string::npos) continue;
    ++at_;
    ++line_;
    return true;
  }
  // The last line may lack its end.
  if (bytes_ == 0) return false;
  ++line_;
  return true;
}

bool ParseBatchLine(std::string_view text, std::string_view endpoint, BatchLineRequest& request,
                    BatchLineError& error) {
  const auto fail = [&error](std::string code, std::string message, std::string param) {
    error = {.code = std::move(code), .message = std::move(message), .param = std::move(param)};
    return false;
  };
  const auto missing = [&](const char* name) {
    return fail("missing_required_parameter", fmt::format("Missing required parameter: '{}'.", name), name);
  };
  const auto wrong = [&](const char* name, const std::string& wanted) {
    return fail("invalid_value", fmt::format("'{}' must be {}.", name, wanted), name);
  };
  Result<Json> json = ParseBody(text);
  if (!json.ok() || !json->is_object()) {
    return fail("invalid_json_line",
                json.ok() ? "This line is not a JSON object."
                          : fmt::format("This line is not parseable as valid JSON: {}.", json.status().message()),
                "");
  }
  const Json* const id = json->Find("custom_id");
  if (id == nullptr || id->is_null()) return missing("custom_id");
  if (!id->is_string() || id->as_string().empty() || id->as_string().size() > kMostCustomIdBytes) {
    return wrong("custom_id", fmt::format("a string of 1 to {} bytes", kMostCustomIdBytes));
  }
  const Json* const method = json->Find("method");
  if (method == nullptr || method->is_null()) return missing("method");
  if (!method->is_string() || method->as_string() != "POST") return wrong("method", "\"POST\"");
  const Json* const url = json->Find("url");
  if (url == nullptr || url->is_null()) return missing("url");
  if (!url->is_string() || url->as_string() != endpoint) {
    return fail("url_mismatch", fmt::format("'url' must be the batch's endpoint, {}.", endpoint), "url");
  }
  const Json* const body = json->Find("body");
  if (body == nullptr || body->is_null()) return missing("body");
  if (!body->is_object()) return wrong("body", "an object");
  request = {.custom_id = id->as_string(), .body = *body};
  return true;
}

}  // namespace nunspark::server
