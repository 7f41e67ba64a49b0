// Splits what a model writes into the answer's text, its reasoning and its tool calls, while it is being written.
//
//   OutputFormat format = ChooseOutputFormat(template_text, tokenizer);      // once per model
//   OutputDecoder decoder(*tokenizer, format);                               // per sequence: tokens to text
//   OutputParser parser(format, {.tools = tools, .start = StartAfter(format, prompt), .id_seed = seed});
//   for each token:  parser.Push(decoder.Push(token), deltas);
//   at the end:      parser.Push(decoder.Finish(), deltas);  parser.Finish(deltas);
//
// However the text is cut into pieces, what the deltas add up to is the same. Markup is never part of content; text
// that could still become markup is held back until it is decided, and so is white space that may turn out to adjoin
// markup, where it belongs to the markup and is dropped.
//
// What is malformed is never lost. As long as a call's name and the beginning of its arguments have not been read, all
// of it is content, marker included. From then on the call stands, and the end of the call says whether its arguments
// are one whole JSON object: what the model wrote in place of one follows as arguments up to the call's closing marker
// (JSON families), or is content after a call that was closed where it went wrong (families with tags). Markers inside
// a JSON string of the arguments are text. docs/decisions/0010-what-counts-as-a-tool-call.md has the cases by family.
#ifndef NUNSPARK_TEXT_CHAT_OUTPUT_PARSER_H_
#define NUNSPARK_TEXT_CHAT_OUTPUT_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat/output_format.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

struct OutputDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kCallArguments, kCallEnd };
  Kind kind;
  std::string text;     // kCallBegin: the function's name; kCallEnd: nothing; else a piece, never empty
  std::string id;       // kCallBegin
  int call_index = -1;  // of calls, from 0; a call's deltas are not interleaved with anything
  bool whole = false;   // kCallEnd: the call's arguments add up to one JSON object
};

// How an output came to its end.
enum class OutputEnd : uint8_t {
  kComplete,  // the model ended it
  kCut,  // something else did, e.g. the number of tokens: what was held back may be markup of which the rest is missing
};

struct OutputOptions {
  // The request's tools (OpenAI's array or Anthropic's); null or empty, as with tool_choice "none": calls are not
  // looked for, and markup of calls is content like any other text.
  Json tools;
  OutputStart start = OutputStart::kMessage;
  // Calls get ids of their own, by seed and index: "call_" and 24 letters and digits, for Mistral 9. Where the family's
  // own markup names the id before the arguments (Kimi, Mistral's CALL_ID), that is kept.
  uint64_t id_seed = 0;
};

class OutputMachine;

// One per sequence. Not thread-safe.
class OutputParser {
 public:
  OutputParser(const OutputFormat& format, OutputOptions options);
  OutputParser(OutputParser&&) noexcept;
  ~OutputParser();

  // Appends to `deltas`; pieces of one kind that follow each other in one Push are one delta. They end inside a UTF-8
  // character only where `text` does.
  void Push(std::string_view text, std::vector<OutputDelta>& deltas);

  // The end of the output: decides what was held back, and ends an open call. No Push may follow. Of an output that was
  // cut, what could have become markup is dropped: the beginning of a marker, and a call that has not begun.
  void Finish(std::vector<OutputDelta>& deltas, OutputEnd end = OutputEnd::kComplete);

  // Now inside reasoning. A constraint on the answer (a forced call, a grammar) begins once this is false.
  bool in_reasoning() const;

  // After Finish: the output ended inside reasoning, so there is no answer. ReasoningEndText, put into the sequence
  // before Finish, lets the model go on to one; else the finish reason should say so.
  bool unfinished_reasoning() const;

  // Calls that have begun. More than 0: the finish reason is a tool call, unless the output was cut for its length.
  int call_count() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Tokens to the text that OutputParser wants: special tokens are left out as with SkipSpecials::kYes, except those that
// are markers of the format.
class OutputDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  OutputDecoder(const Tokenizer& tokenizer, const OutputFormat& format);

  // Text that became certain with `id` (may be empty). Ids outside the vocabulary are ignored.
  std::string Push(TokenId id);
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> kept_;
  StreamDecoder decoder_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_OUTPUT_PARSER_H_
