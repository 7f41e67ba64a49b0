#include "text/tokenizer/tokenize_lines.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/json_section.h"

namespace nunspark::text {
namespace {

constexpr std::string_view kWhat = "the line";
constexpr size_t kIdsMax = size_t{1} << 26;
// Of the texts in an answer. Tokens may be long, and a line may ask for one of them many times.
constexpr size_t kAnswerBytesMax = size_t{1} << 29;

Status CheckAnswer(size_t bytes) {
  if (bytes <= kAnswerBytesMax) return Status();
  return ResourceExhaustedError(fmt::format("the answer would be longer than {} bytes", kAnswerBytesMax));
}

Result<std::string> BytesOfHex(const std::string& hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (hex.size() % 2 != 0) return InvalidArgumentError("bytes_hex: expected two digits a byte, found an odd number");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0)
      return InvalidArgumentError(fmt::format("bytes_hex: expected hexadecimal digits at {}", i));
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

Result<std::string> EncodeLine(const Tokenizer& tokenizer, const JsonSection& line) {
  const bool has_text = line.Member("text").has_value();
  if (has_text && line.Member("bytes_hex").has_value()) {
    return InvalidArgumentError("expected one of text, bytes_hex and ids, found two");
  }
  std::string text;
  if (has_text) {
    ASSIGN_OR_RETURN(text, line.String("text"));
  } else {
    ASSIGN_OR_RETURN(const std::string hex, line.String("bytes_hex"));
    ASSIGN_OR_RETURN(text, BytesOfHex(hex));
  }
  ASSIGN_OR_RETURN(const bool special, line.BoolOr("special", false));
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   tokenizer.Encode(text, special ? AddSpecials::kYes : AddSpecials::kNo));
  std::string out = "{\"ids\":[";
  for (size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", ids[i]);
  out += "],\"tokens\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i != 0) out += ',';
    out += JsonQuote(tokenizer.TokenText(ids[i]));
    RETURN_IF_ERROR(CheckAnswer(out.size()));
  }
  return out + "]}";
}

Result<std::string> DecodeLine(const Tokenizer& tokenizer, const JsonSection& line) {
  ASSIGN_OR_RETURN(const JsonSection list, line.Required("ids"));
  if (!list.value().is_array()) return list.Mismatch("array");
  if (list.value().as_array().size() > kIdsMax) return list.Malformed(fmt::format("expected at most {} ids", kIdsMax));
  ASSIGN_OR_RETURN(const bool skip, line.BoolOr("skip_special", false));
  StreamDecoder decoder(tokenizer, skip ? SkipSpecials::kYes : SkipSpecials::kNo);
  std::string text;
  for (const Json& id : list.value().as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) {
      return list.Malformed(fmt::format("expected ids from 0 to {}, found {}", INT32_MAX, WriteJson(id)));
    }
    text += decoder.Push(static_cast<TokenId>(id.as_int()));
    RETURN_IF_ERROR(CheckAnswer(text.size()));
  }
  text += decoder.Finish();
  return "{\"text\":" + JsonQuote(text) + "}";
}

Result<std::string> Answer(const Tokenizer& tokenizer, std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kWhat));
  const JsonSection line(json, std::string(kWhat));
  if (!json.is_object()) return line.Mismatch("object");
  const bool has_ids = line.Member("ids").has_value();
  const bool has_text = line.Member("text").has_value() || line.Member("bytes_hex").has_value();
  if (has_ids && has_text) return InvalidArgumentError("expected one of text, bytes_hex and ids, found two");
  if (has_ids) return DecodeLine(tokenizer, line);
  if (has_text) return EncodeLine(tokenizer, line);
  return InvalidArgumentError("expected a member text, bytes_hex or ids, found none");
}

}  // namespace

std::string TokenizeLine(const Tokenizer& tokenizer, std::string_view line) {
  const Result<std::string> answer = Answer(tokenizer, line);
  if (answer.ok()) return *answer;
  // Whatever is wrong with a line is the caller's doing.
  const StatusCode code =
      answer.status().code() == StatusCode::kDataLoss ? StatusCode::kInvalidArgument : answer.status().code();
  return fmt::format("{{\"error\":{{\"type\":{},\"message\":{}}}}}", JsonQuote(StatusCodeName(code)),
                     JsonQuote(answer.status().message()));
}

}  // namespace nunspark::text
