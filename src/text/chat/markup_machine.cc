// Every format but harmony: text with blocks of reasoning and calls between markers.
#include <algorithm>

#include "text/chat/call_reader.h"

namespace nunspark::text {
namespace {

// What may be held before a call has begun. Beyond it the text is no call.
constexpr size_t kMaxHeldBytes = 32 << 10;

enum class Role { kThinkOpen, kThinkClose, kCall, kClosing, kDropped };

struct Marker {
  std::string text;
  Role role;
  CallOpening opening;
};

class MarkupMachine : public OutputMachine {
 public:
  MarkupMachine(OutputSink& sink, const ToolTable& tools, const OutputFormat& format, OutputStart start)
      : sink_(sink), tools_(tools), format_(format) {
    Add(format.think_open, Role::kThinkOpen);
    Add(format.think_close, Role::kThinkClose);
    for (const std::string& marker : format.dropped) Add(marker, Role::kDropped);
    if (!tools.empty() && format.tools != ToolFamily::kNone) AddSyntax(SyntaxOf(format.tools));
    if (start == OutputStart::kReasoning) BeginReasoning();
  }

  void Finish(OutputEnd end) override {
    const bool cut = end == OutputEnd::kCut;
    while (true) {
      Drain();
      if (reader_) {
        const CallReader::Result result = reader_->Finish(end);
        NoteEvents();
        if (result != CallReader::Result::kReject) {
          EndCall();
        } else if (cut) {
          return;
        } else {
          Reject();
        }
      } else if (cut && !held_.empty()) {
        return;
      } else if (!held_.empty()) {
        for (const char c : std::exchange(held_, {})) Write(text_.Add(c));
      } else {
        break;
      }
    }
    Write(text_.TakeSpace());
  }

  bool in_reasoning() const override { return in_reasoning_; }
  bool unfinished_reasoning() const override { return in_reasoning_; }

 protected:
  void Byte(char c) override {
    if (reader_) {
      CallByte(c);
      return;
    }
    held_ += c;
    while (!held_.empty() && !reader_) {
      const Marker* full = nullptr;
      const MarkerMatch::Kind kind = Match(&full);
      if (kind == MarkerMatch::Kind::kPartial) return;
      if (kind == MarkerMatch::Kind::kFull) {
        held_.clear();
        OnMarker(*full);
        return;
      }
      const char first = held_.front();
      held_.erase(0, 1);
      TextByte(first);
    }
    if (!held_.empty()) PutBack(std::exchange(held_, {}));
  }

 private:
  void Add(std::string_view text, Role role, const CallOpening& opening = {}) {
    if (!text.empty()) markers_.push_back({std::string(text), role, opening});
  }

  void AddSyntax(const ToolSyntax& syntax) {
    context_.emplace(CallContext{sink_, tools_, syntax, {}});
    for (const CallOpening& opening : syntax.openings) Add(opening.marker, Role::kCall, opening);
    for (const std::string_view marker : syntax.closings) Add(marker, Role::kClosing);
    for (const std::string_view marker : syntax.dropped) Add(marker, Role::kDropped);
    for (const CallOpening& opening : syntax.openings) {
      if (!opening.marker.empty()) context_->stops.push_back(opening.marker);
    }
    for (const auto& some : {syntax.closings, syntax.dropped}) {
      std::copy_if(some.begin(), some.end(), std::back_inserter(context_->stops),
                   [](auto stop) { return !stop.empty(); });
    }
  }

  MarkerMatch::Kind Match(const Marker** full) const {
    bool partial = false;
    for (const Marker& marker : markers_) {
      if (!marker.text.starts_with(held_) || !Counts(marker.role)) continue;
      if (marker.text.size() == held_.size()) {
        *full = &marker;
        return MarkerMatch::Kind::kFull;
      }
      partial = true;
    }
    return partial ? MarkerMatch::Kind::kPartial : MarkerMatch::Kind::kNone;
  }

  bool Counts(Role role) const {
    switch (role) {
      // A template may have opened the block that the model opens again.
      case Role::kThinkOpen: return in_reasoning_ ? text_.at_start() : blank_ || format_.think_anywhere;
      case Role::kThinkClose: return in_reasoning_ || blank_ || format_.think_anywhere;
      case Role::kClosing: return !in_reasoning_ && sink_.call_count() > 0;
      case Role::kCall:
      case Role::kDropped: return !in_reasoning_;
    }
    return false;
  }

  void OnMarker(const Marker& marker) {
    switch (marker.role) {
      case Role::kThinkOpen: return BeginReasoning();
      case Role::kThinkClose: in_reasoning_ = false; break;
      case Role::kCall:
        marker_ = marker.text;
        call_made_ = false;
        reader_ = MakeReader(*context_, marker.opening.body, {.known_only = marker.opening.known_only});
        return;
      case Role::kClosing:
      case Role::kDropped: break;
    }
    text_.Start();
  }

  void BeginReasoning() {
    in_reasoning_ = true;
    text_.Start();
  }

  void TextByte(char c) {
    if (!in_reasoning_ && blank_ && context_.has_value() && context_->syntax.bare) {
      if (c == '{' || c == '[') {
        call_made_ = false;
        reader_ = MakeBareReader(*context_);
        CallByte(c);
        return;
      }
      // Llama's way to call more than once.
      if (c == ';' && sink_.call_count() > 0) return;
    }
    Write(text_.Add(c));
  }

  void CallByte(char c) {
    if (!sink_.call_open()) recorded_ += c;
    const CallReader::Result result = reader_->Feed(c);
    NoteEvents();
    if (result == CallReader::Result::kDone) {
      EndCall();
    } else if (result == CallReader::Result::kReject || recorded_.size() > kMaxHeldBytes) {
      Reject();
    }
  }

  // What was recorded has become part of a call.
  void NoteEvents() {
    if (events_ == sink_.call_events()) return;
    events_ = sink_.call_events();
    call_made_ = true;
    marker_.clear();
    recorded_.clear();
    text_.Start();
  }

  void EndCall() {
    const std::string rest = reader_->TakeReplay();
    reader_.reset();
    if (!rest.empty()) PutBack(rest);
    recorded_.clear();
  }

  // No call after all: its marker, or the first byte where there was none, is text; the rest is read again, and so is
  // what came after a call that stands.
  void Reject() {
    reader_.reset();
    const size_t literal = call_made_ ? 0 : std::max<size_t>(marker_.size(), 1);
    const std::string all = std::exchange(marker_, {}) + std::exchange(recorded_, {});
    for (const char c : all.substr(0, literal)) Write(text_.Add(c));
    if (all.size() > literal) PutBack(std::string_view(all).substr(literal));
  }

  void Write(std::string_view text) {
    if (in_reasoning_) {
      sink_.Reasoning(text);
    } else {
      sink_.Content(text);
      blank_ = blank_ && AsciiTrim(text).empty();
    }
  }

  OutputSink& sink_;
  const ToolTable& tools_;
  const OutputFormat& format_;
  std::vector<Marker> markers_;
  std::optional<CallContext> context_;
  std::unique_ptr<CallReader> reader_;
  TrimmedText text_;
  std::string held_;      // what could become a marker
  std::string marker_;    // the call's opening marker, until the call has begun
  std::string recorded_;  // what was read after it
  bool in_reasoning_ = false;
  bool blank_ = true;       // no text yet
  bool call_made_ = false;  // by this reader
  int events_ = 0;
};

}  // namespace

std::unique_ptr<OutputMachine> MakeMarkupMachine(OutputSink& sink, const ToolTable& tools, const OutputFormat& format,
                                                 OutputStart start) {
  return std::make_unique<MarkupMachine>(sink, tools, format, start);
}

}  // namespace nunspark::text
