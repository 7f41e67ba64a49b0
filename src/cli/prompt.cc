#include "cli/prompt.h"

#include <cstdio>
#include <utility>

namespace nunspark::cli {

Json Message(std::string_view role, std::string text) {
  return Json::Object{{"role", role}, {"content", std::move(text)}};
}

Result<std::vector<int32_t>> ChatPrompt(const ModelFiles& files, Json::Array messages) {
  const Json* const content = messages.empty() ? nullptr : messages.back().Find("content");
  const std::string text = content != nullptr && content->is_string() ? content->as_string() : std::string();
  const Json context(Json::Object{
      {"messages", std::move(messages)}, {"tools", Json()}, {"documents", Json()}, {"add_generation_prompt", true}});
  const Result<std::string> formatted = files.FormatChat(WriteJson(context));
  if (formatted.ok()) return files.Encode(*formatted);
  if (formatted.status().code() != StatusCode::kNotFound) {
    std::fprintf(stderr, "Note: the chat template cannot be applied, the prompt is used as it is (%s)\n",
                 formatted.status().message().c_str());
  }
  return files.EncodeWithSpecials(text);
}

}  // namespace nunspark::cli
