// What a model's output looks like: how it marks reasoning and calls tools. Chosen by its chat template's own text.
#ifndef NUNSPARK_TEXT_CHAT_OUTPUT_FORMAT_H_
#define NUNSPARK_TEXT_CHAT_OUTPUT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

// How tools are called. N is the function's name, {..} JSON.
enum class ToolFamily : uint8_t {
  kNone,
  kHermes,   // <tool_call>{"name": N, "arguments": {..}}</tool_call>
  kQwenXml,  // <tool_call><function=N><parameter=K>V</parameter></function></tool_call>
  kSeed,     // the same in <seed:tool_call>
  kGlm,      // <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
  kLlama,    // {"name": N, "parameters": {..}} as the whole answer, or after <|python_tag|>; [N(k=v)]
  kMistral,  // [TOOL_CALLS][{"name": N, "arguments": {..}}], [TOOL_CALLS]N[ARGS]{..}
  kHarmony,  // <|channel|>commentary to=functions.N<|message|>{..}<|call|>; reasoning is a channel too
  kDeepSeek,  // <｜tool▁call▁begin｜>N<｜tool▁sep｜>{..}<｜tool▁call▁end｜>, and the older form with a code block
  kDeepSeekDsml,   // <｜DSML｜invoke name="N"><｜DSML｜parameter name="K" string="true">V</｜DSML｜parameter>..
  kMiniMax,        // <minimax:tool_call><invoke name="N"><parameter name="K">V</parameter></invoke>..
  kKimi,           // <|tool_call_begin|>functions.N:0<|tool_call_argument_begin|>{..}<|tool_call_end|>
  kGemma4,         // <|tool_call>call:N{k:<|"|>V<|"|>}<tool_call|>
  kFunctionGemma,  // <start_function_call>call:N{k:<escape>V<escape>}<end_function_call>
  kGemmaCode,      // ```tool_code with N(k=v), for Gemma 2 and 3, whose templates know no tools
  kPhi,            // <|tool_call|>[{"name": N, "arguments": {..}}]<|/tool_call|>, functools[..]; Granite too
  kLfm2,           // <|tool_call_start|>[N(k=v)]<|tool_call_end|>
};

struct OutputFormat {
  ToolFamily tools = ToolFamily::kNone;

  // What encloses reasoning, both empty where nothing does (and for kHarmony, whose channels do). `think_anywhere`:
  // also after text; else a block counts only where an answer begins, so that an answer may speak of the marker.
  std::string think_open, think_close;
  bool think_anywhere = false;

  // Markers without meaning for the reader, e.g. Granite's <response>.
  std::vector<std::string> dropped;

  // Those of the format's markers that are special tokens of the tokenizer, which StreamDecoder leaves out with
  // SkipSpecials::kYes. OutputDecoder keeps exactly these.
  std::vector<std::string> special_markers;

  bool has_reasoning() const { return !think_open.empty() || tools == ToolFamily::kHarmony; }
};

// By the markers in the template. `tokenizer` (may be null) says which of them are special tokens, and whether there is
// a <think> token where the template has no word of it. A template that shows no way to call tools gives kNone: tools
// in a request cannot be honoured then.
OutputFormat ChooseOutputFormat(std::string_view template_text, const Tokenizer* tokenizer);

// Where the output begins, by what the rendered prompt ends with.
enum class OutputStart : uint8_t {
  kMessage,    // at the beginning of an answer
  kReasoning,  // inside reasoning that the prompt opened
  kContent,    // inside the answer's text (kHarmony: in a final channel that the prompt opened)
};
OutputStart StartAfter(const OutputFormat& format, std::string_view prompt);

// How a request's wish about reasoning reaches the model.
struct ReasoningControl {
  Json::Object template_kwargs;  // variables for the template
  // False where neither variables nor `append` can do it: gpt-oss always reasons (its effort can be low), and a model
  // without reasoning cannot be told to.
  bool honoured = true;
  // Put after the rendered prompt, when off and the template has no variable for it: an empty block that is closed.
  // Only where StartAfter says kReasoning is what opens the block already there: `append_when_open` then.
  std::string append, append_when_open;
};
// `effort`: "" or a level ("low", "medium", "high", ...), given to templates that have reasoning_effort.
enum class Reasoning : uint8_t { kOff, kOn };
ReasoningControl ControlReasoning(const OutputFormat& format, std::string_view template_text, Reasoning reasoning,
                                  std::string_view effort = "");

// The text that ends reasoning and begins the answer, in three parts: what to put into the sequence when a reasoning
// budget is spent, or when the model stopped inside its reasoning and an answer is wanted. Empty where there is no
// reasoning.
struct ReasoningEnd {
  std::string before, marker, after;
  bool after_required = false;  // else it is what models usually write
};
ReasoningEnd ReasoningEndOf(const OutputFormat& format);
std::string ReasoningEndText(const OutputFormat& format);

// One way to make a forced call: `prefix`, then JSON that `schema` describes, then `suffix`. What follows the suffix is
// free (parallel calls) or the end.
struct ForcedCall {
  std::string prefix;
  Json schema;  // the tool's parameters
  std::string suffix;
};
// For tool_choice "required" (`name` empty: one alternative for each tool) or one tool by name. `tools` is the
// request's array. The alternatives are written so that OutputParser reads them; families whose own form of arguments
// is not JSON have a JSON form that the parser takes as well. `at`: kMessage when the call is the first thing in the
// output, kReasoning when it follows reasoning that has just ended (the prefix then begins with what stands between).
// Empty for kNone, and for a name that is not in `tools`.
std::vector<ForcedCall> ForcedCalls(const OutputFormat& format, const Json& tools, std::string_view name,
                                    OutputStart at);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_OUTPUT_FORMAT_H_
