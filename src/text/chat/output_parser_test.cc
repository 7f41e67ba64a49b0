#include "text/chat/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "text/chat/tool_syntax.h"

namespace nunspark::text {
namespace {

const Json& Tools() {
  static const Json tools = ParseJson(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
      "tags": {"type": "array"}, "note": {"type": ["string", "null"]}, "any": {}}}}},
    {"name": "stock", "input_schema": {"type": "object", "properties": {"symbol": {"type": "string"}}}}])",
                                      "tools")
                                .value();
  return tools;
}

OutputFormat FormatOf(ToolFamily family) {
  OutputFormat format;
  format.tools = family;
  if (family != ToolFamily::kHarmony) {
    format.think_open = "<think>";
    format.think_close = "</think>";
  }
  return format;
}

// What deltas add up to, as one line: C[content] R[reasoning] name{arguments}, "~" after arguments that are not whole.
std::string Show(const std::vector<OutputDelta>& deltas) {
  using Kind = OutputDelta::Kind;
  std::string line;
  int open = -1, calls = 0;
  for (size_t i = 0; i < deltas.size(); ++i) {
    const OutputDelta& delta = deltas[i];
    const bool goes_on = i > 0 && deltas[i - 1].kind == delta.kind;
    switch (delta.kind) {
      case Kind::kContent:
      case Kind::kReasoning:
        EXPECT_EQ(open, -1);
        EXPECT_FALSE(delta.text.empty());
        if (goes_on) line.pop_back();
        if (!goes_on) line += delta.kind == Kind::kContent ? "C[" : "R[";
        line += delta.text + "]";
        break;
      case Kind::kCallBegin:
        EXPECT_EQ(open, -1);
        EXPECT_FALSE(delta.id.empty());
        open = delta.call_index;
        EXPECT_EQ(open, calls++);
        line += " " + delta.text;
        break;
      case Kind::kCallArguments:
        EXPECT_EQ(delta.call_index, open);
        line += delta.text;
        break;
      case Kind::kCallEnd:
        EXPECT_EQ(delta.call_index, open);
        open = -1;
        line += delta.whole ? " " : "~ ";
    }
  }
  EXPECT_EQ(open, -1);
  return line;
}

// What deltas add up to, in parts.
struct Parts {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
};

Parts PartsOf(const std::vector<OutputDelta>& deltas) {
  Parts parts;
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kContent: parts.content += delta.text; break;
      case OutputDelta::Kind::kReasoning: parts.reasoning += delta.text; break;
      case OutputDelta::Kind::kCallBegin: parts.calls.emplace_back(delta.text, ""); break;
      case OutputDelta::Kind::kCallArguments: parts.calls.back().second += delta.text; break;
      case OutputDelta::Kind::kCallEnd: break;
    }
  }
  return parts;
}

// An output that is cut says the beginning of what the whole one says, and no part of a marker. White space at its end
// is told, which belongs to the markup where there is one.
void ExpectCutsAreBeginnings(const OutputFormat& format, std::string_view text, const OutputOptions& options) {
  const auto parse = [&](std::string_view part, OutputEnd end) {
    OutputParser parser(format, options);
    std::vector<OutputDelta> deltas;
    parser.Push(part, deltas);
    parser.Finish(deltas, end);
    return PartsOf(deltas);
  };
  const auto begins = [](std::string_view whole, std::string_view part) {
    while (!part.empty() && IsAsciiSpace(part.back()) && !whole.starts_with(part)) part.remove_suffix(1);
    return whole.starts_with(part);
  };
  const Parts whole = parse(text, OutputEnd::kComplete);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const Parts part = parse(text.substr(0, cut), OutputEnd::kCut);
    EXPECT_TRUE(begins(whole.content, part.content)) << text.substr(0, cut) << "\n-> " << part.content;
    EXPECT_TRUE(begins(whole.reasoning, part.reasoning)) << text.substr(0, cut) << "\n-> " << part.reasoning;
    ASSERT_LE(part.calls.size(), whole.calls.size()) << text.substr(0, cut);
    for (size_t i = 0; i < part.calls.size(); ++i) {
      EXPECT_EQ(part.calls[i].first, whole.calls[i].first) << text.substr(0, cut);
      EXPECT_TRUE(begins(whole.calls[i].second, part.calls[i].second))
          << text.substr(0, cut) << "\n-> " << part.calls[i].second;
    }
  }
}

std::string ParsePieces(const OutputFormat& format, const std::vector<std::string_view>& pieces,
                        const OutputOptions& options, bool* unfinished = nullptr) {
  OutputParser parser(format, options);
  std::vector<OutputDelta> deltas;
  for (const std::string_view piece : pieces) parser.Push(piece, deltas);
  parser.Finish(deltas);
  if (unfinished != nullptr) *unfinished = parser.unfinished_reasoning();
  EXPECT_EQ(parser.call_count(), std::count_if(deltas.begin(), deltas.end(), [](const OutputDelta& delta) {
              return delta.kind == OutputDelta::Kind::kCallBegin;
            }));
  return Show(deltas);
}

// The result for the whole text, after checking that every cut into two, and single bytes, give the same, and that an
// output which ends at any byte begins like it.
std::string Parse(const OutputFormat& format, std::string_view text, const OutputOptions& options) {
  ExpectCutsAreBeginnings(format, text, options);
  const std::string whole = ParsePieces(format, {text}, options);
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(ParsePieces(format, {text.substr(0, cut), text.substr(cut)}, options), whole) << "cut at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  EXPECT_EQ(ParsePieces(format, bytes, options), whole);
  return whole;
}

std::string Parse(ToolFamily family, std::string_view text, OutputStart start = OutputStart::kMessage) {
  return Parse(FormatOf(family), text, {.tools = Tools(), .start = start});
}

struct Case {
  std::string_view text, expected;
};

void Check(ToolFamily family, std::initializer_list<Case> cases) {
  for (const Case& one : cases) EXPECT_EQ(Parse(family, one.text), one.expected) << one.text;
}

TEST(OutputParser, TextWithoutMarkupStaysAsItIs) {
  const Case cases[] = {{"", ""},
                        {"Hello", "C[Hello]"},
                        {"  Hello \n\n", "C[  Hello \n\n]"},
                        {"\n", "C[\n]"},
                        {"a < b <tool", "C[a < b <tool]"},
                        {"\xE4\xBD\xA0\xE5\xA5\xBD <\xEF\xBC\x8C", "C[\xE4\xBD\xA0\xE5\xA5\xBD <\xEF\xBC\x8C]"}};
  for (const ToolSyntax& syntax : AllToolSyntaxes()) {
    for (const Case& one : cases) EXPECT_EQ(Parse(syntax.family, one.text), one.expected) << syntax.name;
  }
  for (const Case& one : cases) {
    EXPECT_EQ(Parse(ToolFamily::kNone, one.text), one.expected);
  }
}

TEST(OutputParser, ReasoningIsWhatStandsInAThinkBlock) {
  Check(ToolFamily::kHermes, {{"<think>\nhm\n</think>\n\nYes.", "R[hm]C[Yes.]"},
                              {"\n<think>hm</think>Yes.\n", "R[hm]C[Yes.\n]"},
                              {"<think></think>\n\nYes", "C[Yes]"},
                              {"<think>\n\n</think>\n\n", ""},
                              {"<think>a</think><think>b</think>c", "R[ab]C[c]"},
                              {"<think>a < b </thin </think>c", "R[a < b </thin]C[c]"},
                              {"</think>\nYes", "C[Yes]"}});
}

TEST(OutputParser, AnAnswerMaySpeakOfThinkMarkers) {
  Check(ToolFamily::kHermes, {{"Write <think> and </think> around it.", "C[Write <think> and </think> around it.]"},
                              {"<think>a</think>b <think>c</think>", "R[a]C[b <think>c</think>]"}});
}

TEST(OutputParser, OutputMayBeginInsideReasoning) {
  EXPECT_EQ(Parse(ToolFamily::kHermes, "\nhm\n</think>\n\nYes", OutputStart::kReasoning), "R[hm]C[Yes]");
  EXPECT_EQ(Parse(ToolFamily::kHermes, "<think>\nhm</think>Yes", OutputStart::kReasoning), "R[hm]C[Yes]");
  EXPECT_EQ(Parse(ToolFamily::kHermes, "a <think> b</think>", OutputStart::kReasoning), "R[a <think> b]");
}

TEST(OutputParser, AnEndInsideReasoningLeavesNoContentAndSaysSo) {
  bool unfinished = false;
  EXPECT_EQ(ParsePieces(FormatOf(ToolFamily::kHermes), {"<think>so far <tool_call>"}, {.tools = Tools()}, &unfinished),
            "R[so far <tool_call>]");
  EXPECT_TRUE(unfinished);
  EXPECT_EQ(ParsePieces(FormatOf(ToolFamily::kHarmony), {"<|channel|>analysis<|message|>so far"}, {}, &unfinished),
            "R[so far]");
  EXPECT_TRUE(unfinished);
  EXPECT_EQ(
      ParsePieces(FormatOf(ToolFamily::kHarmony), {"<|channel|>analysis<|message|>so far<|end|>"}, {}, &unfinished),
      "R[so far]");
  EXPECT_TRUE(unfinished);
  ParsePieces(FormatOf(ToolFamily::kHermes), {"<think>a</think>"}, {}, &unfinished);
  EXPECT_FALSE(unfinished);
}

TEST(OutputParser, AReasoningBlockThatIsEndedFromOutsideGivesAnAnswer) {
  for (const ToolFamily family : {ToolFamily::kHermes, ToolFamily::kHarmony}) {
    const OutputFormat format = FormatOf(family);
    const bool harmony = family == ToolFamily::kHarmony;
    OutputParser parser(format, {.tools = Tools()});
    std::vector<OutputDelta> deltas;
    parser.Push(harmony ? "<|channel|>analysis<|message|>so far" : "<think>\nso far", deltas);
    EXPECT_TRUE(parser.in_reasoning());
    parser.Push(ReasoningEndText(format), deltas);
    EXPECT_FALSE(parser.in_reasoning());
    parser.Push("Yes.", deltas);
    parser.Finish(deltas);
    EXPECT_EQ(Show(deltas), "R[so far]C[Yes.]");
  }
}

TEST(OutputParser, WithoutToolsMarkupOfCallsIsText) {
  const std::string_view call = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(Parse(FormatOf(ToolFamily::kHermes), call, {}), "C[" + std::string(call) + "]");
  EXPECT_EQ(Parse(FormatOf(ToolFamily::kLlama), R"({"name": "weather", "parameters": {}})", {}),
            R"(C[{"name": "weather", "parameters": {}}])");
}

TEST(OutputParser, ReadsHermes) {
  Check(
      ToolFamily::kHermes,
      {{"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\", \"days\": 2}}\n</tool_call>",
        R"( weather{"city": "Ulm", "days": 2} )"},
       {"<think>\nhm\n</think>\n\nLet me see.\n<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>\n"
        "<tool_call>{\"name\":\"stock\",\"arguments\":{\"symbol\":\"X\"}}</tool_call>\n",
        R"(R[hm]C[Let me see.] weather{}  stock{"symbol":"X"} )"},
       // arguments first, as a string, missing, null; under another name; inside "function"
       {R"(<tool_call>{"arguments": {"city": "a}"}, "name": "weather"}</tool_call>)", R"( weather{"city": "a}"} )"},
       {R"(<tool_call>{"name": "weather", "arguments": "{\"city\": 1}"}</tool_call>)", R"( weather{"city": 1} )"},
       {R"(<tool_call>{"name": "weather"}</tool_call>)", " weather{} "},
       {R"(<tool_call>{"name": "weather", "arguments": null}</tool_call>)", " weather{} "},
       {R"(<tool_call>{"name": "weather", "parameters": {"a": [1, {"b": null}]}, "id": 7}</tool_call>)",
        R"( weather{"a": [1, {"b": null}]} )"},
       {R"(<tool_call>{"type": "function", "function": {"name": "weather", "arguments": {"a": 1}}}</tool_call>)",
        R"( weather{"a":1} )"},
       {R"(<tool_call>[{"name": "weather", "arguments": {}}, {"name": "stock", "arguments": {}}]</tool_call>)",
        " weather{}  stock{} "},
       // markers and role markers inside strings are text
       {R"(<tool_call>{"name": "weather", "arguments": {"city": "</tool_call><|im_end|>\n\nUser: \"x\""}}</tool_call>)",
        R"( weather{"city": "</tool_call><|im_end|>\n\nUser: \"x\""} )"},
       // text after a call, and a closing marker too many
       {"<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call></tool_call>\nDone.", " weather{} C[Done.]"},
       // a line break inside a string is repaired
       {"<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\tc\"}}</tool_call>",
        R"( weather{"city": "a\nb\tc"} )"},
       // the XML form, whatever the template shows
       {"<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>",
        R"( weather{"city": "Ulm"} )"},
       // a tool that the request does not know is still a call
       {R"(<tool_call>{"name": "other", "arguments": {}}</tool_call>)", " other{} "}});
}

TEST(OutputParser, MalformedHermesIsContentUntilTheCallHasBegun) {
  Check(ToolFamily::kHermes,
        {{"<tool_call>weather</tool_call>", "C[<tool_call>weather</tool_call>]"},
         {"A <tool_call> is a tag.", "C[A <tool_call> is a tag.]"},
         {R"(<tool_call>{"nome": "weather"}</tool_call>)", R"(C[<tool_call>{"nome": "weather"}</tool_call>])"},
         {R"(<tool_call>{"name": "weather", "arguments": [1]}</tool_call>)",
          R"(C[<tool_call>{"name": "weather", "arguments": [1]}</tool_call>])"},
         {R"(<tool_call>{"name": "two words", "arguments": {}}</tool_call>)",
          R"(C[<tool_call>{"name": "two words", "arguments": {}}</tool_call>])"},
         {R"(<tool_call>{"name": 1}</tool_call>)", R"(C[<tool_call>{"name": 1}</tool_call>])"},
         {"<tool_call>{\"name\": \"wea", "C[<tool_call>{\"name\": \"wea]"},
         {"<tool_call", "C[<tool_call]"},
         // what was taken for a call may hold one
         {R"(<tool_call>oh <tool_call>{"name": "weather", "arguments": {}}</tool_call>)",
          R"(C[<tool_call>oh] weather{} )"},
         {R"(x <tool_call>[{"name": "weather", "arguments": {}}, {"nome": 1}]</tool_call>)",
          R"(C[x] weather{} C[, {"nome": 1}]])"}});
}

TEST(OutputParser, MalformedHermesArgumentsGoOnUntilTheClosingMarker) {
  Check(ToolFamily::kHermes,
        {{R"(<tool_call>{"name": "weather", "arguments": {"city": Ulm}}</tool_call>After)",
          R"( weather{"city": Ulm}}~ C[After])"},
         {R"(<tool_call>{"name": "weather", "arguments": {"city": "Ulm")", R"( weather{"city": "Ulm"~ )"},
         {R"(<tool_call>{"name": "weather", "arguments": {]<tool_call>{"name": "stock", "arguments": {}}</tool_call>)",
          " weather{]~  stock{} "},
         // the brace after whole arguments is missing, or one is too many
         {R"(<tool_call>{"name": "weather", "arguments": {}</tool_call>Hi)", " weather{} C[Hi]"},
         {R"(<tool_call>{"name": "weather", "arguments": {}}}</tool_call>)", " weather{} C[}]"}});
}

TEST(OutputParser, ReadsQwenXml) {
  Check(ToolFamily::kQwenXml,
        {{"I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nUlm\n</parameter>\n<parameter=days>\n3\n"
          "</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n</tool_call>",
          R"(C[I look.] weather{"city": "New\nUlm", "days": 3, "metric": true} )"},
         {"<tool_call>\n<function=weather>\n</function>\n</tool_call>", " weather{} "},
         {"<tool_call><function=weather><parameter=tags>[1, \"a\"]</parameter><parameter=note>null</parameter>"
          "<parameter=days>soon</parameter></function></tool_call>"
          "<tool_call><function=stock></function></tool_call>",
          R"( weather{"tags": [1, "a"], "note": null, "days": "soon"}  stock{} )"},
         // a value that looks like another type, by schema and without one
         {"<function=weather><parameter=city>12</parameter><parameter=x>12</parameter><parameter=any>\"q\"</parameter>"
          "</function>",
          R"( weather{"city": "12", "x": 12, "any": "\"q\""} )"},
         // values hold markup of calls, quotes, line breaks at the edges
         {"<tool_call>\n<function=weather>\n<parameter=city>\n<function=a>\n</function>\n</tool_call>\n\"\\\n\n"
          "</parameter>\n</function>\n</tool_call>",
          R"( weather{"city": "<function=a>\n</function>\n</tool_call>\n\"\\\n"} )"},
         {"<function=weather><parameter=city>\n\n</parameter></function>", R"( weather{"city": ""} )"},
         // without the outer tag, only for a known tool
         {"Ok <function=weather>\n</function>\n</tool_call>\n", "C[Ok] weather{} "},
         {"See <function=other>\n</function>", "C[See <function=other>\n</function>]"},
         // JSON in either place
         {"<tool_call>\n<function=weather>\n{\"city\": \"Ulm\"}\n</function>\n</tool_call>",
          R"( weather{"city": "Ulm"} )"},
         {"<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>", " weather{} "}});
}

TEST(OutputParser, MalformedQwenXmlIsClosedWhereItGoesWrong) {
  Check(ToolFamily::kQwenXml,
        {{"<tool_call>\n<function=weather>\nUlm\n</function>", "C[<tool_call>\n<function=weather>\nUlm\n</function>]"},
         {"<tool_call><function=weather", "C[<tool_call><function=weather]"},
         {"<function=weather><parameter=city>Ulm</parameter> and </function></tool_call>",
          R"( weather{"city": "Ulm"} C[and])"},
         {"<function=weather><parameter=city>Ulm</parameter>", R"( weather{"city": "Ulm"} )"},
         {"<function=weather><parameter=city>Ulm</para", R"( weather{"city": "Ulm</para~ )"},
         {"<function=weather><parameter=days>1", R"( weather{"days": 1~ )"},
         {"<function=weather><parameter=ci\nty>", " weather{} C[<parameter=ci\nty>]"}});
}

TEST(OutputParser, ReadsSeed) {
  Check(ToolFamily::kSeed, {{"Ok\n<seed:tool_call>\n<function=weather>\n<parameter=city>Ulm</parameter>\n</function>\n"
                             "</seed:tool_call>",
                             R"(C[Ok] weather{"city": "Ulm"} )"}});
}

TEST(OutputParser, ReadsGlm) {
  Check(ToolFamily::kGlm,
        {{"\n<think>hm</think>\nOk\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
          R"(R[hm]C[Ok] weather{"city": "Ulm", "days": 2} )"},
         {"<tool_call>weather<arg_key>any</arg_key><arg_value>{\"a\": 1}</arg_value></tool_call><tool_call>stock"
          "</tool_call>",
          R"( weather{"any": {"a": 1}}  stock{} )"},
         {"<tool_call>weather<arg_key>city</arg_key><arg_value>\nA </tool_call> <\n</arg_value></tool_call>",
          R"( weather{"city": "A </tool_call> <"} )"},
         {"<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>", " weather{} "},
         {"Use <tool_call> for that, thus.", "C[Use <tool_call> for that, thus.]"},
         {"<tool_call>not a name</tool_call>", "C[<tool_call>not a name</tool_call>]"},
         {"<tool_call>weather<arg_key>city</arg_key>Ulm</tool_call>", " weather{} C[<arg_key>city</arg_key>Ulm]"}});
}

TEST(OutputParser, ReadsLlama) {
  Check(ToolFamily::kLlama,
        {{R"({"name": "weather", "parameters": {"city": "Ulm"}})", R"( weather{"city": "Ulm"} )"},
         {R"(<|python_tag|>{"type": "function", "name": "weather", "parameters": {}})", " weather{} "},
         {R"({"name": "weather", "parameters": {}}; {"name": "stock", "parameters": {}})", " weather{}  stock{} "},
         {R"([{"name": "weather", "parameters": {}}, {"name": "stock", "parameters": {}}])", " weather{}  stock{} "},
         {R"(<|python_tag|>weather.call(city="Ulm"))", R"( weather{"city": "Ulm"} )"},
         {"[weather(city='U\\'lm', days=2), stock(symbol=\"X\")]",
          R"( weather{"city": "U'lm", "days": 2}  stock{"symbol": "X"} )"},
         {R"(<|python_start|>[weather(tags=[1, (2, None)], note={"a": True})]<|python_end|>)",
          R"( weather{"tags": [1, [2, null]], "note": {"a": true}} )"},
         {R"(<function=weather>{"city": "Ulm"}</function>)", R"( weather{"city": "Ulm"} )"},
         // JSON that is no call: another name, other members, no arguments, not at the beginning
         {R"({"name": "Bob", "age": 3})", R"(C[{"name": "Bob", "age": 3}])"},
         {R"({"name": "weather", "age": 3})", R"(C[{"name": "weather", "age": 3}])"},
         {R"({"name": "weather"})", R"(C[{"name": "weather"}])"},
         {R"({"a": [1]})", R"(C[{"a": [1]}])"},
         {"[1, 2]", "C[[1, 2]]"},
         {"[weather report]", "C[[weather report]]"},
         {R"(So: {"name": "weather", "parameters": {}})", R"(C[So: {"name": "weather", "parameters": {}}])"},
         {"<|python_tag|>import os\nprint(os.name)", "C[<|python_tag|>import os\nprint(os.name)]"},
         {R"({"name": "weather", "parameters": {"city": Ulm}})", R"( weather{"city": Ulm}}~ )"}});
}

TEST(OutputParser, ReadsMistral) {
  Check(ToolFamily::kMistral,
        {{R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Ulm"}, "id": "abcdefghi"}])",
          R"( weather{"city": "Ulm"} )"},
         {R"(Ok [TOOL_CALLS]weather[ARGS]{"city": "]"}[TOOL_CALLS]stock[ARGS]{})",
          R"(C[Ok] weather{"city": "]"}  stock{} )"},
         {R"([TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{})", " weather{} "},
         {R"([TOOL_CALLS]weather{"days": 1})", R"( weather{"days": 1} )"},
         {"[TOOL_CALLS]no brace", "C[[TOOL_CALLS]no brace]"},
         {"[TOOL_CALLS]two words{}", "C[[TOOL_CALLS]two words{}]"},
         {"[TOOL_CALLS]weather[ARGS]{x[TOOL_CALLS]stock[ARGS]{}", " weather{x~  stock{} "}});
}

TEST(OutputParser, CallIdsAreTheMarkupsOwnOrMadeFromTheSeed) {
  const auto id = [](ToolFamily family, std::string_view text, uint64_t seed) {
    OutputParser parser(FormatOf(family), {.tools = Tools(), .id_seed = seed});
    std::vector<OutputDelta> deltas;
    parser.Push(text, deltas);
    parser.Finish(deltas);
    std::vector<std::string> ids;
    for (const OutputDelta& delta : deltas) {
      if (delta.kind == OutputDelta::Kind::kCallBegin) ids.push_back(delta.id);
    }
    return ids;
  };
  EXPECT_EQ(id(ToolFamily::kMistral, "[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{}", 1).at(0), "abcdefghi");
  EXPECT_EQ(id(ToolFamily::kMistral, "[TOOL_CALLS]weather[ARGS]{}", 1).at(0).size(), 9u);
  EXPECT_EQ(
      id(ToolFamily::kKimi, "<|tool_call_begin|>functions.weather:3<|tool_call_argument_begin|>{}<|tool_call_end|>", 1)
          .at(0),
      "functions.weather:3");
  const std::string_view two = R"({"name": "weather", "parameters": {}}; {"name": "stock", "parameters": {}})";
  const auto first = id(ToolFamily::kLlama, two, 1), again = id(ToolFamily::kLlama, two, 1),
             other = id(ToolFamily::kLlama, two, 2);
  EXPECT_EQ(first, again);
  EXPECT_EQ(first.at(0).size(), 29u);
  EXPECT_EQ(std::set<std::string>({first.at(0), first.at(1), other.at(0), other.at(1)}).size(), 4u);
}

TEST(OutputParser, ReadsHarmony) {
  Check(ToolFamily::kHarmony,
        {{"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
          "R[hm]C[Yes.]"},
         {"<|channel|>final<|message|>Yes.", "C[Yes.]"},
         {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
          "<|constrain|>json<|message|>{\"city\": \"Ulm\"}<|call|>",
          R"(R[hm] weather{"city": "Ulm"} )"},
         // the recipient in the role's part, in the analysis channel, without its prefix
         {" to=functions.weather<|channel|>commentary json<|message|>{}<|call|>", " weather{} "},
         {"<|channel|>analysis to=functions.weather code<|message|>{}", " weather{} "},
         {"<|channel|>commentary to=weather<|message|>{}", " weather{} "},
         {"<|channel|>commentary to=functions.weather<|message|><|call|>", " weather{} "},
         // a preamble, two calls, two paragraphs
         {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather"
          "<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.stock<|message|>{\"symbol\": "
          "\"<|end|>\"}<|call|>",
          R"(C[I look.] weather{}  stock{"symbol": "<|end|>"} )"},
         {"<|channel|>commentary<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>",
          "C[A\n\nB]"},
         // built-in tools are no functions of the request
         {"<|channel|>analysis to=python code<|message|>1+1<|call|>", "R[1+1]"},
         // a marker left out, words where none should be
         {"<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>Yes.", "R[hm]C[Yes.]"},
         {"<|channel|>analysis<|message|>hm<|channel|>final<|message|>Yes.", "R[hm]C[Yes.]"},
         {"<|channel|>analysis<|message|>hm<|end|>Yes.", "R[hm]C[Yes.]"},
         {"<|channel|>final?? 2<|message|>Yes.", "C[Yes.]"},
         {"<|channel|>odd words<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "R[odd words]C[Yes.]"},
         {"<|channel|>commentary<|channel|>final<|message|>Yes.", "C[Yes.]"},
         // no harmony at all
         {"analysisHello", "C[analysisHello]"},
         {"to be", "C[to be]"},
         {" Yes", "C[ Yes]"},
         {"<|message|>Yes", "C[Yes]"},
         // arguments that are none, or not whole
         {"<|channel|>commentary to=functions.weather<|message|>Ulm<|call|>", "C[Ulm]"},
         {"<|channel|>commentary to=functions.weather<|message|>{\"city\": Ulm}<|call|>", " weather{\"city\": Ulm}~ "},
         {"<|channel|>commentary to=functions.weather<|message|>{\"city\":", " weather{\"city\":~ "},
         {"<|channel|>commentary to=functions.weather<|message|>{} or so<|call|>", " weather{} C[or so]"}});
  EXPECT_EQ(Parse(ToolFamily::kHarmony, "Yes.<|return|>", OutputStart::kContent), "C[Yes.]");
  EXPECT_EQ(
      Parse(FormatOf(ToolFamily::kHarmony), "<|channel|>commentary to=functions.weather<|message|>{}<|call|>", {}),
      "C[{}]");
}

TEST(OutputParser, ReadsDeepSeek) {
  Check(
      ToolFamily::kDeepSeek,
      {{"Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Ulm\"}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>stock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        R"(C[Ok] weather{"city": "Ulm"}  stock{} )"},
       {"<think>\nhm</"
        "think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Ulm\"}\n"
        "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stock\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        R"(R[hm] weather{"city": "Ulm"}  stock{} )"},
       {"<｜tool▁call▁begin｜>weather{}", "C[<｜tool▁call▁begin｜>weather{}]"},
       {"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>Ulm<｜tool▁call▁end｜>",
        "C[<｜tool▁call▁begin｜>weather<｜tool▁sep｜>Ulm<｜tool▁call▁end｜>]"},
       {"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{Ulm}<｜tool▁call▁end｜>", " weather{Ulm}~ "}});
  Check(ToolFamily::kDeepSeekDsml,
        {{"Ok\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
          "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" "
          "string=\"false\">[1]</｜DSML｜parameter>\n"
          "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
          R"(C[Ok] weather{"city": "12", "x": [1]} )"}});
}

TEST(OutputParser, ReadsMiniMaxAndKimi) {
  Check(ToolFamily::kMiniMax,
        {{"<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Ulm</parameter>\n<parameter "
          "name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"stock\">\n</invoke>\n</minimax:tool_call>",
          R"( weather{"city": "Ulm", "days": 2}  stock{} )"}});
  Check(ToolFamily::kKimi,
        {{"Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": "
          "\"Ulm\"}<|tool_call_end|><|tool_call_begin|>functions.stock:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
          "<|tool_calls_section_end|>",
          R"(C[Ok] weather{"city": "Ulm"}  stock{} )"}});
}

TEST(OutputParser, ReadsGemma) {
  Check(ToolFamily::kGemma4,
        {{"Ok <|tool_call>call:weather{city:<|\"|>U, {lm}\n\"x\"<|\"|>,days:2,metric:true}<tool_call|>",
          R"(C[Ok] weather{"city": "U, {lm}\n\"x\"", "days": 2, "metric": true} )"},
         {"<|tool_call>call:weather{tags:[1,<|\"|>a<|\"|>,{<|\"|>k<|\"|>:null}],any:{}}<tool_call|><|tool_call>call:"
          "stock{}"
          "<tool_call|><|tool_response>",
          R"( weather{"tags": [1, "a", {"k": null}], "any": {}}  stock{} )"},
         {R"(<|tool_call>call:weather{"city": "U\"lm", "days": -1.5e3}<tool_call|>)",
          R"( weather{"city": "U\"lm", "days": -1.5e3} )"},
         {"<|tool_call>call:weather{city:Ulm am See,days: True }<tool_call|>",
          R"( weather{"city": "Ulm am See", "days": true} )"},
         {"<|tool_call>weather{}<tool_call|>", "C[<|tool_call>weather{}<tool_call|>]"},
         {"<|tool_call>call:weather{city:]}<tool_call|>After", R"( weather{"city": ]}~ C[After])"},
         {R"(<|tool_call>call:weather{"c\q":1}<tool_call|>)", R"( weather{"c\q": 1}~ )"},
         {"<|tool_call>call:weather{city:<|\"|>Ul", R"( weather{"city": "Ul~ )"}});
  Check(ToolFamily::kFunctionGemma,
        {{"<start_function_call>call:weather{city:<escape>Ulm<escape>,days:2}<end_function_call>",
          R"( weather{"city": "Ulm", "days": 2} )"}});
  Check(ToolFamily::kGemmaCode, {{"Ok:\n```tool_code\nprint(weather(city=\"Ulm\"))\nstock('X')\n```\n",
                                  R"(C[Ok:] weather{"city": "Ulm"}  stock{"symbol": "X"} )"},
                                 {"```tool_code\ndefault_api.weather(days=2)\n```", R"( weather{"days": 2} )"},
                                 {"```tool_code\nother(1)\n```\n", "C[```tool_code\nother(1)\n```\n]"},
                                 {"```tool_code\nweather(city=\"Ulm\"", "C[```tool_code\nweather(city=\"Ulm\"]"},
                                 {"```python\nweather()\n```", "C[```python\nweather()\n```]"}});
  OutputFormat format;
  format.tools = ToolFamily::kGemma4;
  format.think_open = "<|channel>thought";
  format.think_close = "<channel|>";
  format.think_anywhere = true;
  EXPECT_EQ(Parse(format, "<|channel>thought\nhm\n<channel|>Yes <|channel>thought\nb<channel|>No", {.tools = Tools()}),
            "R[hm]C[Yes]R[b]C[No]");
}

TEST(OutputParser, ReadsPhiAndLfm2) {
  Check(ToolFamily::kPhi,
        {{R"(<|tool_call|>[{"name": "weather", "arguments": {}}, {"name": "stock", "arguments": {}}]<|/tool_call|>)",
          " weather{}  stock{} "},
         {R"(functools[{"name": "weather", "arguments": {}}])", " weather{} "},
         {"Use functools.partial, or functools", "C[Use functools.partial, or functools]"},
         {R"(<|tool_call|>{"name": "weather", "arguments": {}})", " weather{} "}});
  Check(ToolFamily::kLfm2,
        {{"<|tool_call_start|>[weather(city=\"Ulm\"), other(x=1)]<|tool_call_end|>Ok",
          R"( weather{"city": "Ulm"}  other{"x": 1} C[Ok])"},
         {"<|tool_call_start|>weather<|tool_call_end|>", "C[<|tool_call_start|>weather<|tool_call_end|>]"}});
}

TEST(OutputParser, TextIsReleasedAsSoonAsItIsNoMarker) {
  OutputParser parser(FormatOf(ToolFamily::kHermes), {.tools = Tools()});
  std::vector<OutputDelta> deltas;
  const auto pushed = [&](std::string_view text) {
    deltas.clear();
    parser.Push(text, deltas);
    return Show(deltas);
  };
  EXPECT_EQ(pushed("Hello"), "C[Hello]");
  EXPECT_EQ(pushed(" <tool"), "");
  EXPECT_EQ(pushed("box>"), "C[ <toolbox>]");
  EXPECT_EQ(pushed("\n\n"), "");
  EXPECT_EQ(pushed("<tool_call>"), "");
}

TEST(OutputParser, ArgumentsAreHandedOnAsTheyCome) {
  const auto pieces = [](ToolFamily family, const std::vector<std::string_view>& text) {
    OutputParser parser(FormatOf(family), {.tools = Tools()});
    std::vector<std::string> arguments;
    for (const std::string_view piece : text) {
      std::vector<OutputDelta> deltas;
      parser.Push(piece, deltas);
      std::string one;
      for (const OutputDelta& delta : deltas) {
        if (delta.kind == OutputDelta::Kind::kCallArguments) one += delta.text;
      }
      arguments.push_back(one);
    }
    return arguments;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(
      pieces(ToolFamily::kHermes, {"<tool_call>{\"name\": \"weather\", \"arguments\": {", "\"city\": \"U", "lm\"}}"}),
      (Pieces{"{", "\"city\": \"U", "lm\"}"}));
  EXPECT_EQ(
      pieces(ToolFamily::kQwenXml, {"<function=weather><parameter=city>\nU", "lm\n", "</parameter>", "</function>"}),
      (Pieces{"{\"city\": \"U", "lm", "\"", "}"}));
  EXPECT_EQ(pieces(ToolFamily::kGemma4, {"<|tool_call>call:weather{city:<|\"|>U", "lm<|", "\"|>}"}),
            (Pieces{"{\"city\": \"U", "lm", "\"}"}));
}

TEST(OutputParser, AVeryLongTextBeforeACallBeginsIsText) {
  const std::string text =
      "<tool_call>{\"arguments\": {\"a\": \"" + std::string(40'000, 'x') + "\"}, \"name\": \"weather\"}";
  EXPECT_EQ(ParsePieces(FormatOf(ToolFamily::kHermes), {text}, {.tools = Tools()}), "C[" + text + "]");
}

TEST(ToolSyntaxes, NoMarkerOfAFamilyBeginsWithAnother) {
  for (const ToolSyntax& syntax : AllToolSyntaxes()) {
    std::vector<std::string_view> markers = {"<think>", "</think>"};
    for (const CallOpening& opening : syntax.openings) markers.push_back(opening.marker);
    markers.insert(markers.end(), syntax.closings.begin(), syntax.closings.end());
    markers.insert(markers.end(), syntax.dropped.begin(), syntax.dropped.end());
    for (const std::string_view a : markers) {
      for (const std::string_view b : markers) {
        EXPECT_FALSE(!a.empty() && a != b && b.starts_with(a)) << syntax.name << " " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace nunspark::text
