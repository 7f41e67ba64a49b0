// The markers of each way to call tools, as data for the parser, the choice by template and the token filter.
#ifndef NUNSPARK_TEXT_CHAT_TOOL_SYNTAX_H_
#define NUNSPARK_TEXT_CHAT_TOOL_SYNTAX_H_

#include <array>
#include <span>
#include <string_view>

#include "text/chat/output_format.h"

namespace nunspark::text {

// What follows an opening marker.
enum class CallBody : uint8_t {
  kJson,     // an object with name and arguments, or a list of such
  kTagged,   // name and arguments in tags (TagSyntax); JSON when it begins with a bracket
  kTagName,  // the opening marker was TagSyntax::call_open itself: the name follows
  kHead,     // text with the name in it up to the brace of the arguments; JSON as kJson when it begins with a bracket
  kGemma,    // call:N{k:v}
  kPython,   // N(k=v), alone or in a list; JSON when it begins with a brace, or a bracket and a brace
};

struct CallOpening {
  std::string_view marker;
  CallBody body = CallBody::kJson;
  bool known_only = false;  // a call only when the name is one of the request's tools
};

struct TagSyntax {
  std::string_view call_open;  // empty: the name follows the opening marker (GLM)
  std::string_view name_end;   // empty: ended by param_open or call_close
  std::string_view param_open;
  std::string_view key_end;     // names in quotes end at the quote before it
  std::string_view value_open;  // empty: the value follows key_end
  std::string_view param_close;
  std::string_view call_close;
};

struct ToolSyntax {
  ToolFamily family;
  std::string_view name;
  std::array<CallOpening, 3> openings = {};       // unused ones have no marker
  std::array<std::string_view, 4> closings = {};  // end a call; stray ones after a call are dropped
  std::array<std::string_view, 4> dropped = {};   // around calls, without meaning
  std::array<std::string_view, 3> inner = {};     // only inside calls; may be special tokens too
  TagSyntax tag = {};
  std::string_view quote = {};      // kGemma: what encloses strings
  bool bare = false;                // an answer that begins like a call is one
  std::string_view block_end = {};  // kPython: what ends the code; empty: the end of the output
};

// REQUIRES: family is neither kNone nor kHarmony.
const ToolSyntax& SyntaxOf(ToolFamily family);
std::span<const ToolSyntax> AllToolSyntaxes();

// kHarmony's markers: channel, message, constrain, start, end, call, return.
inline constexpr std::array<std::string_view, 7> kHarmonyMarkers = {
    "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_TOOL_SYNTAX_H_
