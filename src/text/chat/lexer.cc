#include "text/chat/lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/chat/big_int.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsDecimalDigit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text.push_back(source[i]);
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::vector<Token>* tokens, TemplateError* error)
      : source_(NormalizeNewlines(source)), tokens_(*tokens), error_(*error) {}

  bool Run() {
    while (position_ < source_.size()) {
      if (!Root()) return false;
    }
    Emit(TokenKind::kEnd, "");
    return true;
  }

 private:
  // Text up to the next tag, then the tag.
  bool Root();
  bool Comment();
  bool Raw(size_t begin_end);
  bool Tag(TokenKind end_kind);
  bool Operand();
  bool Name();
  bool String(char quote);
  bool Number();
  bool Operator();
  bool Unescape(std::string_view body, std::string* text);
  bool UnescapeOne(std::string_view body, size_t* i, std::string* text);

  // The end of "{% raw %}" that starts at `begin`, or npos.
  size_t MatchRawBegin(size_t begin) const;
  // The end of "{% endraw %}" at `begin` (sign in *sign), or npos.
  size_t MatchRawEnd(size_t begin, char* sign) const;
  size_t SkipSpace(size_t i) const;
  bool At(size_t i, std::string_view text) const { return source_.compare(i, text.size(), text) == 0; }
  char CharAt(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  // The text before a tag with the tag's sign ('-', '+' or 0) applied.
  void EmitData(std::string_view text, char sign, bool is_variable);
  void Emit(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  // Moves to `end`, counting lines.
  void Advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    line_starting_ = end > position_ && source_[end - 1] == '\n';
    position_ = end;
  }
  bool Fail(std::string message) {
    error_ = {"TemplateSyntaxError", fmt::format("{} (line {})", message, line_)};
    return false;
  }

  const std::string source_;
  std::vector<Token>& tokens_;
  TemplateError& error_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was read last ended with a newline
  std::string open_;           // brackets waiting for their end
};

size_t Lexer::SkipSpace(size_t i) const {
  while (i < source_.size()) {
    size_t next = i;
    if (!IsSpace(NextCodePoint(source_, &next))) break;
    i = next;
  }
  return i;
}

void Lexer::EmitData(std::string_view text, char sign, bool is_variable) {
  if (sign == '-') {
    text = StripRight(text, IsSpace);
  } else if (sign != '+' && !is_variable) {
    // lstrip_blocks: white space between the start of the line and the tag.
    const size_t line_start = text.rfind('\n') + 1;
    if (line_start > 0 || line_starting_) {
      if (StripLeft(text.substr(line_start), IsSpace).empty()) text = text.substr(0, line_start);
    }
  }
  if (!text.empty()) Emit(TokenKind::kData, std::string(text));
}

size_t Lexer::MatchRawBegin(size_t begin) const {
  size_t i = begin + 2;
  if (CharAt(i) == '-' || CharAt(i) == '+') ++i;
  i = SkipSpace(i);
  if (!At(i, "raw")) return std::string::npos;
  i = SkipSpace(i + 3);
  if (At(i, "-%}")) return SkipSpace(i + 3);
  if (At(i, "%}")) return i + 2;
  return std::string::npos;
}

size_t Lexer::MatchRawEnd(size_t begin, char* sign) const {
  size_t i = begin + 2;
  *sign = CharAt(i);
  if (*sign == '-' || *sign == '+') {
    ++i;
  } else {
    *sign = 0;
  }
  i = SkipSpace(i);
  if (!At(i, "endraw")) return std::string::npos;
  i = SkipSpace(i + 6);
  if (At(i, "+%}")) return i + 3;
  if (At(i, "-%}")) return SkipSpace(i + 3);
  if (!At(i, "%}")) return std::string::npos;
  return CharAt(i + 2) == '\n' ? i + 3 : i + 2;
}

bool Lexer::Root() {
  size_t begin = position_;
  while (true) {
    begin = source_.find('{', begin);
    if (begin == std::string::npos) {
      Emit(TokenKind::kData, source_.substr(position_));
      Advance(source_.size());
      return true;
    }
    const char next = CharAt(begin + 1);
    if (next == '{' || next == '%' || next == '#') break;
    ++begin;
  }
  const std::string_view text = std::string_view(source_).substr(position_, begin - position_);
  const char kind = source_[begin + 1];
  char sign = CharAt(begin + 2);
  if (sign != '-' && sign != '+') sign = 0;
  EmitData(text, sign, kind == '{');
  if (kind == '%') {
    if (const size_t raw_end = MatchRawBegin(begin); raw_end != std::string::npos) return Raw(raw_end);
  }
  Advance(begin);
  if (kind == '#') return Comment();
  Emit(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
  Advance(begin + (sign != 0 ? 3 : 2));
  return Tag(kind == '{' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
}

bool Lexer::Comment() {
  size_t body = position_ + 2;
  if (CharAt(body) == '-' || CharAt(body) == '+') ++body;
  const size_t end = source_.find("#}", body);
  if (end == std::string::npos) return Fail("Missing end of comment tag");
  const char sign = end > body ? source_[end - 1] : '\0';
  size_t after = end + 2;
  if (sign == '-') {
    after = SkipSpace(after);
  } else if (sign != '+' && CharAt(after) == '\n') {
    ++after;
  }
  Advance(after);
  return true;
}

bool Lexer::Raw(size_t begin_end) {
  Advance(begin_end);
  for (size_t i = source_.find("{%", position_); i != std::string::npos; i = source_.find("{%", i + 1)) {
    char sign = 0;
    const size_t end = MatchRawEnd(i, &sign);
    if (end == std::string::npos) continue;
    EmitData(std::string_view(source_).substr(position_, i - position_), sign, false);
    Advance(end);
    return true;
  }
  return Fail("Missing end of raw directive");
}

bool Lexer::Tag(TokenKind end_kind) {
  const std::string_view end = end_kind == TokenKind::kVariableEnd ? "}}" : "%}";
  open_.clear();
  while (position_ < source_.size()) {
    if (open_.empty()) {
      const char sign = source_[position_];
      if (At(position_, end)) {
        const bool trim = end_kind == TokenKind::kBlockEnd && CharAt(position_ + 2) == '\n';
        Emit(end_kind, "");
        Advance(position_ + (trim ? 3 : 2));
        return true;
      }
      if (sign == '-' && At(position_ + 1, end)) {
        Emit(end_kind, "");
        Advance(SkipSpace(position_ + 3));
        return true;
      }
      if (sign == '+' && end_kind == TokenKind::kBlockEnd && At(position_ + 1, end)) {
        Emit(end_kind, "");
        Advance(position_ + 3);
        return true;
      }
    }
    if (const size_t after = SkipSpace(position_); after != position_) {
      Advance(after);
      continue;
    }
    if (!Operand()) return false;
  }
  return true;  // the parser reports what is missing
}

bool Lexer::Operand() {
  const char c = source_[position_];
  if (IsDecimalDigit(c)) return Number();
  if (c == '\'' || c == '"') {
    // A quote without its end falls through to "unexpected char".
    if (String(c)) return true;
    if (!error_.type.empty()) return false;
  }
  size_t next = position_;
  if (IsWord(NextCodePoint(source_, &next))) return Name();
  return Operator();
}

bool Lexer::Name() {
  size_t end = position_;
  bool valid = true;
  while (end < source_.size()) {
    size_t next = end;
    const uint32_t c = NextCodePoint(source_, &next);
    const bool part = end == position_ ? IsIdentifierStart(c) : IsIdentifierPart(c);
    if (!IsWord(c) && !part) break;
    valid = valid && part;
    end = next;
  }
  if (!valid) return Fail("Invalid character in identifier");
  Emit(TokenKind::kName, source_.substr(position_, end - position_));
  Advance(end);
  return true;
}

bool Lexer::String(char quote) {
  size_t i = position_ + 1;
  while (i < source_.size() && source_[i] != quote) i += source_[i] == '\\' ? 2 : 1;
  if (i >= source_.size()) return false;
  std::string text;
  if (!Unescape(std::string_view(source_).substr(position_ + 1, i - position_ - 1), &text)) return false;
  Emit(TokenKind::kString, std::move(text));
  Advance(i + 1);
  return true;
}

bool Lexer::Unescape(std::string_view body, std::string* text) {
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      text->push_back(body[i++]);
      continue;
    }
    if (!UnescapeOne(body, &i, text)) return false;
  }
  return true;
}

// One escape sequence of Python's unicode-escape codec at body[*i].
bool Lexer::UnescapeOne(std::string_view body, size_t* i, std::string* text) {
  const char c = body[*i + 1];
  const size_t rest = *i + 2;
  *i = rest;
  static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
  if (c == '\n') return true;
  if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
    text->push_back(kTo[simple]);
    return true;
  }
  if (c >= '0' && c <= '7') {
    uint32_t value = 0;
    size_t end = rest - 1;
    for (; end < body.size() && end < rest + 2 && body[end] >= '0' && body[end] <= '7'; ++end) {
      value = value * 8 + static_cast<uint32_t>(body[end] - '0');
    }
    AppendCodePoint(value, *text);
    *i = end;
    return true;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    const auto value = BigInt::FromDigits(body.substr(std::min(rest, body.size()), digits), 16);
    if (rest + digits > body.size() || !value) return Fail(fmt::format("truncated \\{} escape", c));
    const int64_t code_point = value->ToInt64().value_or(0);
    if (code_point > 0x10FFFF) return Fail("illegal Unicode character");
    AppendCodePoint(static_cast<uint32_t>(code_point), *text);
    *i = rest + digits;
    return true;
  }
  if (c == 'N') return Fail("\\N{...} escapes are not supported");
  // Python encodes other characters as escapes of their own first: "\é" reads as a backslash and "xe9".
  size_t next = rest - 1;
  const uint32_t code_point = NextCodePoint(body, &next);
  text->push_back('\\');
  if (code_point < 0x80) {
    text->push_back(c);
  } else if (code_point < 0x100) {
    *text += fmt::format("x{:02x}", code_point);
  } else if (code_point < 0x10000) {
    *text += fmt::format("u{:04x}", code_point);
  } else {
    *text += fmt::format("U{:08x}", code_point);
  }
  *i = next;
  return true;
}

bool Lexer::Number() {
  // Digits, each but the first optionally after one underscore.
  auto digits = [this](size_t i, auto accept) {
    while (true) {
      const size_t digit = CharAt(i) == '_' ? i + 1 : i;
      if (digit >= source_.size() || !accept(source_[digit])) return i;
      i = digit + 1;
    }
  };
  auto emit = [this](TokenKind kind, size_t end) {
    std::string text = source_.substr(position_, end - position_);
    std::erase(text, '_');
    Emit(kind, std::move(text));
    Advance(end);
    return true;
  };
  // A float first, but not directly behind a dot: in a.1.2 both are indices.
  const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
  if (!after_dot) {
    const size_t whole = digits(position_ + 1, IsDecimalDigit);
    size_t end = whole;
    if (CharAt(end) == '.' && IsDecimalDigit(CharAt(end + 1))) end = digits(end + 2, IsDecimalDigit);
    size_t exponent = end;
    if (CharAt(exponent) == 'e' || CharAt(exponent) == 'E') {
      ++exponent;
      if (CharAt(exponent) == '+' || CharAt(exponent) == '-') ++exponent;
      if (IsDecimalDigit(CharAt(exponent))) end = digits(exponent + 1, IsDecimalDigit);
    }
    if (end != whole) return emit(TokenKind::kFloat, end);
  }
  if (CharAt(position_) == '0') {
    const char prefix = CharAt(position_ + 1);
    auto binary = [](char c) { return c == '0' || c == '1'; };
    auto octal = [](char c) { return c >= '0' && c <= '7'; };
    auto hex = [](char c) { return IsDecimalDigit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); };
    size_t end = position_ + 2;
    if ((prefix | 32) == 'b') end = digits(end, binary);
    if ((prefix | 32) == 'o') end = digits(end, octal);
    if ((prefix | 32) == 'x') end = digits(end, hex);
    if (end > position_ + 2) return emit(TokenKind::kInteger, end);
    return emit(TokenKind::kInteger, digits(position_ + 1, [](char c) { return c == '0'; }));
  }
  return emit(TokenKind::kInteger, digits(position_ + 1, IsDecimalDigit));
}

bool Lexer::Operator() {
  for (std::string_view op : kOperators) {
    if (!At(position_, op)) continue;
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) return Fail(fmt::format("unexpected '{}'", c));
      if (open_.back() != c) return Fail(fmt::format("unexpected '{}', expected '{}'", c, open_.back()));
      open_.pop_back();
    }
    Emit(TokenKind::kOperator, std::string(op));
    Advance(position_ + op.size());
    return true;
  }
  size_t end = position_;
  NextCodePoint(source_, &end);
  return Fail(fmt::format("unexpected char '{}' at {}", source_.substr(position_, end - position_), position_));
}

}  // namespace

bool Tokenize(std::string_view source, std::vector<Token>* tokens, TemplateError* error) {
  *error = {};
  const std::string repaired = IsValidUtf8(source) ? std::string() : ToValidText(source);
  return Lexer(repaired.empty() ? source : repaired, tokens, error).Run();
}

}  // namespace nunspark::text::jinja
