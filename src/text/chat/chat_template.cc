#include "text/chat/chat_template.h"

#include <fmt/format.h>

#include "text/chat/interpreter.h"
#include "text/chat/parser.h"
#include "text/chat/unicode.h"

namespace nunspark::text {

RenderLimits RenderLimits::ForContext(size_t context_bytes) {
  // A template reads each byte of a message some ten times, and the output is its input a few times over. Some look at
  // all messages for each message; that is right for thousands of them.
  constexpr int64_t kStepsPerByte = 256;
  constexpr int64_t kOutputPerByte = 8;
  const auto bytes = static_cast<int64_t>(context_bytes);
  RenderLimits limits;
  limits.steps += kStepsPerByte * bytes;
  limits.output_bytes += kOutputPerByte * bytes;
  return limits;
}

struct ChatTemplate::Impl {
  std::unique_ptr<jinja::Template> tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

std::unique_ptr<ChatTemplate> ChatTemplate::Parse(std::string_view source, TemplateError* error) {
  auto impl = std::make_unique<Impl>();
  impl->tree = jinja::ParseTemplate(source, error);
  if (impl->tree == nullptr) return nullptr;
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

namespace {

// Renders with a context that is already made. `context` may be Failed().
bool RenderContext(const jinja::Template& tree, jinja::Runtime& runtime, const jinja::Value& context,
                   std::string* output, TemplateError* error) {
  output->clear();
  *error = {};
  if (!runtime.failed() && !context.is_dict()) {
    runtime.TypeError(fmt::format("a template's context must be an object, not {}", jinja::TypeName(context)));
  }
  if (!runtime.failed() && jinja::Interpreter(runtime, tree, context).Render(output) && jinja::HasSurrogates(*output)) {
    runtime.Fail("UnicodeEncodeError",
                 "the output holds surrogates, which no text may: half of a character was cut off");
  }
  if (runtime.failed()) *error = runtime.error();
  return !runtime.failed();
}

}  // namespace

bool ChatTemplate::Render(const Json& context, const CivilTime& now, std::string* output, TemplateError* error,
                          const RenderLimits& limits) const {
  jinja::Runtime runtime(limits, now);
  const jinja::Value value = jinja::FromJson(runtime, context);
  return RenderContext(*impl_->tree, runtime, value, output, error);
}

bool ChatTemplate::RenderJsonText(std::string_view context, const CivilTime& now, std::string* output,
                                  TemplateError* error, const RenderLimits& limits, const Json& defaults) const {
  jinja::Runtime runtime(limits, now);
  const jinja::Value value = jinja::ParseJsonValue(runtime, context);
  if (value.is_dict()) jinja::AddMissing(runtime, value, defaults);
  return RenderContext(*impl_->tree, runtime, value, output, error);
}

}  // namespace nunspark::text
