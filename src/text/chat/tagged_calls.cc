// Calls whose arguments stand in tags: <function=N><parameter=K>V</parameter></function> and its relatives, and GLM's
// N<arg_key>K</arg_key><arg_value>V</arg_value>. Values become JSON by the tool's schema: strings as they come,
// anything else once it is whole.
#include "base/ascii.h"
#include "base/json_text.h"
#include "text/chat/call_reader.h"

namespace nunspark::text {
namespace {

constexpr size_t kMaxNameBytes = 256;

// The JSON types a value may have, as bits. None: unknown.
enum : unsigned { kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kObject = 16, kArray = 32 };
constexpr unsigned kNotString = kNumber | kBoolean | kNull | kObject | kArray;

unsigned TypeNamed(std::string_view name) {
  if (name == "string") return kString;
  if (name == "number" || name == "integer") return kNumber;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  if (name == "object") return kObject;
  return name == "array" ? kArray : 0u;
}

unsigned TypeOf(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_bool()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_object() ? kObject : kArray;
}

unsigned TypesOfSchema(const Json* schema, int depth = 0) {
  if (schema == nullptr || !schema->is_object() || depth > 8) return 0;
  if (const Json* type = schema->Find("type")) {
    if (type->is_string()) return TypeNamed(type->as_string());
    unsigned types = 0;
    for (const Json& one : type->is_array() ? type->as_array() : Json::Array()) {
      if (one.is_string()) types |= TypeNamed(one.as_string());
    }
    return types;
  }
  if (const Json* constant = schema->Find("const")) return TypeOf(*constant);
  unsigned types = 0;
  if (const Json* values = schema->Find("enum"); values != nullptr && values->is_array()) {
    for (const Json& value : values->as_array()) types |= TypeOf(value);
    return types;
  }
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    const Json* choices = schema->Find(key);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const Json& choice : choices->as_array()) {
      const unsigned one = TypesOfSchema(&choice, depth + 1);
      if (one == 0) return 0;
      types |= one;
    }
  }
  return types;
}

// `text` as JSON of one of `types`; a string when it is none.
std::string ToJson(std::string_view text, unsigned types) {
  const std::string_view trimmed = AsciiTrim(text);
  const unsigned wanted = (types == 0 ? kNotString : types) & kNotString;
  if (const std::optional<Json> parsed = ParseJsonValue(trimmed);
      parsed.has_value() && (TypeOf(*parsed) & wanted) != 0) {
    return std::string(trimmed);
  }
  if ((wanted & kBoolean) != 0 && (trimmed == "True" || trimmed == "False")) return AsciiLower(trimmed);
  if ((wanted & kNull) != 0 && trimmed == "None") return "null";
  std::string out = "\"";
  for (const char c : text) AppendJsonEscaped(c, out);
  return out + '"';
}

class TaggedReader : public CallReader {
 public:
  TaggedReader(const CallContext& context, CallBody body, CallRules rules)
      : context_(context),
        tag_(context.syntax.tag),
        rules_(rules),
        state_(body == CallBody::kTagName || tag_.call_open.empty() ? State::kName : State::kOpen) {}

  Result Feed(char c) override {
    switch (state_) {
      case State::kOpen: return Open(c);
      case State::kName: return tag_.name_end.empty() ? NameBeforeTag(c) : Name(c);
      case State::kBetween: return Between(c);
      case State::kKey: return Key(c);
      case State::kToValue: return ToValue(c);
      case State::kValue: return Value(c);
      case State::kJson: return JsonArguments(c);
    }
    return Result::kReject;
  }

  Result Finish(OutputEnd end) override {
    if (!context_.sink.call_open()) return Result::kReject;
    if (state_ == State::kJson) return stream_->Finish(end);
    // Of one that was cut, arguments may be missing: they must not look whole.
    if (state_ == State::kBetween && end == OutputEnd::kComplete) return Close(true);
    if (state_ == State::kValue && end == OutputEnd::kComplete) {
      // An end inside a value: what there is of it is handed on.
      while (!held_.empty()) ValueByte(TakeHeld());
      context_.sink.Arguments(value_);
    }
    context_.sink.End(false);
    return Result::kDone;
  }

 private:
  enum class State { kOpen, kName, kBetween, kKey, kToValue, kValue, kJson };

  Result Open(char c) {
    if (held_.empty() && IsAsciiSpace(c)) return Result::kMore;
    held_ += c;
    const MarkerMatch match = MatchMarkers(held_, {{tag_.call_open}});
    if (match.kind == MarkerMatch::Kind::kNone) return Result::kReject;
    if (match.kind == MarkerMatch::Kind::kFull) Enter(State::kName);
    return Result::kMore;
  }

  Result Name(char c) {
    name_ += c;
    if (!name_.ends_with(tag_.name_end)) {
      return c == '\n' || c == '<' || name_.size() > kMaxNameBytes ? Result::kReject : Result::kMore;
    }
    name_.resize(name_.size() - tag_.name_end.size());
    name_ = AsciiTrim(std::string_view(name_).substr(0, name_.find('"')));
    Enter(State::kBetween);
    return NameAllowed() ? Result::kMore : Result::kReject;
  }

  Result NameBeforeTag(char c) {
    held_ += c;
    while (!held_.empty()) {
      const MarkerMatch match = MatchMarkers(held_, {{tag_.param_open, tag_.call_close}});
      if (match.kind == MarkerMatch::Kind::kPartial) return Result::kMore;
      if (match.kind == MarkerMatch::Kind::kFull) {
        name_ = AsciiTrim(std::string(name_));
        if (!NameAllowed()) return Result::kReject;
        return Tag(match.index);
      }
      name_ += TakeHeld();
      if (name_.size() > kMaxNameBytes) return Result::kReject;
    }
    return Result::kMore;
  }

  bool NameAllowed() const { return IsToolName(name_) && (!rules_.known_only || context_.tools.Has(name_)); }

  Result Between(char c) {
    if (held_.empty() && IsAsciiSpace(c)) return Result::kMore;
    held_ += c;
    const MarkerMatch match = MatchMarkers(held_, {{tag_.param_open, tag_.call_close}});
    if (match.kind == MarkerMatch::Kind::kPartial) return Result::kMore;
    if (match.kind == MarkerMatch::Kind::kFull) return Tag(match.index);
    const bool begun = context_.sink.call_open();
    if (!begun && held_ == "{" && !tag_.name_end.empty()) {
      context_.sink.Begin(name_);
      stream_ = std::make_unique<ArgumentStream>(context_);
      Enter(State::kJson);
      return JsonArguments(c);
    }
    return begun ? Broken(std::move(held_)) : Result::kReject;
  }

  // Entered with a parameter's opening tag (0) or the call's closing one.
  Result Tag(size_t which) {
    if (!context_.sink.call_open()) context_.sink.Begin(name_);
    if (which != 0) return Close(true);
    key_.clear();
    Enter(State::kKey);
    return Result::kMore;
  }

  Result Key(char c) {
    key_ += c;
    if (!key_.ends_with(tag_.key_end)) {
      return c == '\n' || key_.size() > kMaxNameBytes ? Broken(std::string(tag_.param_open) + key_) : Result::kMore;
    }
    key_.resize(key_.size() - tag_.key_end.size());
    const size_t quote = tag_.param_open.ends_with('"') ? key_.find('"') : std::string::npos;
    const std::string attributes = quote == std::string::npos ? "" : key_.substr(quote + 1);
    key_ = AsciiTrim(std::string_view(key_).substr(0, quote));
    types_ = TypesOfSchema(context_.tools.FindArgument(name_, key_));
    if (attributes.find("string=\"true\"") != std::string::npos) types_ = kString;
    if (attributes.find("string=\"false\"") != std::string::npos) types_ = kNotString;
    if (!tag_.value_open.empty()) {
      Enter(State::kToValue);
    } else {
      BeginValue();
    }
    return Result::kMore;
  }

  Result ToValue(char c) {
    if (held_.empty() && IsAsciiSpace(c)) return Result::kMore;
    held_ += c;
    const MarkerMatch match = MatchMarkers(held_, {{tag_.value_open}});
    if (match.kind == MarkerMatch::Kind::kNone)
      return Broken(std::string(tag_.param_open) + key_ + std::string(tag_.key_end) + held_);
    if (match.kind == MarkerMatch::Kind::kFull) BeginValue();
    return Result::kMore;
  }

  void BeginValue() {
    std::string text = any_argument_ ? ", \"" : "{\"";
    for (const char c : key_) AppendJsonEscaped(c, text);
    text += "\": ";
    any_argument_ = true;
    value_.clear();
    value_start_ = true;
    trim_newline_ = newline_held_ = false;
    if (types_ == kString) text += '"';
    context_.sink.Arguments(text);
    Enter(State::kValue);
  }

  Result Value(char c) {
    held_ += c;
    while (!held_.empty()) {
      const MarkerMatch match = MatchMarkers(held_, {{tag_.param_close}});
      if (match.kind == MarkerMatch::Kind::kPartial) return Result::kMore;
      if (match.kind == MarkerMatch::Kind::kFull) {
        context_.sink.Arguments(types_ == kString ? "\"" : ToJson(value_, types_));
        Enter(State::kBetween);
        return Result::kMore;
      }
      ValueByte(TakeHeld());
    }
    return Result::kMore;
  }

  // A line break right after the opening tag belongs to the markup, and then so does one before the closing tag.
  void ValueByte(char c) {
    if (std::exchange(value_start_, false) && c == '\n') {
      trim_newline_ = true;
      return;
    }
    if (std::exchange(newline_held_, false)) ValueText('\n');
    if (c == '\n' && trim_newline_) {
      newline_held_ = true;
    } else {
      ValueText(c);
    }
  }

  void ValueText(char c) {
    if (types_ != kString) {
      value_ += c;
      return;
    }
    std::string text;
    AppendJsonEscaped(c, text);
    context_.sink.Arguments(text);
  }

  Result JsonArguments(char c) {
    const Result result = stream_->Feed(c);
    if (result == Result::kDone) replay_ = stream_->TakeReplay();
    return result;
  }

  // Ends the call where it went wrong; `rest` is text again.
  Result Broken(std::string rest) {
    replay_ = std::move(rest);
    return Close(true);
  }

  Result Close(bool whole) {
    context_.sink.Arguments(any_argument_ ? "}" : "{}");
    context_.sink.End(whole);
    return Result::kDone;
  }

  void Enter(State state) {
    state_ = state;
    held_.clear();
  }

  char TakeHeld() {
    const char c = held_.front();
    held_.erase(0, 1);
    return c;
  }

  const CallContext& context_;
  const TagSyntax& tag_;
  const CallRules rules_;
  State state_;
  std::string held_, name_, key_, value_;
  unsigned types_ = 0;
  bool any_argument_ = false, value_start_ = false, trim_newline_ = false, newline_held_ = false;
  std::unique_ptr<ArgumentStream> stream_;
};

}  // namespace

std::unique_ptr<CallReader> MakeTaggedReader(const CallContext& context, CallBody body, CallRules rules) {
  return std::make_unique<TaggedReader>(context, body, rules);
}

}  // namespace nunspark::text
