#include "text/chat/json_scanner.h"

#include "base/json_text.h"

namespace nunspark::text {
namespace {

constexpr size_t kMaxDepth = 200, kMaxAtomBytes = 400;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAtomByte(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Result JsonScanner::Feed(char c) { return in_string_ ? FeedString(c) : FeedOutside(c); }

JsonScanner::Result JsonScanner::FeedString(char c) {
  if (hex_digits_ > 0) {
    --hex_digits_;
    return IsHexDigit(c) ? Result::kMore : Result::kBad;
  }
  if (escaped_) {
    escaped_ = false;
    if (c == 'u') hex_digits_ = 4;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos ? Result::kMore : Result::kBad;
  }
  if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    expect_ = is_key_ ? Expect::kColon : Expect::kCommaOrEnd;
  }
  return Result::kMore;
}

JsonScanner::Result JsonScanner::FeedOutside(char c) {
  if (!atom_.empty()) {
    if (IsAtomByte(c)) {
      atom_ += c;
      return atom_.size() <= kMaxAtomBytes ? Result::kMore : Result::kBad;
    }
    if (!IsJsonAtom(atom_)) return Result::kBad;
    atom_.clear();
    expect_ = Expect::kCommaOrEnd;
  }
  if (IsSpace(c)) return Result::kMore;
  switch (expect_) {
    case Expect::kValueOrEnd:
      if (c == ']') return Close('[');
      [[fallthrough]];
    case Expect::kValue:
      if (c == '{' || c == '[') {
        open_ += c;
        expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
        return open_.size() <= kMaxDepth ? Result::kMore : Result::kBad;
      }
      if (open_.empty()) return Result::kBad;
      if (c == '"') {
        in_string_ = true;
        is_key_ = false;
        return Result::kMore;
      }
      if (!IsAtomByte(c)) return Result::kBad;
      atom_ = c;
      return Result::kMore;
    case Expect::kKeyOrEnd:
      if (c == '}') return Close('{');
      [[fallthrough]];
    case Expect::kKey: in_string_ = is_key_ = true; return c == '"' ? Result::kMore : Result::kBad;
    case Expect::kColon: expect_ = Expect::kValue; return c == ':' ? Result::kMore : Result::kBad;
    case Expect::kCommaOrEnd:
      if (c == ',') {
        expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
        return Result::kMore;
      }
      return c == '}' ? Close('{') : c == ']' ? Close('[') : Result::kBad;
  }
  return Result::kBad;
}

JsonScanner::Result JsonScanner::Close(char opening) {
  if (open_.back() != opening) return Result::kBad;
  open_.pop_back();
  expect_ = Expect::kCommaOrEnd;
  return open_.empty() ? Result::kDone : Result::kMore;
}

bool IsJsonAtom(std::string_view text) {
  return text == "true" || text == "false" || text == "null" || IsJsonNumber(text);
}

void AppendRepaired(char c, bool in_string, std::string& out) {
  if (in_string && static_cast<unsigned char>(c) < 0x20) {
    AppendJsonEscaped(c, out);
  } else {
    out += c;
  }
}

}  // namespace nunspark::text
