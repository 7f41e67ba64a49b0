#include "text/chat/output_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "text/chat/chat_template.h"
#include "text/chat/output_parser.h"
#include "text/chat/tool_syntax.h"
#include "text/tokenizer/testing.h"

namespace nunspark::text {
namespace {

std::string_view ToolFamilyName(ToolFamily family) {
  if (family == ToolFamily::kNone) return "none";
  return family == ToolFamily::kHarmony ? "harmony" : SyntaxOf(family).name;
}

Json Tools() {
  return ParseJson(R"([
    {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "stock", "description": "d", "parameters": {"type": "object",
      "properties": {"symbol": {"type": "string"}}}}}])",
                   "tools")
      .value();
}

struct Parsed {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool whole = true;
};

Parsed Parse(const OutputFormat& format, std::string_view text, OutputStart start = OutputStart::kMessage) {
  OutputParser parser(format, {.tools = Tools(), .start = start});
  std::vector<OutputDelta> deltas;
  parser.Push(text, deltas);
  parser.Finish(deltas);
  Parsed parsed;
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kContent: parsed.content += delta.text; break;
      case OutputDelta::Kind::kReasoning: parsed.reasoning += delta.text; break;
      case OutputDelta::Kind::kCallBegin: parsed.calls.emplace_back(delta.text, ""); break;
      case OutputDelta::Kind::kCallArguments: parsed.calls.back().second += delta.text; break;
      case OutputDelta::Kind::kCallEnd: parsed.whole = parsed.whole && delta.whole;
    }
  }
  return parsed;
}

OutputFormat Choose(std::string_view template_text) { return ChooseOutputFormat(template_text, nullptr); }

TEST(OutputFormat, IsChosenByTheTemplatesMarkers) {
  const std::pair<std::string_view, ToolFamily> cases[] = {
      {"{{ messages }}", ToolFamily::kNone},
      {"<tool_call>{{ x }}</tool_call>", ToolFamily::kHermes},
      {"<tool_call><function={{ x }}>", ToolFamily::kQwenXml},
      {"<seed:tool_call><function=", ToolFamily::kSeed},
      {"<tool_call>{{ n }}<arg_key>", ToolFamily::kGlm},
      {"<|start_header_id|> {% if tools %}", ToolFamily::kLlama},
      {"<|start_header_id|> {{ messages }}", ToolFamily::kNone},
      {"[TOOL_CALLS]", ToolFamily::kMistral},
      {"<|start|>assistant<|channel|>final<|message|>", ToolFamily::kHarmony},
      {"<｜tool▁call▁begin｜>", ToolFamily::kDeepSeek},
      {"<｜DSML｜invoke", ToolFamily::kDeepSeekDsml},
      {"<minimax:tool_call>", ToolFamily::kMiniMax},
      {"<|tool_calls_section_begin|>", ToolFamily::kKimi},
      {"<|tool_call>call:", ToolFamily::kGemma4},
      {"<start_function_call>", ToolFamily::kFunctionGemma},
      {"<start_of_turn>model", ToolFamily::kGemmaCode},
      {"<|tool|>{{ tools }}<|/tool|>", ToolFamily::kPhi},
      {"<|tool_list_start|>", ToolFamily::kLfm2}};
  for (const auto& [text, family] : cases)
    EXPECT_EQ(ToolFamilyName(Choose(text).tools), ToolFamilyName(family)) << text;
}

TEST(OutputFormat, ReasoningMarkersAreTheTemplates) {
  EXPECT_EQ(Choose("content.split('</think>')").think_open, "<think>");
  EXPECT_EQ(Choose("<seed:think>").think_close, "</seed:think>");
  EXPECT_EQ(Choose("[THINK]{{ x }}[/THINK]").think_close, "[/THINK]");
  EXPECT_EQ(Choose("<|channel>thought\n<channel|>").think_open, "<|channel>thought");
  EXPECT_FALSE(Choose("{{ messages }}").has_reasoning());
  EXPECT_TRUE(Choose("<|channel|><|message|>").has_reasoning());
}

TEST(OutputFormat, TheEndOfThePromptSaysWhereTheOutputBegins) {
  const OutputFormat think = Choose("<think>"), harmony = Choose("<|channel|><|message|>");
  EXPECT_EQ(StartAfter(think, "<|im_start|>assistant\n<think>\n"), OutputStart::kReasoning);
  EXPECT_EQ(StartAfter(think, "<|im_start|>assistant\n<think>\n\n</think>\n\n"), OutputStart::kMessage);
  EXPECT_EQ(StartAfter(think, "say <think> please"), OutputStart::kMessage);
  EXPECT_EQ(StartAfter(Choose(""), "<think>"), OutputStart::kMessage);
  EXPECT_EQ(StartAfter(harmony, "<|start|>assistant"), OutputStart::kMessage);
  EXPECT_EQ(StartAfter(harmony, "<|start|>assistant<|channel|>analysis<|message|>"), OutputStart::kReasoning);
  EXPECT_EQ(StartAfter(harmony, "<|start|>assistant<|channel|>final<|message|>"), OutputStart::kContent);
}

TEST(OutputFormat, ReasoningIsSwitchedByTheTemplatesVariables) {
  const auto control = [](std::string_view text, Reasoning reasoning, std::string_view effort = "") {
    return ControlReasoning(Choose(text), text, reasoning, effort);
  };
  const std::string_view qwen = "<think> {% if enable_thinking is defined and enable_thinking is false %}";
  EXPECT_EQ(WriteJson(control(qwen, Reasoning::kOff).template_kwargs), R"({"enable_thinking":false})");
  EXPECT_EQ(WriteJson(control(qwen, Reasoning::kOn).template_kwargs), R"({"enable_thinking":true})");
  EXPECT_EQ(control(qwen, Reasoning::kOff).append, "");
  EXPECT_EQ(WriteJson(control("<think> {%- if not thinking -%}", Reasoning::kOff).template_kwargs),
            R"({"thinking":false})");
  EXPECT_EQ(WriteJson(control("<seed:think>{% if thinking_budget == 0 %}", Reasoning::kOff).template_kwargs),
            R"({"thinking_budget":0})");
  // members, strings, comments and text are no variables
  EXPECT_EQ(
      control("<think> and thinking {# if thinking #}{{ 'if thinking ' }}", Reasoning::kOff).template_kwargs.size(),
      0u);
  EXPECT_EQ(control("<think>{% if message.thinking %}", Reasoning::kOff).template_kwargs.size(), 0u);

  const ReasoningControl appended = control("<think>\n", Reasoning::kOff);
  EXPECT_TRUE(appended.honoured);
  EXPECT_EQ(appended.append, "<think>\n</think>\n\n");
  EXPECT_EQ(appended.append_when_open, "\n</think>\n\n");

  const std::string_view harmony = "<|channel|><|message|>{{ reasoning_effort }}";
  EXPECT_FALSE(control(harmony, Reasoning::kOff).honoured);
  EXPECT_EQ(WriteJson(control(harmony, Reasoning::kOff).template_kwargs), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(WriteJson(control(harmony, Reasoning::kOn, "high").template_kwargs), R"({"reasoning_effort":"high"})");
  EXPECT_TRUE(control("{{ messages }}", Reasoning::kOff).honoured);
  EXPECT_FALSE(control("{{ messages }}", Reasoning::kOn).honoured);
}

TEST(OutputFormat, AForcedCallIsReadBackByTheParser) {
  std::vector<ToolFamily> families = {ToolFamily::kHarmony};
  for (const ToolSyntax& syntax : AllToolSyntaxes()) families.push_back(syntax.family);
  for (const ToolFamily family : families) {
    OutputFormat format;
    format.tools = family;
    if (family != ToolFamily::kHarmony) format.think_open = "<think>", format.think_close = "</think>";
    const auto all = ForcedCalls(format, Tools(), "", OutputStart::kMessage);
    ASSERT_EQ(all.size(), 2u) << ToolFamilyName(family);
    EXPECT_EQ(ForcedCalls(format, Tools(), "none", OutputStart::kMessage).size(), 0u);
    const auto named = ForcedCalls(format, Tools(), "get_weather", OutputStart::kMessage);
    ASSERT_EQ(named.size(), 1u);
    EXPECT_EQ(*named[0].schema.Find("required"), Json(Json::Array{"city"}));
    const std::string arguments = R"({"city": "a } ]\" b", "days": 2})";
    Parsed parsed = Parse(format, named[0].prefix + arguments + named[0].suffix);
    EXPECT_EQ(parsed.content, "") << ToolFamilyName(family);
    EXPECT_TRUE(parsed.whole);
    ASSERT_EQ(parsed.calls.size(), 1u) << ToolFamilyName(family);
    EXPECT_EQ(parsed.calls[0], std::pair(std::string("get_weather"), arguments)) << ToolFamilyName(family);

    // After reasoning, and with text to follow.
    const bool harmony = family == ToolFamily::kHarmony;
    const auto later = ForcedCalls(format, Tools(), "stock", OutputStart::kReasoning);
    parsed = Parse(format, (harmony ? "<|channel|>analysis<|message|>hm<|end|>" : "<think>hm</think>") +
                               later.at(0).prefix + "{}" + later[0].suffix);
    EXPECT_EQ(parsed.reasoning, "hm");
    EXPECT_EQ(parsed.content, "");
    ASSERT_EQ(parsed.calls.size(), 1u) << ToolFamilyName(family);
    EXPECT_EQ(parsed.calls[0], std::pair(std::string("stock"), std::string("{}")));
  }
}

TEST(OutputFormat, SpecialTokensThatAreMarkersReachTheParserAndNoOthers) {
  std::vector<std::string> letters;
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz_{}:")) letters.emplace_back(1, c);
  const auto tokenizer = testing::LoadJsonText(testing::JsonOf(
      {.decoder = R"({"type":"ByteLevel"})",
       .added_tokens = R"([{"content":"<|channel>","special":true},{"content":"<channel|>","special":true},
                           {"content":"<|tool_call>","special":true},{"content":"<tool_call|>","special":true},
                           {"content":"<|turn>","special":true},{"content":"<think>","special":false},
                           {"content":"</think>","special":false}])",
       .model = testing::BpeModel(letters, {})}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Tokenizer& tokens = **tokenizer;

  const OutputFormat plain = ChooseOutputFormat("<tool_call>", &tokens);
  EXPECT_EQ(plain.think_open, "<think>");  // no word of it in the template, but no special token either
  EXPECT_TRUE(plain.special_markers.empty());

  const OutputFormat gemma = ChooseOutputFormat("<|tool_call>call: <|channel>thought", &tokens);
  EXPECT_FALSE(gemma.special_markers.empty());
  EXPECT_EQ(gemma.special_markers.size(), 4u);
  OutputDecoder decoder(tokens, gemma);
  std::string text;
  const auto ids = tokens.Encode(
      "<|channel>thought<channel|><|turn>ok<|tool_call>call:get_weather{}<tool_call|><|turn>", AddSpecials::kNo);
  ASSERT_TRUE(ids.ok());
  for (const TokenId id : *ids) text += decoder.Push(id);
  text += decoder.Finish();
  const Parsed parsed = Parse(gemma, text);
  EXPECT_EQ(text.find("<|turn>"), std::string::npos) << text;
  EXPECT_EQ(parsed.calls.size(), 1u) << text;
}

// Every published template that writes a tool call into a conversation: what it writes is read back.
TEST(OutputFormat, CallsThatPublishedTemplatesWriteAreReadBack) {
  const std::filesystem::path path =
      std::filesystem::path(NUNSPARK_SOURCE_DIR) / "../shared/tokenizers/_chat_templates/templates.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "full reference set not present";
  const Json user = ParseJson(R"({"role": "user", "content": "Weather?"})", "message").value();
  const Json arguments = ParseJson(R"({"city": "Zu </x> {rich}", "days": 2})", "arguments").value();
  std::ifstream file(path, std::ios::binary);
  std::map<std::string, int> read;
  for (std::string line; std::getline(file, line);) {
    const Json entry = ParseJson(line, "line").value();
    const std::string& source = entry.Find("template")->as_string();
    const std::string& name = entry.Find("name")->as_string();
    const OutputFormat format = Choose(source);
    TemplateError error;
    const auto chat_template = ChatTemplate::Parse(source, &error);
    if (chat_template == nullptr || format.tools == ToolFamily::kNone || format.tools == ToolFamily::kGemmaCode)
      continue;
    const auto render = [&](const Json::Array& messages, bool generation_prompt, std::string* out) {
      const Json context(Json::Object{{"messages", messages},
                                      {"tools", Tools()},
                                      {"add_generation_prompt", generation_prompt},
                                      {"bos_token", ""},
                                      {"eos_token", ""}});
      return chat_template->Render(context, {2026, 7, 4, 15, 9, 26}, out, &error);
    };
    // Some templates take arguments only as text, which others would quote a second time.
    for (const bool as_text : {false, true}) {
      const Json call(Json::Object{
          {"id", "abcdefghi"},
          {"type", "function"},
          {"function",
           Json::Object{{"name", "get_weather"}, {"arguments", as_text ? Json(WriteJson(arguments)) : arguments}}}});
      const Json message(Json::Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::Array{call}}});
      std::string prompt, whole;
      if (!render({user}, true, &prompt) || !render({user, message}, false, &whole)) continue;
      // What the model would write: beyond the prompt they share, from the beginning of a marker.
      size_t cut = static_cast<size_t>(std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).second -
                                       whole.begin());
      const size_t marker = whole.substr(0, cut).rfind('<');
      if (marker != std::string::npos && whole.substr(marker, cut - marker).find('>') == std::string::npos)
        cut = marker;
      const std::string output = whole.substr(cut);
      if (output.find("get_weather") == std::string::npos) continue;
      const Parsed parsed = Parse(format, output);
      const Json expected = arguments;
      const bool good = parsed.calls.size() == 1 && parsed.whole && parsed.calls[0].first == "get_weather" &&
                        ParseJson(parsed.calls[0].second, "call").ok() &&
                        ParseJson(parsed.calls[0].second, "call").value() == expected;
      EXPECT_TRUE(good) << name << " as " << ToolFamilyName(format.tools) << ": " << output << "\ncontent "
                        << parsed.content;
      ++read[std::string(ToolFamilyName(format.tools))];
      break;
    }
  }
  for (const auto& [family, count] : read) RecordProperty(family, count);
  for (const std::string_view family : {"hermes", "qwen_xml", "glm", "llama", "mistral", "harmony", "deepseek",
                                        "deepseek_dsml", "kimi", "gemma4", "seed"}) {
    EXPECT_GT(read[std::string(family)], 0) << family;
  }
}

}  // namespace
}  // namespace nunspark::text
