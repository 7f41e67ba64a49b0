#include <memory>

#include "cli/line_loop.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/model_text.h"
#include "text/chat/chat_format_lines.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::string model;
  std::string now;
};

Result<std::unique_ptr<text::ChatFormatLines>> OpenLines(const std::string& model, const text::CivilTime& now) {
  if (model.empty()) return text::ChatFormatLines::Open(model, now);
  ASSIGN_OR_RETURN(text::ChatSource chat, OpenChatSource(model));
  return text::ChatFormatLines::Make(std::move(chat), now);
}

Result<int> Run(const Flags& flags) {
  text::CivilTime now = text::LocalTimeNow();
  if (!flags.now.empty()) {
    const Result<text::CivilTime> given = text::ParseCivilTime(flags.now);
    if (!given.ok()) return given.status().WithContext("--now");
    now = *given;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<text::ChatFormatLines> lines, OpenLines(flags.model, now));
  RETURN_IF_ERROR(LoopOverLines([&](std::string_view line) { return lines->Answer(line); }));
  return 0;
}

}  // namespace

void AddChatFormat(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb =
      app.add_subcommand("chat-format", "chat messages to prompt text, JSON lines from stdin to stdout");
  verb->add_option("folder", flags->model, "model folder or .gguf file whose template serves lines that bring none");
  verb->add_option("--now", flags->now, "the time templates see, as \"2026-07-04 15:09:26\"");
  verb->footer(
      "In:  {\"context\": {\"messages\": [...], \"add_generation_prompt\": true, ...}, \"template\": optional}\n"
      "Out: {\"output\": S} or {\"error\": {\"type\": T, \"message\": M}}");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
