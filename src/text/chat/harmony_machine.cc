// gpt-oss: messages of a header and a body, each in a channel.
//
//   <|start|>assistant<|channel|>analysis<|message|>..<|end|>                          reasoning
//   <|start|>assistant<|channel|>commentary to=functions.N <|constrain|>json<|message|>{..}<|call|>
//   <|start|>assistant<|channel|>final<|message|>..<|return|>                          the answer
//
// The prompt ends with "<|start|>assistant", so that the output begins inside a header.
#include <algorithm>

#include "text/chat/call_reader.h"

namespace nunspark::text {
namespace {

constexpr size_t kMaxHeaderBytes = 1000;
enum : size_t { kChannel, kMessage, kConstrain, kStart, kEnd, kCall, kReturn };  // indices of kHarmonyMarkers

constexpr ToolSyntax kSyntax = {.family = ToolFamily::kHarmony, .name = "harmony"};

std::string_view Word(std::string_view text) { return text.substr(0, text.find_first_of(" \t\r\n<")); }

class HarmonyMachine : public OutputMachine {
 public:
  HarmonyMachine(OutputSink& sink, const ToolTable& tools, OutputStart start)
      : sink_(sink),
        tools_(tools),
        context_{sink,
                 tools,
                 kSyntax,
                 {kHarmonyMarkers[kEnd], kHarmonyMarkers[kCall], kHarmonyMarkers[kReturn], kHarmonyMarkers[kStart],
                  kHarmonyMarkers[kChannel]}} {
    if (start == OutputStart::kReasoning) EnterBody(State::kReasoning);
    if (start == OutputStart::kContent) EnterBody(State::kContent);
  }

  void Finish(OutputEnd end) override {
    Drain();
    // What is held may be the beginning of markup, and then so is the white space before it.
    const bool in_marker = end == OutputEnd::kCut && !held_.empty();
    if (in_marker) held_.clear();
    if (state_ == State::kArguments) {
      stream_->Finish(end);
    } else if (state_ == State::kBeforeArguments) {
      if (end == OutputEnd::kCut) return;
      // An end right after the header: the call's name is known, its arguments are not.
      sink_.Begin(name_);
      sink_.Arguments(held_);
      sink_.End(false);
    } else if (state_ == State::kHeader && !(first_header_ && held_.find("|>") == std::string::npos)) {
      EndHeader();
    } else {
      const std::string rest = std::exchange(held_, {});
      if (state_ == State::kHeader || (state_ == State::kBetween && !rest.empty())) EnterBody(State::kContent);
      for (const char c : rest) Write(text_.Add(c));
      if (state_ != State::kBetween && !in_marker) Write(text_.TakeSpace());
    }
  }

  bool in_reasoning() const override { return state_ == State::kReasoning; }
  bool unfinished_reasoning() const override {
    const bool between = state_ == State::kHeader || state_ == State::kBetween;
    return in_reasoning() || (between && last_body_ == State::kReasoning);
  }

 protected:
  void Byte(char c) override {
    switch (state_) {
      case State::kHeader: return HeaderByte(c);
      case State::kBetween: return BetweenByte(c);
      case State::kContent:
      case State::kReasoning: return BodyByte(c);
      case State::kBeforeArguments: return BeforeArguments(c);
      case State::kArguments: return ArgumentByte(c);
    }
  }

 private:
  enum class State { kHeader, kBetween, kContent, kReasoning, kBeforeArguments, kArguments };

  void HeaderByte(char c) {
    held_ += c;
    if (first_header_ && !PlausibleHeader()) {
      // No harmony: special tokens were left out, or the model does not know its format.
      const std::string text = std::exchange(held_, {});
      EnterBody(State::kContent);
      text_ = TrimmedText();
      PutBack(text);
      return;
    }
    for (const size_t which : {kMessage, kStart, kEnd, kCall, kReturn}) {
      if (!held_.ends_with(kHarmonyMarkers[which])) continue;
      held_.resize(held_.size() - kHarmonyMarkers[which].size());
      if (which == kMessage) {
        BeginBody();
      } else {
        EndHeader();
        if (which == kStart) EnterHeader();
      }
      return;
    }
    if (held_.size() > kMaxHeaderBytes) BeginBody();
  }

  bool PlausibleHeader() const {
    const std::string_view text = AsciiTrim(held_);
    const auto could_be = [&](std::string_view start) { return start.starts_with(text) || text.starts_with(start); };
    return could_be("to=") || std::any_of(kHarmonyMarkers.begin(), kHarmonyMarkers.end(), could_be);
  }

  // A header that was not followed by a message: its words are no answer, but not lost.
  void EndHeader() {
    std::string words = std::exchange(held_, {});
    for (const std::string_view marker : kHarmonyMarkers) {
      for (size_t at = words.find(marker); at != std::string::npos; at = words.find(marker))
        words.erase(at, marker.size());
    }
    std::string_view trimmed = AsciiTrim(words);
    if (trimmed.starts_with("assistant")) trimmed = AsciiTrim(trimmed.substr(9));
    if (!trimmed.empty() && trimmed != "analysis" && trimmed != "commentary" && trimmed != "final") {
      EnterBody(State::kReasoning);
      for (const char c : trimmed) Write(text_.Add(c));
    }
    EnterBetween();
  }

  void BeginBody() {
    const std::string header = std::exchange(held_, {});
    const size_t channel_at = header.find(kHarmonyMarkers[kChannel]);
    const std::string_view role = first_header_ ? std::string_view() : Word(AsciiTrim(header));
    std::string_view channel;
    if (channel_at != std::string::npos) {
      channel = AsciiTrim(std::string_view(header).substr(channel_at + kHarmonyMarkers[kChannel].size()));
      const size_t letters = static_cast<size_t>(
          std::find_if(channel.begin(), channel.end(), [](char c) { return c < 'a' || c > 'z'; }) - channel.begin());
      channel = channel.substr(0, letters);
    }
    const size_t recipient_at = header.find("to=");
    if (recipient_at != std::string::npos && !tools_.empty()) {
      std::string_view recipient = Word(std::string_view(header).substr(recipient_at + 3));
      const bool function = recipient.starts_with("functions.");
      if (function) recipient.remove_prefix(10);
      if (IsToolName(recipient) && (function || tools_.Has(recipient))) {
        name_ = recipient;
        first_header_ = false;
        last_body_ = state_ = State::kBeforeArguments;
        return;
      }
    }
    // What another role says, and tools of which the request knows nothing, is no answer.
    const bool other_role = !role.empty() && role != "assistant";
    EnterBody(other_role || channel == "analysis" ? State::kReasoning : State::kContent);
  }

  void BetweenByte(char c) {
    if (held_.empty() && IsAsciiSpace(c)) return;
    held_ += c;
    const MarkerMatch match = MatchMarkers(held_, kHarmonyMarkers);
    if (match.kind == MarkerMatch::Kind::kPartial) return;
    if (match.kind == MarkerMatch::Kind::kFull) {
      OnMarker(match.index);
    } else {
      const std::string text = std::exchange(held_, {});
      EnterBody(State::kContent);
      PutBack(text);
    }
  }

  void BodyByte(char c) {
    held_ += c;
    while (!held_.empty()) {
      const MarkerMatch match = MatchMarkers(held_, kHarmonyMarkers);
      if (match.kind == MarkerMatch::Kind::kPartial) return;
      if (match.kind == MarkerMatch::Kind::kFull) return OnMarker(match.index);
      Write(text_.Add(held_.front()));
      held_.erase(0, 1);
    }
  }

  // Outside headers.
  void OnMarker(size_t which) {
    held_.clear();
    switch (which) {
      case kStart: return EnterHeader();
      case kChannel:
        EnterHeader();
        held_ = "assistant" + std::string(kHarmonyMarkers[kChannel]);
        return;
      case kMessage:
        if (state_ == State::kBetween) EnterBody(State::kContent);
        return;
      case kConstrain: return;
      default: EnterBetween();
    }
  }

  void BeforeArguments(char c) {
    if (held_.empty() && IsAsciiSpace(c)) return;
    held_ += c;
    const MarkerMatch match = MatchMarkers(held_, context_.stops);
    if (match.kind == MarkerMatch::Kind::kPartial) return;
    if (match.kind == MarkerMatch::Kind::kFull) {
      sink_.Begin(name_);
      sink_.Arguments("{}");
      sink_.End(true);
    } else if (held_ == "{") {
      sink_.Begin(name_);
      stream_ = std::make_unique<ArgumentStream>(context_);
      state_ = State::kArguments;
      PutBack(std::exchange(held_, {}));
      return;
    }
    const std::string text = std::exchange(held_, {});
    if (match.kind == MarkerMatch::Kind::kFull) {
      EnterBetween();
    } else {
      EnterBody(State::kContent);
    }
    PutBack(text);
  }

  void ArgumentByte(char c) {
    if (stream_->Feed(c) == CallReader::Result::kMore) return;
    const std::string rest = stream_->TakeReplay();
    stream_.reset();
    EnterBetween();
    PutBack(rest);
  }

  void EnterHeader() {
    first_header_ = false;
    state_ = State::kHeader;
    held_.clear();
  }

  void EnterBetween() {
    first_header_ = false;
    state_ = State::kBetween;
    held_.clear();
  }

  void EnterBody(State kind) {
    first_header_ = false;
    last_body_ = state_ = kind;
    held_.clear();
    text_.Start();
    separate_ = kind == State::kContent ? any_content_ : any_reasoning_;
  }

  void Write(std::string_view text) {
    if (text.empty()) return;
    const bool reasoning = state_ == State::kReasoning;
    // Two messages of one kind are two paragraphs.
    const std::string_view gap = std::exchange(separate_, false) ? "\n\n" : "";
    (reasoning ? any_reasoning_ : any_content_) = true;
    if (reasoning) {
      sink_.Reasoning(gap);
      sink_.Reasoning(text);
    } else {
      sink_.Content(gap);
      sink_.Content(text);
    }
  }

  OutputSink& sink_;
  const ToolTable& tools_;
  const CallContext context_;
  State state_ = State::kHeader, last_body_ = State::kHeader;
  bool first_header_ = true;
  std::string held_;  // the header, or what could become a marker
  std::string name_;
  TrimmedText text_;
  bool any_content_ = false, any_reasoning_ = false, separate_ = false;
  std::unique_ptr<ArgumentStream> stream_;
};

}  // namespace

std::unique_ptr<OutputMachine> MakeHarmonyMachine(OutputSink& sink, const ToolTable& tools, OutputStart start) {
  return std::make_unique<HarmonyMachine>(sink, tools, start);
}

}  // namespace nunspark::text
