// Template sources, rendered with a context that has one of everything: no crash, no hang, and the same result twice.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat/chat_template.h"

namespace {

constexpr std::string_view kContext =
    R"({"s": "Hello", "e": "", "n": null, "t": true, "i": 7, "x": 2.5, "big": 12345678901234567890, "l": [3, 1, 2], "u": "\u00e9\u4e2d\ud83d\ude00",
    "d": {"a": 1, "b": [1, 2], "c": {"k": "v"}}, "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null,
    "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1}}}]}], "add_generation_prompt": true})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark::text;
  TemplateError error;
  const auto chat_template = ChatTemplate::Parse({reinterpret_cast<const char*>(data), size}, &error);
  CHECK((chat_template == nullptr) == !error.type.empty());
  if (chat_template == nullptr) return 0;
  // Small limits, so that a run ends soon whatever the template does.
  const RenderLimits limits{.steps = 200'000, .depth = 100, .output_bytes = 1 << 20, .sequence_items = 1 << 16};
  std::string outputs[2];
  TemplateError errors[2];
  for (int i = 0; i < 2; ++i) {
    const bool ok = chat_template->RenderJsonText(kContext, {2026, 7, 4, 15, 9, 26}, &outputs[i], &errors[i], limits);
    CHECK(ok == errors[i].type.empty());
    if (ok) CHECK(outputs[i].size() <= static_cast<size_t>(limits.output_bytes));
  }
  CHECK(errors[0].type == errors[1].type && errors[0].message == errors[1].message);
  if (errors[0].type.empty()) CHECK(outputs[0] == outputs[1]);
  return 0;
}
