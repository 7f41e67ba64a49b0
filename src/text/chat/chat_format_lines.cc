#include "text/chat/chat_format_lines.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <ctime>

#include "text/chat/interpreter.h"
#include "text/chat/parser.h"
#include "text/chat/unicode.h"

namespace nunspark::text {
namespace {

std::string ErrorLine(const TemplateError& error) {
  return fmt::format(R"({{"error": {{"type": {}, "message": {}}}}})", JsonQuote(error.type), JsonQuote(error.message));
}

struct ParsedTemplate {
  std::string source;
  std::unique_ptr<jinja::Template> tree;  // null: `error` says why
  TemplateError error;

  void Parse(std::string text) {
    source = std::move(text);
    tree = jinja::ParseTemplate(source, &error);
  }
};

}  // namespace

struct ChatFormatLines::Impl {
  CivilTime now{};
  bool has_own = false;
  bool has_tool_use = false;
  std::string why_no_own;
  ParsedTemplate own;
  ParsedTemplate tool_use;
  ParsedTemplate last;  // of the last line that brought one: such lines come in runs
  Json special_tokens{Json::Object()};

  std::string Answer(std::string_view line);
  const ParsedTemplate* Choose(jinja::Runtime& runtime, const jinja::Value& request, const jinja::Value& context);
};

ChatFormatLines::ChatFormatLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatFormatLines::~ChatFormatLines() = default;

Result<std::unique_ptr<ChatFormatLines>> ChatFormatLines::Open(const std::string& folder, const CivilTime& now) {
  if (folder.empty()) {
    ChatSource none;
    none.status = NotFoundError("no folder was given, so every line needs a \"template\"");
    return Make(std::move(none), now);
  }
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return NotFoundError(fmt::format("{}: no such folder", folder));
  }
  ASSIGN_OR_RETURN(ChatSource source, LoadChatSource(folder));
  return Make(std::move(source), now);
}

Result<std::unique_ptr<ChatFormatLines>> ChatFormatLines::Make(ChatSource source, const CivilTime& now) {
  if (!source.status.ok() && source.status.code() != StatusCode::kNotFound) return source.status;
  auto impl = std::make_unique<Impl>();
  impl->now = now;
  impl->special_tokens = std::move(source.special_tokens);
  impl->why_no_own = source.status.message();
  impl->has_own = source.status.ok();
  if (impl->has_own) impl->own.Parse(std::move(source.standard));
  impl->has_tool_use = source.tool_use.has_value();
  if (impl->has_tool_use) impl->tool_use.Parse(*std::move(source.tool_use));
  return std::unique_ptr<ChatFormatLines>(new ChatFormatLines(std::move(impl)));
}

std::string ChatFormatLines::Answer(std::string_view line) { return impl_->Answer(line); }

const ParsedTemplate* ChatFormatLines::Impl::Choose(jinja::Runtime& runtime, const jinja::Value& request,
                                                    const jinja::Value& context) {
  const jinja::Value* source = request.as<jinja::DictObject>().FindText("template");
  if (source == nullptr || source->is_none()) {
    const jinja::Value* tools = context.as<jinja::DictObject>().FindText("tools");
    if (has_tool_use && tools != nullptr && !tools->is_none()) return &tool_use;
    if (!has_own) runtime.Fail("InvalidRequest", why_no_own);
    return has_own ? &own : nullptr;
  }
  if (!source->is_string()) {
    runtime.Fail("InvalidRequest", fmt::format("\"template\": expected a string, found {}", jinja::TypeName(*source)));
    return nullptr;
  }
  if (last.source != jinja::Text(*source) || (last.tree == nullptr && last.error.type.empty())) {
    last.Parse(std::string(jinja::Text(*source)));
  }
  return &last;
}

std::string ChatFormatLines::Impl::Answer(std::string_view line) {
  jinja::Runtime runtime(RenderLimits::ForContext(line.size()), now);
  const jinja::Value request = jinja::ParseJsonValue(runtime, line);
  if (request.failed()) return ErrorLine(runtime.error());
  const jinja::Value* context = request.is_dict() ? request.as<jinja::DictObject>().FindText("context") : nullptr;
  if (context == nullptr || !context->is_dict()) {
    return ErrorLine(
        {"InvalidRequest", "expected an object with an object \"context\" and perhaps a string \"template\""});
  }
  const ParsedTemplate* chosen = Choose(runtime, request, *context);
  if (chosen == nullptr) return ErrorLine(runtime.error());
  if (chosen->tree == nullptr) return ErrorLine(chosen->error);
  std::string output;
  if (!jinja::AddMissing(runtime, *context, special_tokens) ||
      !jinja::Interpreter(runtime, *chosen->tree, *context).Render(&output)) {
    return ErrorLine(runtime.error());
  }
  if (jinja::HasSurrogates(output)) {
    return ErrorLine({"UnicodeEncodeError", "the output holds half of a character, which no text may"});
  }
  return fmt::format(R"({{"output": {}}})", JsonQuote(output));
}

Result<CivilTime> ParseCivilTime(std::string_view text) {
  const std::string copy(text);
  CivilTime time{};
  int used = 0;
  const int fields = std::sscanf(copy.c_str(), "%4d-%2d-%2d%n", &time.year, &time.month, &time.day, &used);
  auto wrong = [&] {
    return InvalidArgumentError(fmt::format("'{}' is no time: expected for example '2026-07-04 15:09:26'", text));
  };
  if (fields != 3) return wrong();
  auto rest = static_cast<size_t>(used);
  if (rest < copy.size()) {
    if (copy[rest] != ' ' && copy[rest] != 'T') return wrong();
    int tail = 0;
    if (std::sscanf(copy.c_str() + rest + 1, "%2d:%2d:%2d%n", &time.hour, &time.minute, &time.second, &tail) != 3)
      return wrong();
    rest += 1 + static_cast<size_t>(tail);
  }
  const bool leap = time.year % 4 == 0 && (time.year % 100 != 0 || time.year % 400 == 0);
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (rest != copy.size() || time.year < 1 || time.month < 1 || time.month > 12 || time.day < 1 ||
      time.day > kDays[time.month - 1] + (leap && time.month == 2 ? 1 : 0) || time.hour < 0 || time.hour > 23 ||
      time.minute < 0 || time.minute > 59 || time.second < 0 || time.second > 59) {
    return wrong();
  }
  return time;
}

CivilTime LocalTimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec};
}

}  // namespace nunspark::text
