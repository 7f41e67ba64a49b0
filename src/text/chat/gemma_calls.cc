// call:N{key:<|"|>text<|"|>,other:[1,2],nested:{a:true}}: JSON with bare keys and a marker in place of quotes, turned
// into JSON as it comes. Plain JSON keys and strings are taken too.
#include "base/ascii.h"
#include "base/json_text.h"
#include "text/chat/call_reader.h"

namespace nunspark::text {
namespace {

constexpr size_t kMaxHeadBytes = 256, kMaxBareBytes = 4096, kMaxDepth = 200;

class GemmaReader : public CallReader {
 public:
  GemmaReader(const CallContext& context, CallRules rules) : context_(context), rules_(rules) {}

  Result Feed(char c) override {
    if (open_.empty() && !broken_) return FeedHead(c);
    held_ += c;
    Result result = Result::kMore;
    while (!held_.empty() && result == Result::kMore) {
      const MarkerMatch match =
          broken_ ? MatchMarkers(held_, context_.stops) : MatchMarkers(held_, {{context_.syntax.quote}});
      if (match.kind == MarkerMatch::Kind::kPartial && !in_json_string_) return Result::kMore;
      if (match.kind == MarkerMatch::Kind::kFull && !in_json_string_) {
        std::string marker = std::exchange(held_, {});
        result = broken_ ? End(false, std::move(marker)) : Quote();
        continue;
      }
      const char first = held_.front();
      held_.erase(0, 1);
      result = Byte(first);
    }
    if (result == Result::kDone) replay_ += held_;
    return result;
  }

  Result Finish(OutputEnd end) override {
    if (!context_.sink.call_open()) return Result::kReject;
    if (end == OutputEnd::kComplete) Emit(bare_ + held_);
    return End(false, "");
  }

 private:
  enum class Expect { kKey, kColon, kValue, kCommaOrEnd };

  Result FeedHead(char c) {
    if (c != '{') {
      head_ += c;
      return head_.size() > kMaxHeadBytes ? Result::kReject : Result::kMore;
    }
    std::string_view name = AsciiTrim(head_);
    if (!name.starts_with("call:")) return Result::kReject;
    name = AsciiTrim(name.substr(5));
    if (!IsToolName(name) || (rules_.known_only && !context_.tools.Has(name))) return Result::kReject;
    context_.sink.Begin(name);
    Open('{');
    return Result::kMore;
  }

  Result Byte(char c) {
    if (broken_) {
      Emit({&c, 1});
      return Result::kMore;
    }
    if (in_quotes_) {
      std::string text;
      AppendJsonEscaped(c, text);
      Emit(text);
      return Result::kMore;
    }
    if (in_json_string_) return JsonStringByte(c);
    const bool ends_bare = std::string_view(expect_ == Expect::kKey ? ":}" : ",}]").find(c) != std::string_view::npos;
    if (!bare_.empty() && !ends_bare) {
      bare_ += c;
      return bare_.size() > kMaxBareBytes ? Break(0) : Result::kMore;
    }
    if (!bare_.empty()) EndBare();
    return Structure(c);
  }

  Result Structure(char c) {
    if (IsAsciiSpace(c)) return Result::kMore;
    const bool in_object = open_.back() == '{';
    switch (expect_) {
      case Expect::kKey:
        if (c == '}' && !comma_) return Close();
        if (c == '"') return BeginJsonString();
        if (c == ':' || c == ',' || c == '{' || c == '[' || c == ']' || c == '}') return Break(c);
        bare_ = c;
        return Result::kMore;
      case Expect::kColon:
        if (c != ':') return Break(c);
        Emit(": ");
        expect_ = Expect::kValue;
        return Result::kMore;
      case Expect::kValue:
        if (c == '{' || c == '[') return open_.size() < kMaxDepth ? Open(c) : Break(c);
        if (c == ']' && !in_object && !comma_) return Close();
        if (c == '"') return BeginJsonString();
        if (c == ',' || c == '}' || c == ']' || c == ':') return Break(c);
        bare_ = c;
        return Result::kMore;
      case Expect::kCommaOrEnd:
        if (c == (in_object ? '}' : ']')) return Close();
        if (c != ',') return Break(c);
        Emit(", ");
        comma_ = true;
        expect_ = in_object ? Expect::kKey : Expect::kValue;
        return Result::kMore;
    }
    return Result::kMore;
  }

  Result Quote() {
    if (!bare_.empty() || (!in_quotes_ && expect_ != Expect::kKey && expect_ != Expect::kValue)) {
      std::string marker(context_.syntax.quote);
      return Break(0, marker);
    }
    in_quotes_ = !in_quotes_;
    Emit("\"");
    if (!in_quotes_) AfterItem();
    return Result::kMore;
  }

  Result BeginJsonString() {
    in_json_string_ = true;
    Emit("\"");
    return Result::kMore;
  }

  Result JsonStringByte(char c) {
    std::string text;
    AppendRepaired(c, true, text);
    Emit(text);
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_json_string_ = false;
      AfterItem();
    }
    return Result::kMore;
  }

  void EndBare() {
    const std::string_view text = AsciiTrim(bare_);
    std::string json;
    if (expect_ == Expect::kValue && IsJsonAtom(text)) {
      json = text;
    } else if (expect_ == Expect::kValue && (text == "True" || text == "False")) {
      json = AsciiLower(text);
    } else if (expect_ == Expect::kValue && text == "None") {
      json = "null";
    } else {
      json = "\"";
      for (const char c : text) AppendJsonEscaped(c, json);
      json += '"';
    }
    Emit(json);
    bare_.clear();
    AfterItem();
  }

  void AfterItem() {
    expect_ = expect_ == Expect::kKey ? Expect::kColon : Expect::kCommaOrEnd;
    comma_ = false;
  }

  Result Open(char c) {
    open_ += c;
    Emit({&c, 1});
    expect_ = c == '{' ? Expect::kKey : Expect::kValue;
    comma_ = false;
    return Result::kMore;
  }

  Result Close() {
    const char closing = open_.back() == '{' ? '}' : ']';
    Emit({&closing, 1});
    open_.pop_back();
    expect_ = Expect::kCommaOrEnd;
    comma_ = false;
    return open_.empty() ? End(true, "") : Result::kMore;
  }

  // No longer JSON: what comes is handed on as it is, from `c` or `text` on, until a closing marker.
  Result Break(char c, std::string_view text = {}) {
    broken_ = true;
    Emit(bare_);
    bare_.clear();
    held_.insert(0, text);
    if (c != 0) held_.insert(held_.begin(), c);
    return Result::kMore;
  }

  void Emit(std::string_view text) {
    context_.sink.Arguments(text);
    for (const char c : text) {
      if (check_ == JsonScanner::Result::kMore) check_ = scanner_.Feed(c);
    }
  }

  // `whole` only if what was handed on is JSON: strings written as plain JSON come with escapes of their own.
  Result End(bool whole, std::string rest) {
    context_.sink.End(whole && check_ == JsonScanner::Result::kDone);
    replay_ = std::move(rest);
    return Result::kDone;
  }

  const CallContext& context_;
  const CallRules rules_;
  std::string head_, held_, bare_, open_;
  JsonScanner scanner_;  // of what was handed on
  JsonScanner::Result check_ = JsonScanner::Result::kMore;
  Expect expect_ = Expect::kKey;
  bool broken_ = false, comma_ = false, in_quotes_ = false, in_json_string_ = false, escaped_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakeGemmaReader(const CallContext& context, CallRules rules) {
  return std::make_unique<GemmaReader>(context, rules);
}

}  // namespace nunspark::text
