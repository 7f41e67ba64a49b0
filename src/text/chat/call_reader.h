// Reads one tool call after its opening marker, a byte at a time, and hands it to an OutputSink.
//
// Until it has begun a call a reader may reject: the parser then takes all of it for text. Once begun, a call is ended
// by its reader, whole or not.
#ifndef NUNSPARK_TEXT_CHAT_CALL_READER_H_
#define NUNSPARK_TEXT_CHAT_CALL_READER_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/json.h"
#include "text/chat/json_scanner.h"
#include "text/chat/output_parser.h"
#include "text/chat/tool_syntax.h"

namespace nunspark::text {

// The request's tools by name.
class ToolTable {
 public:
  explicit ToolTable(const Json& tools);
  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  // The schema of its arguments (null when it has none), or nullptr when there is no such tool.
  const Json* Find(std::string_view name) const;
  // Whether some tool's name begins with `text`.
  bool HasPrefix(std::string_view text) const;
  // The schema of one argument; nullptr when unknown.
  const Json* FindArgument(std::string_view name, std::string_view key) const;
  const std::vector<std::pair<std::string, Json>>& tools() const { return tools_; }

 private:
  std::vector<std::pair<std::string, Json>> tools_;
};

// Collects deltas, joining pieces of one kind.
class OutputSink {
 public:
  OutputSink(ToolFamily family, uint64_t id_seed) : family_(family), id_seed_(id_seed) {}
  void set_deltas(std::vector<OutputDelta>* deltas) {
    deltas_ = deltas;
    first_ = deltas->size();
  }

  void Content(std::string_view text) { Text(OutputDelta::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Text(OutputDelta::Kind::kReasoning, text); }
  void Begin(std::string_view name, std::string_view id = {});
  void Arguments(std::string_view text) { Text(OutputDelta::Kind::kCallArguments, text); }
  void End(bool whole);

  // What was read so far is part of the calls that were ended.
  void Settle() { ++call_events_; }

  bool call_open() const { return call_open_; }
  int call_count() const { return call_count_; }
  int call_events() const { return call_events_; }  // calls begun, ended and settled

 private:
  void Text(OutputDelta::Kind kind, std::string_view text);

  const ToolFamily family_;
  const uint64_t id_seed_;
  std::vector<OutputDelta>* deltas_ = nullptr;
  size_t first_ = 0;  // deltas before it are of earlier pushes, and stay as they are
  int call_count_ = 0, call_events_ = 0;
  bool call_open_ = false;
};

struct MarkerMatch {
  enum class Kind { kNone, kPartial, kFull };
  Kind kind = Kind::kNone;
  size_t index = 0;  // kFull: which
};
// Whether `held` is one of `markers` or could become one. Empty markers never match.
MarkerMatch MatchMarkers(std::string_view held, std::span<const std::string_view> markers);

// One JSON value of any kind, which ParseJson takes only as an object or array.
std::optional<Json> ParseJsonValue(std::string_view text);

// A function's name as far as every family's markup agrees: 1 to 128 bytes without white space, quotes and brackets.
bool IsToolName(std::string_view name);

struct CallContext {
  OutputSink& sink;
  const ToolTable& tools;
  const ToolSyntax& syntax;
  std::vector<std::string_view> stops;  // markers that end arguments which are no JSON
};

class CallReader {
 public:
  enum class Result { kMore, kDone, kReject };
  virtual ~CallReader() = default;
  virtual Result Feed(char c) = 0;
  // The end of the output: kDone or kReject.
  virtual Result Finish(OutputEnd end) = 0;
  // After kDone: what was read but is not part of the call.
  std::string TakeReplay() { return std::move(replay_); }

 protected:
  std::string replay_;
};

// Arguments that are a JSON object, handed on as they come. The call has begun; this ends it.
class ArgumentStream : public CallReader {
 public:
  explicit ArgumentStream(const CallContext& context) : context_(context) {}
  Result Feed(char c) override;
  Result Finish(OutputEnd end) override;
  bool broken() const { return broken_; }

 private:
  const CallContext& context_;
  JsonScanner scanner_;
  bool broken_ = false;
  std::string held_;
};

struct CallRules {
  bool known_only = false;  // the name must be one of the request's tools
  bool strict = false;      // no other members than a call has, and arguments must be there
};

// An object with name and arguments, or a list of such.
std::unique_ptr<CallReader> MakeJsonReader(const CallContext& context, CallRules rules);
// For `body`, after `opening`'s marker.
std::unique_ptr<CallReader> MakeReader(const CallContext& context, CallBody body, CallRules rules);
// For an answer that may be a call without any marker, from its first byte.
std::unique_ptr<CallReader> MakeBareReader(const CallContext& context);

std::unique_ptr<CallReader> MakeTaggedReader(const CallContext& context, CallBody body, CallRules rules);
std::unique_ptr<CallReader> MakeGemmaReader(const CallContext& context, CallRules rules);
std::unique_ptr<CallReader> MakePythonReader(const CallContext& context, CallRules rules);

// What OutputParser runs: bytes in, deltas to a sink. Machines put back what they took for markup too early.
class OutputMachine {
 public:
  virtual ~OutputMachine() = default;
  void Step(char c) {
    input_ += c;
    Drain();
  }
  virtual void Finish(OutputEnd end) = 0;
  virtual bool in_reasoning() const = 0;
  // REQUIRES: after Finish.
  virtual bool unfinished_reasoning() const = 0;

 protected:
  virtual void Byte(char c) = 0;

  void Drain() {
    while (at_ < input_.size()) Byte(input_[at_++]);
    input_.clear();
    at_ = 0;
  }
  // `text` comes before what is still to be read.
  void PutBack(std::string_view text) {
    input_.replace(0, at_, text);
    at_ = 0;
  }

 private:
  std::string input_;
  size_t at_ = 0;
};
std::unique_ptr<OutputMachine> MakeHarmonyMachine(OutputSink& sink, const ToolTable& tools, OutputStart start);
std::unique_ptr<OutputMachine> MakeMarkupMachine(OutputSink& sink, const ToolTable& tools, const OutputFormat& format,
                                                 OutputStart start);

// Text between markers: white space at its edges belongs to the markers and is dropped.
class TrimmedText {
 public:
  // After a marker.
  void Start() {
    space_.clear();
    skipping_ = true;
  }
  // What there is to write once `c` has come (may be nothing).
  std::string Add(char c) {
    if (IsAsciiSpace(c)) {
      if (!skipping_) space_ += c;
      return {};
    }
    skipping_ = false;
    return std::exchange(space_, {}) + c;
  }
  // At the end of the output, where no marker follows.
  std::string TakeSpace() { return std::exchange(space_, {}); }
  bool at_start() const { return skipping_; }

 private:
  std::string space_;
  bool skipping_ = false;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_CALL_READER_H_
