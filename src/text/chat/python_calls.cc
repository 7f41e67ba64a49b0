// Calls written as Python: N(k=v), one after the other or in a list, perhaps inside print(). Read once the whole block
// is there: what is not made of calls with literal arguments alone is text.
#include <algorithm>

#include "base/ascii.h"
#include "base/json_text.h"
#include "text/chat/call_reader.h"

namespace nunspark::text {
namespace {

constexpr int kMaxDepth = 60;

struct PythonCall {
  std::string name, arguments;
};

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

class PythonText {
 public:
  PythonText(std::string_view text, const ToolTable& tools, bool known_only)
      : text_(text), tools_(tools), known_only_(known_only) {}

  std::optional<std::vector<PythonCall>> Calls() {
    std::vector<PythonCall> calls;
    Space();
    const bool list = Take('[');
    while (true) {
      Space();
      if (at_ == text_.size() || (list && text_[at_] == ']')) break;
      if (!Call(calls, 0)) return std::nullopt;
      Space();
      if (!Take(list ? ',' : ';') && list) break;
    }
    if (list && !Take(']')) return std::nullopt;
    Space();
    if (at_ != text_.size() || calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  bool Call(std::vector<PythonCall>& calls, int depth) {
    const std::string_view written = Name();
    if (written.empty() || depth > 1 || !Take('(')) return false;
    if (written == "print" && !tools_.Has(written)) {
      Space();
      if (!Call(calls, depth + 1)) return false;
      Space();
      return Take(')');
    }
    const std::string_view name = Resolve(written);
    if (!IsToolName(name) || (known_only_ && !tools_.Has(name))) return false;
    std::string arguments = "{";
    for (size_t position = 0;; ++position) {
      Space();
      if (Take(')')) break;
      if (position > 0) arguments += ", ";
      if (!Argument(name, position, arguments)) return false;
      Space();
      if (Take(')')) break;
      if (!Take(',')) return false;
    }
    calls.push_back({std::string(name), arguments + "}"});
    return true;
  }

  // "module.name" and "name.call" where that is how a tool is reached.
  std::string_view Resolve(std::string_view written) const {
    if (tools_.Has(written)) return written;
    if (written.ends_with(".call")) return written.substr(0, written.size() - 5);
    const std::string_view last = written.substr(written.rfind('.') + 1);
    return tools_.Has(last) ? last : written;
  }

  bool Argument(std::string_view name, size_t position, std::string& out) {
    const size_t start = at_;
    std::string key(Name());
    Space();
    if (key.empty() || !Take('=')) {
      // By position: the schema's order of properties.
      at_ = start;
      const Json* schema = tools_.Find(name);
      const Json* properties = schema == nullptr ? nullptr : schema->Find("properties");
      if (properties == nullptr || !properties->is_object() || position >= properties->as_object().size()) return false;
      key = properties->as_object()[position].first;
    }
    out += '"';
    for (const char c : key) AppendJsonEscaped(c, out);
    out += "\": ";
    Space();
    return Value(out, 0);
  }

  bool Value(std::string& out, int depth) {
    if (at_ == text_.size() || depth > kMaxDepth) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return String(out);
    if (c == '[' || c == '(') return Items(c == '[' ? ']' : ')', out, depth);
    if (c == '{') return Dictionary(out, depth);
    const size_t start = at_;
    while (at_ < text_.size() && (IsNameByte(text_[at_]) || text_[at_] == '+')) ++at_;
    const std::string_view atom = text_.substr(start, at_ - start);
    if (atom == "True" || atom == "False") {
      out += AsciiLower(atom);
    } else if (atom == "None") {
      out += "null";
    } else {
      out += atom;
      return IsJsonAtom(atom);
    }
    return true;
  }

  bool Items(char closing, std::string& out, int depth) {
    ++at_;
    out += '[';
    for (bool first = true;; first = false) {
      Space();
      if (Take(closing)) break;
      if (!first) out += ", ";
      if (!Value(out, depth + 1)) return false;
      Space();
      if (Take(closing)) break;
      if (!Take(',')) return false;
    }
    out += ']';
    return true;
  }

  bool Dictionary(std::string& out, int depth) {
    ++at_;
    out += '{';
    for (bool first = true;; first = false) {
      Space();
      if (Take('}')) break;
      if (!first) out += ", ";
      if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\'') || !String(out)) return false;
      Space();
      if (!Take(':')) return false;
      out += ": ";
      Space();
      if (!Value(out, depth + 1)) return false;
      Space();
      if (Take('}')) break;
      if (!Take(',')) return false;
    }
    out += '}';
    return true;
  }

  bool String(std::string& out) {
    const char quote = text_[at_];
    const std::string triple(3, quote);
    const bool long_form = text_.substr(at_).starts_with(triple);
    at_ += long_form ? 3 : 1;
    out += '"';
    while (at_ < text_.size()) {
      if (long_form ? text_.substr(at_).starts_with(triple) : text_[at_] == quote) {
        at_ += long_form ? 3 : 1;
        out += '"';
        return true;
      }
      const char c = text_[at_++];
      if (c == '\n' && !long_form) return false;
      if (c != '\\') {
        AppendJsonEscaped(c, out);
      } else if (!Escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool Escape(std::string& out) {
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "ntr\\'\"bf", kTo = "\n\t\r\\'\"\b\f";
    const size_t which = kFrom.find(c);
    if (which < kTo.size()) {
      AppendJsonEscaped(kTo[which], out);
    } else if (c == 'u' || c == 'x') {
      const size_t digits = c == 'u' ? 4 : 2;
      uint32_t code_point = 0;
      for (size_t i = 0; i < digits; ++i, ++at_) {
        const size_t value =
            at_ < text_.size() ? std::string_view("0123456789abcdef").find(AsciiLower(text_.substr(at_, 1))) : 16;
        if (value >= 16) return false;
        code_point = code_point * 16 + static_cast<uint32_t>(value);
      }
      // JSON's own escape: surrogates stay the pairs they are.
      out += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[(code_point >> shift) & 15];
    } else if (c != '\n') {
      // Python keeps the backslash of what is no escape.
      out += "\\\\";
      AppendJsonEscaped(c, out);
    }
    return true;
  }

  std::string_view Name() {
    const size_t start = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  void Space() {
    while (at_ < text_.size() && IsAsciiSpace(text_[at_])) ++at_;
  }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  const std::string_view text_;
  const ToolTable& tools_;
  const bool known_only_;
  size_t at_ = 0;
};

class PythonReader : public CallReader {
 public:
  PythonReader(const CallContext& context, CallRules rules) : context_(context), rules_(rules) {
    ends_ = context.stops;
    ends_.push_back(context.syntax.block_end);
  }

  Result Feed(char c) override {
    code_ += c;
    if (rules_.strict && !seen_call_ && !CouldBeCall(c)) return Result::kReject;
    for (const std::string_view end : ends_) {
      if (end.empty() || !code_.ends_with(end)) continue;
      code_.resize(code_.size() - end.size());
      // Llama 4's markers with nothing between.
      if (AsciiTrim(code_).empty() && IsClosing(end)) return Result::kDone;
      if (end != context_.syntax.block_end) replay_ = end;
      return Emit();
    }
    return Result::kMore;
  }

  Result Finish(OutputEnd end) override {
    if (end == OutputEnd::kCut) DropPartOfEnd();
    return Emit();
  }

 private:
  // Of an answer without a marker: [N( with a known N, as early as can be told.
  bool CouldBeCall(char c) {
    std::string_view name = AsciiTrim(code_);
    if (!name.starts_with('[')) return false;
    name = AsciiTrim(name.substr(1));
    if (c == '(') {
      name.remove_suffix(1);
      seen_call_ = true;
      return context_.tools.Has(name);
    }
    return context_.tools.HasPrefix(name);
  }

  void DropPartOfEnd() {
    for (const std::string_view end : ends_) {
      for (size_t bytes = end.size(); bytes-- > 1;) {
        if (code_.ends_with(end.substr(0, bytes))) return code_.resize(code_.size() - bytes);
      }
    }
  }

  bool IsClosing(std::string_view marker) const {
    const auto& closings = context_.syntax.closings;
    return std::find(closings.begin(), closings.end(), marker) != closings.end();
  }

  Result Emit() {
    std::string_view code = AsciiTrim(code_);
    if (code.starts_with('{')) return EmitJson();
    // A code block of its own inside the markers.
    if (code.starts_with("```") && code.ends_with("```") && code.find('\n') != std::string_view::npos) {
      code.remove_prefix(code.find('\n'));
      code.remove_suffix(3);
    }
    const auto calls = PythonText(code, context_.tools, rules_.known_only).Calls();
    if (!calls.has_value()) return Result::kReject;
    for (const PythonCall& call : *calls) {
      context_.sink.Begin(call.name);
      context_.sink.Arguments(call.arguments);
      context_.sink.End(true);
    }
    return Result::kDone;
  }

  // In place of Python: an object as MakeJsonReader reads it.
  Result EmitJson() {
    if (!ParseJson(AsciiTrim(code_), "call").ok()) return Result::kReject;
    const auto reader = MakeJsonReader(context_, rules_);
    for (const char c : AsciiTrim(code_)) {
      const Result result = reader->Feed(c);
      if (result != Result::kMore) return result;
    }
    return Result::kReject;
  }

  const CallContext& context_;
  const CallRules rules_;
  std::vector<std::string_view> ends_;
  std::string code_;
  bool seen_call_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakePythonReader(const CallContext& context, CallRules rules) {
  return std::make_unique<PythonReader>(context, rules);
}

}  // namespace nunspark::text
