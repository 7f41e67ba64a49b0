#include "text/chat/output_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/chat/call_reader.h"
#include "text/chat/tool_syntax.h"

namespace nunspark::text {
namespace {

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct FamilyRule {
  ToolFamily family;
  // A template of the family has all of these.
  std::array<std::string_view, 2> markers;
};

// The first that fits. Markers that only one family has come first.
constexpr FamilyRule kFamilyRules[] = {
    {ToolFamily::kHarmony, {"<|channel|>", "<|message|>"}},
    {ToolFamily::kGemma4, {"<|tool_call>", ""}},
    {ToolFamily::kFunctionGemma, {"<start_function_call>", ""}},
    {ToolFamily::kDeepSeekDsml, {"｜DSML｜", ""}},
    {ToolFamily::kDeepSeek, {"<｜tool▁call▁begin｜>", ""}},
    {ToolFamily::kKimi, {"<|tool_calls_section_begin|>", ""}},
    {ToolFamily::kSeed, {"<seed:tool_call>", ""}},
    {ToolFamily::kMiniMax, {"<minimax:tool_call>", ""}},
    {ToolFamily::kLfm2, {"<|tool_call_start|>", ""}},
    {ToolFamily::kLfm2, {"<|tool_list_start|>", ""}},
    {ToolFamily::kGlm, {"<arg_key>", ""}},
    {ToolFamily::kMistral, {"[TOOL_CALLS]", ""}},
    {ToolFamily::kQwenXml, {"<tool_call>", "<function="}},
    {ToolFamily::kHermes, {"<tool_call>", ""}},
    {ToolFamily::kPhi, {"<|tool_call|>", "tools"}},
    {ToolFamily::kPhi, {"<|tool|>", ""}},
    {ToolFamily::kPhi, {"functools[", ""}},
    {ToolFamily::kNone, {"<|start_header_id|>", ">>>"}},  // Functionary 3.2's own way
    {ToolFamily::kLlama, {"<|python_tag|>", ""}},
    {ToolFamily::kLlama, {"<|start_header_id|>", "tools"}},
    {ToolFamily::kLlama, {"<|header_start|>", "tools"}},
    {ToolFamily::kLlama, {"\"parameters\": ", "<|start_header_id|>"}},
    {ToolFamily::kGemmaCode, {"<start_of_turn>", "model"}},
};

struct ThinkRule {
  std::string_view marker;  // in the template
  std::string_view open, close;
  bool anywhere;
};

constexpr ThinkRule kThinkRules[] = {
    {"<|channel>", "<|channel>thought", "<channel|>", true},
    {"[THINK]", "[THINK]", "[/THINK]", true},
    {"<seed:think>", "<seed:think>", "</seed:think>", false},
    {"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>", true},
    {"<think>", "<think>", "</think>", false},
    {"</think>", "<think>", "</think>", false},
};

// Every marker of `format`, with those inside calls.
std::vector<std::string> AllMarkers(const OutputFormat& format) {
  std::vector<std::string> markers = format.dropped;
  markers.push_back(format.think_open);
  markers.push_back(format.think_close);
  const auto add = [&](const auto& some) { markers.insert(markers.end(), some.begin(), some.end()); };
  if (format.tools == ToolFamily::kHarmony) {
    add(kHarmonyMarkers);
  } else if (format.tools != ToolFamily::kNone) {
    const ToolSyntax& syntax = SyntaxOf(format.tools);
    for (const CallOpening& opening : syntax.openings) markers.emplace_back(opening.marker);
    add(syntax.closings);
    add(syntax.dropped);
    add(syntax.inner);
    const TagSyntax& tag = syntax.tag;
    add(std::array{tag.call_open, tag.param_open, tag.key_end, tag.value_open, tag.param_close, tag.call_close});
    markers.emplace_back(syntax.block_end);
  }
  return markers;
}

// What the template computes: its tags and expressions without string literals; no text, no comments.
std::string CodeOf(std::string_view template_text) {
  std::string code;
  for (size_t at = 0; at + 1 < template_text.size();) {
    const char kind = template_text[at] == '{' ? template_text[at + 1] : ' ';
    if (kind != '%' && kind != '{' && kind != '#') {
      ++at;
      continue;
    }
    const char closing[] = {kind == '{' ? '}' : kind, '}', 0};
    for (at += 2; at < template_text.size() && !template_text.substr(at).starts_with(closing); ++at) {
      const char c = template_text[at];
      if (kind != '#' && (c == '"' || c == '\'')) {
        for (++at; at < template_text.size() && template_text[at] != c; ++at) at += template_text[at] == '\\' ? 1 : 0;
        code += c;
      } else if (kind != '#') {
        code += c;
      }
    }
    code += kind == '#' ? "" : "%}";
    at = std::min(at + 2, template_text.size());
  }
  return code;
}

bool IsVariable(std::string_view code, std::string_view name) {
  for (const std::string_view before : {"if ", "not ", "and ", "or "}) {
    for (const std::string_view after : {" ", ")", "%}", "-%}"}) {
      if (Has(code, fmt::format("{}{}{}", before, name, after))) return true;
    }
  }
  return Has(code, fmt::format(" {} is defined", name));
}

// A call as a template: everything before and after its arguments. {} stands for the tool's name.
struct ForcedShape {
  ToolFamily family;
  std::string_view before, after;
};

constexpr ForcedShape kForcedShapes[] = {
    {ToolFamily::kHermes, "<tool_call>\n{{\"name\": \"{}\", \"arguments\": ", "}\n</tool_call>"},
    {ToolFamily::kQwenXml, "<tool_call>\n<function={}>\n", "\n</function>\n</tool_call>"},
    {ToolFamily::kSeed, "<seed:tool_call>\n<function={}>\n", "\n</function>\n</seed:tool_call>"},
    {ToolFamily::kGlm, "<tool_call>{{\"name\": \"{}\", \"arguments\": ", "}\n</tool_call>"},
    {ToolFamily::kLlama, "{{\"name\": \"{}\", \"parameters\": ", "}"},
    {ToolFamily::kMistral, "[TOOL_CALLS][{{\"name\": \"{}\", \"arguments\": ", "}]"},
    {ToolFamily::kHarmony, "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", "<|call|>"},
    {ToolFamily::kDeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁sep｜>",
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {ToolFamily::kDeepSeekDsml, "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"{}\">\n",
     "\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {ToolFamily::kMiniMax, "<minimax:tool_call>\n<invoke name=\"{}\">\n", "\n</invoke>\n</minimax:tool_call>"},
    {ToolFamily::kKimi, "<|tool_calls_section_begin|><|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>",
     "<|tool_call_end|><|tool_calls_section_end|>"},
    {ToolFamily::kGemma4, "<|tool_call>call:{}", "<tool_call|>"},
    {ToolFamily::kFunctionGemma, "<start_function_call>call:{}", "<end_function_call>"},
    {ToolFamily::kGemmaCode, "```tool_code\n{{\"name\": \"{}\", \"arguments\": ", "}\n```"},
    {ToolFamily::kPhi, "<|tool_call|>[{{\"name\": \"{}\", \"arguments\": ", "}]<|/tool_call|>"},
    {ToolFamily::kLfm2, "<|tool_call_start|>{{\"name\": \"{}\", \"arguments\": ", "}<|tool_call_end|>"},
};

}  // namespace

OutputFormat ChooseOutputFormat(std::string_view template_text, const Tokenizer* tokenizer) {
  OutputFormat format;
  const auto family = std::find_if(std::begin(kFamilyRules), std::end(kFamilyRules), [&](const FamilyRule& rule) {
    return Has(template_text, rule.markers[0]) && Has(template_text, rule.markers[1]);
  });
  if (family != std::end(kFamilyRules)) format.tools = family->family;

  if (format.tools != ToolFamily::kHarmony) {
    const bool token = tokenizer != nullptr && tokenizer->FindToken("<think>") && tokenizer->FindToken("</think>");
    for (const ThinkRule& rule : kThinkRules) {
      if (!Has(template_text, rule.marker) && !(token && rule.marker == "<think>")) continue;
      format.think_open = rule.open;
      format.think_close = rule.close;
      format.think_anywhere = rule.anywhere;
      break;
    }
  }
  if (Has(template_text, "<response>") && Has(template_text, "</response>")) {
    format.dropped = {"<response>", "</response>"};
  }

  if (tokenizer == nullptr) return format;
  const std::vector<std::string> markers = AllMarkers(format);
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    if (!tokenizer->IsSpecial(id)) continue;
    const std::string_view text = tokenizer->TokenText(id);
    // A marker may begin with a token, as "<|channel>thought" does.
    const bool part = text.size() > 2 && std::any_of(markers.begin(), markers.end(),
                                                     [&](const std::string& marker) { return Has(marker, text); });
    if (part) format.special_markers.emplace_back(text);
  }
  return format;
}

OutputStart StartAfter(const OutputFormat& format, std::string_view prompt) {
  const std::string_view end = AsciiTrim(prompt);
  if (format.tools == ToolFamily::kHarmony) {
    if (!end.ends_with("<|message|>")) return OutputStart::kMessage;
    const size_t channel = end.rfind("<|channel|>");
    const bool analysis = channel != std::string_view::npos && end.substr(channel).starts_with("<|channel|>analysis");
    return analysis ? OutputStart::kReasoning : OutputStart::kContent;
  }
  return !format.think_open.empty() && end.ends_with(format.think_open) ? OutputStart::kReasoning
                                                                        : OutputStart::kMessage;
}

ReasoningControl ControlReasoning(const OutputFormat& format, std::string_view template_text, Reasoning reasoning,
                                  std::string_view effort) {
  const bool on = reasoning == Reasoning::kOn;
  const std::string code = CodeOf(template_text);
  ReasoningControl control;
  bool by_variable = false;
  for (const std::string_view name : {"enable_thinking", "thinking"}) {
    if (!IsVariable(code, name)) continue;
    control.template_kwargs.emplace_back(std::string(name), on);
    by_variable = true;
  }
  if (IsVariable(code, "thinking_budget")) {
    control.template_kwargs.emplace_back("thinking_budget", on ? -1 : 0);
    by_variable = true;
  }
  if (Has(template_text, "reasoning_effort")) {
    const std::string_view level = effort.empty() && !on && format.tools == ToolFamily::kHarmony ? "low" : effort;
    if (!level.empty()) control.template_kwargs.emplace_back("reasoning_effort", level);
  }
  if (on) {
    control.honoured = format.has_reasoning();
  } else if (format.tools == ToolFamily::kHarmony) {
    control.honoured = false;
  } else if (!by_variable && format.has_reasoning()) {
    control.append_when_open = ReasoningEndText(format);
    control.append = format.think_open + control.append_when_open;
  }
  return control;
}

ReasoningEnd ReasoningEndOf(const OutputFormat& format) {
  if (format.tools == ToolFamily::kHarmony) {
    return {.before = {},
            .marker = "<|end|>",
            .after = "<|start|>assistant<|channel|>final<|message|>",
            .after_required = true};
  }
  if (format.think_close.empty()) return {};
  return {.before = "\n", .marker = format.think_close, .after = format.think_close == "</think>" ? "\n\n" : ""};
}

std::string ReasoningEndText(const OutputFormat& format) {
  const ReasoningEnd end = ReasoningEndOf(format);
  return end.before + end.marker + end.after;
}

std::vector<ForcedCall> ForcedCalls(const OutputFormat& format, const Json& tools, std::string_view name,
                                    OutputStart at) {
  std::vector<ForcedCall> calls;
  const auto shape = std::find_if(std::begin(kForcedShapes), std::end(kForcedShapes),
                                  [&](const ForcedShape& one) { return one.family == format.tools; });
  if (shape == std::end(kForcedShapes)) return calls;
  std::string lead;
  if (at == OutputStart::kReasoning) {
    lead = format.tools == ToolFamily::kHarmony ? "<|start|>assistant" : format.think_close == "</think>" ? "\n\n" : "";
  }
  const ToolTable table(tools);
  for (const auto& [tool, schema] : table.tools()) {
    if (!name.empty() && tool != name) continue;
    if (!IsToolName(tool)) continue;
    ForcedCall call{.prefix = lead + fmt::format(fmt::runtime(shape->before), tool),
                    .schema = schema.is_object() ? schema : Json(Json::Object{{"type", "object"}}),
                    .suffix = std::string(shape->after)};
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace nunspark::text
