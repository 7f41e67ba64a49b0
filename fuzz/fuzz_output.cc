// What models write, through the parser of every format: the first byte chooses format and start, the second how the
// rest is cut. However it is cut, the deltas add up to the same; calls come one after the other; arguments that are
// said to be whole are JSON; text of which no part is markup comes back as it is. An output that is cut says no more
// than one that ended there.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/chat/output_parser.h"
#include "text/chat/tool_syntax.h"

namespace {

using namespace nunspark;
using namespace nunspark::text;

struct Sum {
  std::string content, reasoning, calls;
  bool unfinished = false;
  friend bool operator==(const Sum&, const Sum&) = default;
};

Sum Parse(const OutputFormat& format, const OutputOptions& options, std::string_view text, size_t piece,
          OutputEnd end = OutputEnd::kComplete) {
  OutputParser parser(format, options);
  std::vector<OutputDelta> deltas;
  for (size_t at = 0; at < text.size(); at += piece) parser.Push(text.substr(at, piece), deltas);
  parser.Finish(deltas, end);
  Sum sum;
  int open = -1, count = 0;
  std::string arguments;
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kContent:
      case OutputDelta::Kind::kReasoning:
        CHECK(open == -1 && !delta.text.empty());
        (delta.kind == OutputDelta::Kind::kContent ? sum.content : sum.reasoning) += delta.text;
        break;
      case OutputDelta::Kind::kCallBegin:
        CHECK(open == -1 && delta.call_index == count && !delta.text.empty() && !delta.id.empty());
        open = count++;
        arguments.clear();
        sum.calls += delta.text + " " + delta.id + " ";
        break;
      case OutputDelta::Kind::kCallArguments:
        CHECK(open >= 0 && delta.call_index == open);
        arguments += delta.text;
        break;
      case OutputDelta::Kind::kCallEnd:
        CHECK(open >= 0 && delta.call_index == open);
        open = -1;
        if (delta.whole && IsValidUtf8(arguments)) {
          const Result<Json> json = ParseJson(arguments, "arguments");
          CHECK(json.ok() && json->is_object());
        }
        sum.calls += arguments + (delta.whole ? "\n" : "~\n");
    }
  }
  CHECK(open == -1 && parser.call_count() == count);
  sum.unfinished = parser.unfinished_reasoning();
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const Json tools = ParseJson(R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
      "n": {"type": ["integer", "null"]}, "o": {"type": "object"}}}}, {"name": "get"}])",
                                      "tools")
                                .value();
  const size_t families = AllToolSyntaxes().size();
  const size_t chosen = data[0] % (families + 2);
  OutputFormat format;
  if (chosen < families) format.tools = AllToolSyntaxes()[chosen].family;
  if (chosen == families) format.tools = ToolFamily::kHarmony;
  if (chosen != families) {
    format.think_open = "<think>";
    format.think_close = "</think>";
    format.think_anywhere = data[0] >= 128;
  }
  OutputOptions options{.tools = tools, .start = OutputStart::kMessage, .id_seed = data[1]};
  if (data[1] >= 192) options.tools = Json();
  if (data[1] % 3 == 1) options.start = OutputStart::kReasoning;
  if (data[1] % 3 == 2) options.start = OutputStart::kContent;

  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Sum whole = Parse(format, options, text, text.size() + 1);
  CHECK(Parse(format, options, text, 1) == whole);
  CHECK(Parse(format, options, text, 1 + data[1] % 29) == whole);
  const Sum cut = Parse(format, options, text, text.size() + 1, OutputEnd::kCut);
  CHECK(Parse(format, options, text, 1, OutputEnd::kCut) == cut);
  CHECK(cut.content.size() <= whole.content.size() && cut.reasoning.size() <= whole.reasoning.size());
  if (text.find_first_of("<[{f`\xEF") == std::string_view::npos) {
    const Sum plain = Parse(format, options, text, 5);
    CHECK(plain.calls.empty() && plain.content.size() + plain.reasoning.size() <= text.size());
    if (options.start == OutputStart::kMessage && chosen != families) CHECK(plain.content == text);
  }
  return 0;
}
