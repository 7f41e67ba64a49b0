#include "text/tokenizer/decoder.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/valid_utf8.h"

namespace nunspark::text {
namespace {

constexpr uint64_t kDecodeSteps = 1 << 24;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// A stage of the chain. A token arrives as any number of Text calls and one EndToken; Finish comes once, at the end.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void Text(std::string_view part) = 0;
  virtual void EndToken() = 0;
  virtual void Finish() = 0;
};

class Output final : public Stage {
 public:
  void Text(std::string_view part) override { text += part; }
  void EndToken() override {}
  void Finish() override {}

  std::string text;
};

// Tokens whose characters all stand for bytes become those bytes, others stay; all become one token.
class ByteLevelStage final : public Stage {
 public:
  explicit ByteLevelStage(Stage& next) : next_(next) {}

  void Text(std::string_view part) override { token_ += part; }

  void EndToken() override {
    if (!AppendByteLevelDecoded(token_, bytes_)) bytes_ += token_;
    token_.clear();
    const size_t certain = bytes_.size() - IncompleteUtf8Suffix(bytes_);
    if (certain == 0) return;
    next_.Text(RepairUtf8(std::string_view(bytes_).substr(0, certain)));
    bytes_.erase(0, certain);
  }

  void Finish() override {
    if (!bytes_.empty()) next_.Text(RepairUtf8(bytes_));
    next_.EndToken();
    next_.Finish();
  }

 private:
  Stage& next_;
  std::string token_;
  std::string bytes_;  // not handed on yet: at most an incomplete character
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The byte of a "<0xNN>" token, -1 for other texts.
int ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : HexDigit(token[3]);  // the reference's number parser takes a plus sign
  const int low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// "<0xNN>" tokens: a run of them is the text it encodes, or one replacement character a byte when it is not UTF-8. So
// nothing of a run is certain before its end.
class ByteFallbackStage final : public Stage {
 public:
  explicit ByteFallbackStage(Stage& next) : next_(next) {}

  void Text(std::string_view part) override { token_ += part; }

  void EndToken() override {
    const int byte = ByteOfToken(token_);
    if (byte >= 0) {
      run_ += static_cast<char>(byte);
    } else {
      EndRun();
      next_.Text(token_);
      next_.EndToken();
    }
    token_.clear();
  }

  void Finish() override {
    EndRun();
    next_.Finish();
  }

 private:
  void EndRun() {
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      next_.Text(run_);
      next_.EndToken();
    } else {
      for (size_t i = 0; i < run_.size(); ++i) {
        next_.Text(kReplacementCharacter);
        next_.EndToken();
      }
    }
    run_.clear();
  }

  Stage& next_;
  std::string token_;
  std::string run_;
};

// All tokens become one.
class FuseStage final : public Stage {
 public:
  explicit FuseStage(Stage& next) : next_(next) {}
  void Text(std::string_view part) override { next_.Text(part); }
  void EndToken() override {}
  void Finish() override {
    next_.EndToken();
    next_.Finish();
  }

 private:
  Stage& next_;
};

class ReplaceStage final : public Stage {
 public:
  ReplaceStage(const Decoder::ReplaceStep& step, WorkLimit& work, Stage& next)
      : step_(step), work_(work), next_(next) {}

  void Text(std::string_view part) override { token_ += part; }

  void EndToken() override {
    matches_.clear();
    // A step that takes too much leaves the token as it is: decoding has no way to fail.
    const Span whole{0, static_cast<uint32_t>(token_.size())};
    if (!step_.pattern.FindMatches(token_, whole, work_, matches_).ok() || !PayForGrowth()) {
      matches_.clear();
    }
    size_t at = 0;
    for (const Span& match : matches_) {
      next_.Text(std::string_view(token_).substr(at, match.begin - at));
      next_.Text(step_.content);
      at = match.end;
    }
    next_.Text(std::string_view(token_).substr(at));
    next_.EndToken();
    token_.clear();
  }

  void Finish() override { next_.Finish(); }

 private:
  // Pays for what the token grows by; false when that is too much.
  bool PayForGrowth() {
    uint64_t removed = 0;
    for (const Span& match : matches_) removed += match.end - match.begin;
    return work_.Grow(removed, matches_.size() * step_.content.size()).ok();
  }

  const Decoder::ReplaceStep& step_;
  WorkLimit& work_;
  Stage& next_;
  std::string token_;
  std::vector<Span> matches_;
};

// Takes up to `start` characters off the start of every token and up to `stop` off its end.
class StripStage final : public Stage {
 public:
  StripStage(const Decoder::StripStep& step, Stage& next) : step_(step), next_(next), start_left_(step.start) {}

  void Text(std::string_view part) override {
    while (start_left_ > 0 && !part.empty()) {
      if (!part.starts_with(step_.content)) {
        start_left_ = 0;
        break;
      }
      part.remove_prefix(step_.content.size());
      --start_left_;
    }
    size_t kept = part.size();
    int64_t held = 0;
    while (part.substr(0, kept).ends_with(step_.content)) {
      kept -= step_.content.size();
      ++held;
    }
    if (kept != 0) {
      Release(held_);
      next_.Text(part.substr(0, kept));
    }
    held_ += held;
    Release(held_ - step_.stop);
  }

  void EndToken() override {
    held_ = 0;
    start_left_ = step_.start;
    next_.EndToken();
  }

  void Finish() override { next_.Finish(); }

 private:
  // Hands on that many of the characters that are held, if any.
  void Release(int64_t count) {
    for (; count > 0; --count) {
      next_.Text(step_.content);
      --held_;
    }
  }

  const Decoder::StripStep& step_;
  Stage& next_;
  int64_t start_left_;
  int64_t held_ = 0;  // copies of the character that may be the end of the token
};

// Replacement characters become spaces, those of the first token vanish.
class MetaspaceStage final : public Stage {
 public:
  MetaspaceStage(const Decoder::MetaspaceStep& step, Stage& next) : step_(step), next_(next) {}

  void Text(std::string_view part) override {
    const bool drops = first_ && step_.drops_first;
    for (size_t at = 0;;) {
      const size_t found = part.find(step_.replacement, at);
      next_.Text(part.substr(at, found - at));
      if (found == std::string_view::npos) break;
      if (!drops) next_.Text(" ");
      at = found + step_.replacement.size();
    }
  }

  void EndToken() override {
    first_ = false;
    next_.EndToken();
  }

  void Finish() override { next_.Finish(); }

 private:
  const Decoder::MetaspaceStep& step_;
  Stage& next_;
  bool first_ = true;
};

// SentencePiece's own decoding: spaces come back, the dummy prefix goes, bytes become characters one by one.
class SentencePieceStage final : public Stage {
 public:
  SentencePieceStage(const Decoder::SentencePieceStep& step, Stage& next) : step_(step), next_(next) {}

  void Text(std::string_view part) override { token_ += part; }

  void EndToken() override {
    const int byte = step_.has_bytes ? ByteOfToken(token_) : -1;
    if (byte >= 0) {
      bytes_ += static_cast<char>(byte);
      EmitBytes(Rest::kWaits);
    } else {
      EmitBytes(Rest::kIsBad);
      if (dropped_ || any_text_) at_start_ = false;
      EmitPiece();
    }
    token_.clear();
  }

  void Finish() override {
    EmitBytes(Rest::kIsBad);
    next_.EndToken();
    next_.Finish();
  }

 private:
  enum class Rest { kWaits, kIsBad };

  void Emit(std::string_view text) {
    any_text_ = any_text_ || !text.empty();
    next_.Text(text);
  }

  void EmitPiece() {
    dropped_ = false;
    const auto replaced = step_.replaced.find(token_);
    if (replaced != step_.replaced.end()) {
      Emit(replaced->second);
      return;
    }
    std::string_view piece = token_;
    if (at_start_ && (step_.drops_first_space || step_.drops_leading_spaces) && piece.starts_with(kSpmSpace)) {
      piece.remove_prefix(kSpmSpace.size());
      dropped_ = !step_.drops_leading_spaces;
    }
    for (size_t at = 0;;) {
      const size_t found = piece.find(kSpmSpace, at);
      Emit(piece.substr(at, found - at));
      if (found == std::string_view::npos) break;
      Emit(" ");
      at = found + kSpmSpace.size();
    }
  }

  // Complete characters, and one replacement character for every byte that begins none.
  void EmitBytes(Rest rest) {
    size_t at = 0;
    while (at < bytes_.size()) {
      const Utf8Char c = DecodeUtf8(bytes_, at);
      if (c.valid) {
        Emit(std::string_view(bytes_).substr(at, c.bytes));
        at += c.bytes;
        continue;
      }
      const std::string_view left = std::string_view(bytes_).substr(at);
      if (rest == Rest::kWaits && IncompleteUtf8Suffix(left) == left.size()) break;
      Emit(kReplacementCharacter);
      ++at;
    }
    bytes_.erase(0, at);
  }

  const Decoder::SentencePieceStep& step_;
  Stage& next_;
  std::string token_;
  std::string bytes_;
  bool at_start_ = true;
  bool dropped_ = false;  // the last piece lost the dummy prefix
  bool any_text_ = false;
};

std::unique_ptr<Stage> NewStage(const Decoder::Step& step, WorkLimit& work, Stage& next) {
  struct Maker {
    WorkLimit& work;
    Stage& next;
    std::unique_ptr<Stage> operator()(const Decoder::ByteLevelStep&) const {
      return std::make_unique<ByteLevelStage>(next);
    }
    std::unique_ptr<Stage> operator()(const Decoder::ByteFallbackStep&) const {
      return std::make_unique<ByteFallbackStage>(next);
    }
    std::unique_ptr<Stage> operator()(const Decoder::FuseStep&) const { return std::make_unique<FuseStage>(next); }
    std::unique_ptr<Stage> operator()(const Decoder::ReplaceStep& s) const {
      return std::make_unique<ReplaceStage>(s, work, next);
    }
    std::unique_ptr<Stage> operator()(const Decoder::StripStep& s) const {
      return std::make_unique<StripStage>(s, next);
    }
    std::unique_ptr<Stage> operator()(const Decoder::MetaspaceStep& s) const {
      return std::make_unique<MetaspaceStage>(s, next);
    }
    std::unique_ptr<Stage> operator()(const Decoder::SentencePieceStep& s) const {
      return std::make_unique<SentencePieceStage>(s, next);
    }
  };
  return std::visit(Maker{work, next}, step);
}

class ChainRun final : public DecodeRun {
 public:
  ChainRun(const std::vector<Decoder::Step>& steps, bool joins_with_spaces) : joins_with_spaces_(joins_with_spaces) {
    first_ = &output_;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      stages_.push_back(NewStage(*step, work_, *first_));
      first_ = stages_.back().get();
    }
  }

  void Push(std::string_view token, std::string& out) override {
    if (joins_with_spaces_ && any_) first_->Text(" ");
    any_ = true;
    first_->Text(token);
    first_->EndToken();
    Take(out);
  }

  void Finish(std::string& out) override {
    first_->Finish();
    Take(out);
  }

 private:
  void Take(std::string& out) {
    out += output_.text;
    output_.text.clear();
  }

  const bool joins_with_spaces_;
  bool any_ = false;
  WorkLimit work_ = WorkLimit::OfSteps(kDecodeSteps);  // of all stages and tokens
  Output output_;
  std::vector<std::unique_ptr<Stage>> stages_;  // last step first
  Stage* first_;
};

}  // namespace

Result<Decoder> Decoder::FromJson(const JsonSection& section) {
  Decoder decoder;
  decoder.joins_with_spaces_ = false;
  RETURN_IF_ERROR(decoder.AppendSteps(section, 0));
  return decoder;
}

Decoder Decoder::ByteLevel() {
  Decoder decoder;
  decoder.joins_with_spaces_ = false;
  decoder.steps_.emplace_back(ByteLevelStep{});
  return decoder;
}

Decoder Decoder::SentencePiece(SentencePieceStep step) {
  Decoder decoder;
  decoder.joins_with_spaces_ = false;
  decoder.steps_.emplace_back(std::move(step));
  return decoder;
}

Status Decoder::AppendSteps(const JsonSection& section, int depth) {
  if (depth > kStepDepthMax || steps_.size() > kStepsMax) return section.Malformed("too many steps");
  ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> parts, section.Array("decoders", kStepsMax));
    for (const JsonSection& part : parts) RETURN_IF_ERROR(AppendSteps(part, depth + 1));
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevelStep{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallbackStep{});
  } else if (type == "Fuse") {
    steps_.emplace_back(FuseStep{});
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(const JsonSection pattern_section, section.Required("pattern"));
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(pattern_section));
    ASSIGN_OR_RETURN(std::string content, section.String("content"));
    steps_.emplace_back(ReplaceStep{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(std::string content, section.Character("content"));
    ASSIGN_OR_RETURN(const int64_t start, section.IntOr("start", 0, INT32_MAX, 0));
    ASSIGN_OR_RETURN(const int64_t stop, section.IntOr("stop", 0, INT32_MAX, 0));
    steps_.emplace_back(StripStep{std::move(content), start, stop});
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(std::string replacement, section.Character("replacement"));
    ASSIGN_OR_RETURN(const PrependScheme scheme, PrependSchemeFromJson(section));
    steps_.emplace_back(MetaspaceStep{std::move(replacement), scheme != PrependScheme::kNever});
  } else {
    return section.Unsupported(fmt::format("this build does not know the decoder '{}'", type));
  }
  return Status();
}

namespace {

// What AppendRunningBytes does for one step. `fused`: the steps before have made all tokens one.
struct RunningStep {
  std::string& text;
  bool& fused;

  Status operator()(const Decoder::ByteLevelStep&) const {
    std::string bytes;
    if (AppendByteLevelDecoded(text, bytes)) text = std::move(bytes);
    fused = true;
    return Status();
  }
  Status operator()(const Decoder::ByteFallbackStep&) const {
    const int byte = fused ? -1 : ByteOfToken(text);
    if (byte >= 0) text.assign(1, static_cast<char>(byte));
    return Status();
  }
  Status operator()(const Decoder::FuseStep&) const {
    fused = true;
    return Status();
  }
  Status operator()(const Decoder::ReplaceStep& step) const {
    if (fused) return UnsupportedError("the decoder replaces parts of the whole text");
    WorkLimit work = WorkLimit::OfSteps(kDecodeSteps);
    Output output;
    ReplaceStage stage(step, work, output);
    stage.Text(text);
    stage.EndToken();
    text = std::move(output.text);
    return Status();
  }
  Status operator()(const Decoder::StripStep& step) const {
    if (fused) return Status();  // the ends of the whole text only
    Output output;
    StripStage stage(step, output);
    stage.Text(text);
    stage.EndToken();
    text = std::move(output.text);
    return Status();
  }
  Status operator()(const Decoder::MetaspaceStep& step) const {
    ReplaceAll(step.replacement);
    return Status();
  }
  Status operator()(const Decoder::SentencePieceStep& step) const {
    fused = true;
    const int byte = step.has_bytes ? ByteOfToken(text) : -1;
    const auto replaced = step.replaced.find(text);
    if (byte >= 0) {
      text.assign(1, static_cast<char>(byte));
    } else if (replaced != step.replaced.end()) {
      text = replaced->second;
    } else {
      ReplaceAll(kSpmSpace);
    }
    return Status();
  }

  void ReplaceAll(std::string_view space) const {
    for (size_t at = text.find(space); at != std::string::npos; at = text.find(space, at + 1)) {
      text.replace(at, space.size(), " ");
    }
  }
};

}  // namespace

Status Decoder::AppendRunningBytes(std::string_view token, std::string& out) const {
  std::string text(joins_with_spaces_ ? " " : "");
  text += token;
  bool fused = false;
  for (const Step& step : steps_) RETURN_IF_ERROR(std::visit(RunningStep{text, fused}, step));
  out += text;
  return Status();
}

std::unique_ptr<DecodeRun> Decoder::NewRun() const { return std::make_unique<ChainRun>(steps_, joins_with_spaces_); }

}  // namespace nunspark::text
