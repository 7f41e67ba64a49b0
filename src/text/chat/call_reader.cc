#include "text/chat/call_reader.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/check.h"

namespace nunspark::text {
namespace {

constexpr size_t kMaxHeadBytes = 400;

bool IsArgumentsKey(std::string_view key) { return key == "arguments" || key == "parameters"; }
bool IsNameKey(std::string_view key) { return key == "name" || key == "tool_name"; }

// {"name": N, "arguments": {..}} in any order.
class JsonObjectReader : public CallReader {
 public:
  JsonObjectReader(const CallContext& context, CallRules rules) : context_(context), rules_(rules) {}

  Result Feed(char c) override {
    if (stream_) return FeedStream(c);
    const bool in_call = scanner_.depth() == 1;
    const bool value_starts = in_call && !scanner_.in_string() && !scanner_.in_atom() &&
                              scanner_.expect() == JsonScanner::Expect::kValue && !IsAsciiSpace(c);
    if (value_starts && c == '{' && IsArgumentsKey(key_) && !emitted_ && !name_.empty()) {
      if (rules_.known_only && !context_.tools.Has(name_)) return Result::kReject;
      context_.sink.Begin(name_);
      stream_ = std::make_unique<ArgumentStream>(context_);
      return FeedStream(c);
    }
    const bool was_key = in_call && scanner_.in_key(), was_atom = scanner_.in_atom(), was_string = scanner_.in_string();
    const JsonScanner::Result result = scanner_.Feed(c);
    if (result == JsonScanner::Result::kBad) return Result::kReject;
    if (was_key) {
      if (scanner_.in_key()) {
        key_ += c;
      } else if (!KeyAllowed()) {
        return Result::kReject;
      }
    } else if (in_call && scanner_.in_key()) {
      key_.clear();
    }
    if (value_starts) {
      in_value_ = true;
      value_.clear();
    }
    if (in_value_ && !ReadValue(c, in_call, was_atom, was_string)) return Result::kReject;
    if (result == JsonScanner::Result::kDone) return FinishObject();
    return Result::kMore;
  }

  Result Finish(OutputEnd end) override {
    if (stream_) return stream_->Finish(end);
    return emitted_ ? Result::kDone : Result::kReject;
  }

 private:
  Result FeedStream(char c) {
    if (stream_->Feed(c) == Result::kMore) return Result::kMore;
    if (stream_->broken()) {
      replay_ = stream_->TakeReplay();
      return Result::kDone;
    }
    stream_.reset();
    emitted_ = true;
    // For the object around them the arguments are a value like any other.
    for (const char atom : std::string_view("null")) scanner_.Feed(atom);
    return Result::kMore;
  }

  // Returns false when the object is no call.
  bool ReadValue(char c, bool in_call, bool was_atom, bool was_string) {
    const bool atom_ended = in_call && was_atom && !scanner_.in_atom();
    if (!atom_ended) AppendRepaired(c, was_string, value_);
    if (!atom_ended && (scanner_.depth() > 1 || scanner_.in_string() || scanner_.in_atom())) return true;
    in_value_ = false;
    return TakeValue();
  }

  bool TakeValue() {
    const bool is_function = key_ == "function";
    if (!IsNameKey(key_) && !IsArgumentsKey(key_) && !is_function) return true;
    const std::optional<Json> parsed = ParseJsonValue(value_);
    if (!parsed.has_value()) return false;
    if (is_function && parsed->is_object()) {
      const Json* name = parsed->Find("name");
      if (name == nullptr || !name->is_string()) return false;
      name_ = name->as_string();
      if (const Json* arguments = parsed->Find("arguments")) return TakeArguments(*arguments, WriteJson(*arguments));
    } else if (IsArgumentsKey(key_)) {
      return TakeArguments(*parsed, value_);
    } else {
      if (!parsed->is_string()) return false;
      name_ = parsed->as_string();
    }
    return IsToolName(name_) && Emit();
  }

  bool TakeArguments(const Json& value, std::string_view text) {
    if (value.is_object()) {
      arguments_ = text;
    } else if (value.is_null()) {
      arguments_ = "{}";
    } else if (value.is_string()) {
      const auto inner = ParseJson(value.as_string(), "call");
      if (!inner.ok() || !inner->is_object()) return false;
      arguments_ = value.as_string();
    } else {
      return false;
    }
    return Emit();
  }

  bool Emit() {
    if (emitted_ || name_.empty() || arguments_.empty()) return true;
    if (!IsToolName(name_) || (rules_.known_only && !context_.tools.Has(name_))) return false;
    emitted_ = true;
    context_.sink.Begin(name_);
    context_.sink.Arguments(arguments_);
    context_.sink.End(true);
    return true;
  }

  Result FinishObject() {
    if (emitted_) return Result::kDone;
    if (rules_.strict || name_.empty()) return Result::kReject;
    arguments_ = "{}";
    return Emit() ? Result::kDone : Result::kReject;
  }

  bool KeyAllowed() const {
    return !rules_.strict || IsNameKey(key_) || IsArgumentsKey(key_) || key_ == "type" || key_ == "function" ||
           key_ == "id";
  }

  const CallContext& context_;
  const CallRules rules_;
  JsonScanner scanner_;
  std::string key_, value_, name_, arguments_;
  bool in_value_ = false, emitted_ = false;
  std::unique_ptr<ArgumentStream> stream_;
};

class JsonReader : public CallReader {
 public:
  JsonReader(const CallContext& context, CallRules rules) : context_(context), rules_(rules) {}

  Result Feed(char c) override {
    if (object_) return FeedObject(c);
    if (IsAsciiSpace(c)) return Result::kMore;
    if (c == '[' && !started_) {
      started_ = list_ = true;
      return Result::kMore;
    }
    if (c == '{' && !after_object_ && (list_ || !started_)) {
      started_ = true;
      object_ = std::make_unique<JsonObjectReader>(context_, rules_);
      return FeedObject(c);
    }
    if (c == ',' && after_object_) {
      after_object_ = false;
      return Result::kMore;
    }
    return c == ']' && any_ ? Result::kDone : Result::kReject;
  }

  Result Finish(OutputEnd end) override {
    if (object_) return object_->Finish(end);
    return any_ ? Result::kDone : Result::kReject;
  }

 private:
  Result FeedObject(char c) {
    const Result result = object_->Feed(c);
    if (result != Result::kDone) return result;
    replay_ = object_->TakeReplay();
    object_.reset();
    any_ = after_object_ = true;
    context_.sink.Settle();
    return list_ && replay_.empty() ? Result::kMore : Result::kDone;
  }

  const CallContext& context_;
  const CallRules rules_;
  std::unique_ptr<JsonObjectReader> object_;
  bool started_ = false, list_ = false, after_object_ = false, any_ = false;
};

struct Head {
  std::string_view name, id;
};

// What stands between the opening marker and the brace of the arguments.
std::optional<Head> ParseHead(ToolFamily family, std::string_view text) {
  Head head;
  switch (family) {
    case ToolFamily::kDeepSeek: {
      constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
      const size_t at = text.find(kSeparator);
      if (at == std::string_view::npos) return std::nullopt;
      const std::string_view after = AsciiTrim(text.substr(at + kSeparator.size()));
      // The older form: "function", the separator, the name, and the arguments in a code block.
      head.name = after.empty() ? text.substr(0, at) : after.substr(0, after.find('\n'));
      break;
    }
    case ToolFamily::kKimi: {
      const size_t at = text.find("<|tool_call_argument_begin|>");
      if (at == std::string_view::npos) return std::nullopt;
      head.name = head.id = AsciiTrim(text.substr(0, at));
      if (head.name.starts_with("functions.")) head.name.remove_prefix(10);
      const size_t colon = head.name.rfind(':');
      if (colon == std::string_view::npos) {
        head.id = {};
      } else {
        head.name = head.name.substr(0, colon);
      }
      break;
    }
    default: {
      const size_t id = text.find("[CALL_ID]"), arguments = text.find("[ARGS]");
      head.name = text.substr(0, std::min(id, arguments));
      if (id != std::string_view::npos && (arguments == std::string_view::npos || arguments > id)) {
        head.id = AsciiTrim(text.substr(id + 9, arguments == std::string_view::npos ? arguments : arguments - id - 9));
      }
    }
  }
  head.name = AsciiTrim(head.name);
  if (!IsToolName(head.name)) return std::nullopt;
  return head;
}

class HeadReader : public CallReader {
 public:
  explicit HeadReader(const CallContext& context) : context_(context) {}

  Result Feed(char c) override {
    if (!stream_) {
      if (c != '{') {
        head_ += c;
        const bool stopped = std::any_of(context_.stops.begin(), context_.stops.end(),
                                         [&](std::string_view stop) { return head_.ends_with(stop); });
        return stopped || head_.size() > kMaxHeadBytes ? Result::kReject : Result::kMore;
      }
      const std::optional<Head> head = ParseHead(context_.syntax.family, head_);
      if (!head.has_value()) return Result::kReject;
      context_.sink.Begin(head->name, head->id);
      stream_ = std::make_unique<ArgumentStream>(context_);
    }
    const Result result = stream_->Feed(c);
    if (result == Result::kDone) replay_ = stream_->TakeReplay();
    return result;
  }

  Result Finish(OutputEnd end) override { return stream_ ? stream_->Finish(end) : Result::kReject; }

 private:
  const CallContext& context_;
  std::string head_;
  std::unique_ptr<ArgumentStream> stream_;
};

// Decides by the first characters.
class ChoosingReader : public CallReader {
 public:
  ChoosingReader(const CallContext& context, CallBody body, CallRules rules)
      : context_(context), body_(body), rules_(rules) {}

  Result Feed(char c) override {
    if (!reader_) {
      if (IsAsciiSpace(c)) return Result::kMore;
      start_ += c;
      // A list of objects or of Python calls.
      if (body_ == CallBody::kPython && start_ == "[") return Result::kMore;
      reader_ = Choose();
      for (const char earlier : start_.substr(0, start_.size() - 1)) {
        if (reader_->Feed(earlier) == Result::kReject) return Result::kReject;
      }
    }
    const Result result = reader_->Feed(c);
    if (result == Result::kDone) replay_ = reader_->TakeReplay();
    return result;
  }

  Result Finish(OutputEnd end) override { return reader_ ? reader_->Finish(end) : Result::kReject; }

 private:
  std::unique_ptr<CallReader> Choose() const {
    // Inside a block with an end the Python reader takes JSON too, up to that end.
    const bool block = body_ == CallBody::kPython && !context_.syntax.block_end.empty();
    const bool json = start_.back() == '{' || (start_.back() == '[' && body_ != CallBody::kPython);
    if ((json && !block) || body_ == CallBody::kJson) return MakeJsonReader(context_, rules_);
    if (body_ == CallBody::kHead) return std::make_unique<HeadReader>(context_);
    if (body_ == CallBody::kPython) return MakePythonReader(context_, rules_);
    return MakeTaggedReader(context_, body_, rules_);
  }

  const CallContext& context_;
  const CallBody body_;
  const CallRules rules_;
  std::string start_;
  std::unique_ptr<CallReader> reader_;
};

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::string MakeCallId(uint64_t seed, int index, ToolFamily family) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  // Mistral's templates refuse ids of any other length.
  const bool mistral = family == ToolFamily::kMistral;
  std::string id = mistral ? "" : "call_";
  uint64_t state = Mix(seed ^ Mix(static_cast<uint64_t>(index)));
  for (int i = 0; i < (mistral ? 9 : 24); ++i) {
    state = Mix(state);
    id += kLetters[state % kLetters.size()];
  }
  return id;
}

}  // namespace

ToolTable::ToolTable(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools.as_array()) {
    const Json* inner = tool.Find("function");
    const Json& function = inner != nullptr && inner->is_object() ? *inner : tool;
    const Json* name = function.Find("name");
    if (name == nullptr || !name->is_string() || name->as_string().empty()) continue;
    const Json* schema = function.Find("parameters");
    if (schema == nullptr) schema = function.Find("input_schema");
    tools_.emplace_back(name->as_string(), schema == nullptr ? Json() : *schema);
  }
}

const Json* ToolTable::Find(std::string_view name) const {
  for (const auto& [tool, schema] : tools_) {
    if (tool == name) return &schema;
  }
  return nullptr;
}

bool ToolTable::HasPrefix(std::string_view text) const {
  return std::any_of(tools_.begin(), tools_.end(), [&](const auto& tool) { return tool.first.starts_with(text); });
}

const Json* ToolTable::FindArgument(std::string_view name, std::string_view key) const {
  const Json* schema = Find(name);
  const Json* properties = schema == nullptr ? nullptr : schema->Find("properties");
  return properties == nullptr ? nullptr : properties->Find(key);
}

void OutputSink::Begin(std::string_view name, std::string_view id) {
  DCHECK(!call_open_);
  call_open_ = true;
  ++call_events_;
  deltas_->push_back({.kind = OutputDelta::Kind::kCallBegin,
                      .text = std::string(name),
                      .id = id.empty() ? MakeCallId(id_seed_, call_count_, family_) : std::string(id),
                      .call_index = call_count_});
  ++call_count_;
}

void OutputSink::End(bool whole) {
  DCHECK(call_open_);
  call_open_ = false;
  ++call_events_;
  deltas_->push_back(
      {.kind = OutputDelta::Kind::kCallEnd, .text = {}, .id = {}, .call_index = call_count_ - 1, .whole = whole});
}

void OutputSink::Text(OutputDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (deltas_->size() > first_ && deltas_->back().kind == kind) {
    deltas_->back().text += text;
    return;
  }
  const int index = kind == OutputDelta::Kind::kCallArguments ? call_count_ - 1 : -1;
  deltas_->push_back({.kind = kind, .text = std::string(text), .id = {}, .call_index = index});
}

MarkerMatch MatchMarkers(std::string_view held, std::span<const std::string_view> markers) {
  MarkerMatch match;
  for (size_t i = 0; i < markers.size(); ++i) {
    if (markers[i].empty() || !markers[i].starts_with(held)) continue;
    if (markers[i].size() == held.size()) return {MarkerMatch::Kind::kFull, i};
    match.kind = MarkerMatch::Kind::kPartial;
  }
  return match;
}

std::optional<Json> ParseJsonValue(std::string_view text) {
  const Result<Json> list = ParseJson("[" + std::string(text) + "]", "value");
  if (!list.ok() || list->as_array().size() != 1) return std::nullopt;
  return list->as_array()[0];
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' ||
           std::string_view("\"'`<>(){}[],;").find(c) != std::string_view::npos;
  });
}

CallReader::Result ArgumentStream::Feed(char c) {
  if (!broken_) {
    const bool in_string = scanner_.in_string();
    const JsonScanner::Result result = scanner_.Feed(c);
    if (result != JsonScanner::Result::kBad) {
      std::string text;
      AppendRepaired(c, in_string, text);
      context_.sink.Arguments(text);
      if (result == JsonScanner::Result::kMore) return Result::kMore;
      context_.sink.End(true);
      return Result::kDone;
    }
    broken_ = true;
  }
  held_ += c;
  while (!held_.empty()) {
    const MarkerMatch match = MatchMarkers(held_, context_.stops);
    if (match.kind == MarkerMatch::Kind::kPartial) return Result::kMore;
    if (match.kind == MarkerMatch::Kind::kFull) {
      context_.sink.End(false);
      replay_ = std::move(held_);
      return Result::kDone;
    }
    context_.sink.Arguments(std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
  }
  return Result::kMore;
}

CallReader::Result ArgumentStream::Finish(OutputEnd end) {
  if (end == OutputEnd::kComplete) context_.sink.Arguments(held_);
  context_.sink.End(false);
  return Result::kDone;
}

std::unique_ptr<CallReader> MakeJsonReader(const CallContext& context, CallRules rules) {
  return std::make_unique<JsonReader>(context, rules);
}

std::unique_ptr<CallReader> MakeReader(const CallContext& context, CallBody body, CallRules rules) {
  if (body == CallBody::kTagName) return MakeTaggedReader(context, body, rules);
  if (body == CallBody::kGemma) return MakeGemmaReader(context, rules);
  return std::make_unique<ChoosingReader>(context, body, rules);
}

std::unique_ptr<CallReader> MakeBareReader(const CallContext& context) {
  return std::make_unique<ChoosingReader>(context, CallBody::kPython, CallRules{.known_only = true, .strict = true});
}

}  // namespace nunspark::text
