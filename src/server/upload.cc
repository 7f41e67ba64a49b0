#include "server/upload.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/size.h"
#include "base/utf8.h"

namespace nunspark::server {
namespace {

constexpr size_t kLongestName = 200;
constexpr size_t kNulWithin = 8192;
constexpr double kMostInvalid = 0.05;

struct Signature {
  std::string_view bytes;
  std::string_view what;
};
constexpr Signature kSignatures[] = {{"%PDF-", "a PDF document"},
                                     {"PK\x03\x04", "a zip archive or an office document"},
                                     {"PK\x05\x06", "an empty zip archive"},
                                     {"\x89PNG", "a PNG picture"},
                                     {"\xff\xd8\xff", "a JPEG picture"},
                                     {"GIF8", "a GIF picture"},
                                     {"\x7f"
                                      "ELF",
                                      "a program (ELF)"}};

constexpr std::string_view kAdvice = "give plain text (.txt or .md), in UTF-8";

// Value of a parameter of a header: name="value" or name=value.
std::optional<std::string> Parameter(std::string_view header, std::string_view name) {
  bool quoted = false;
  for (size_t at = 0; at < header.size(); ++at) {
    if (header[at] == '"') quoted = !quoted;
    if (header[at] != ';' || quoted) continue;
    std::string_view rest = AsciiTrim(header.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos || AsciiLower(AsciiTrim(rest.substr(0, equals))) != name) continue;
    rest = AsciiTrim(rest.substr(equals + 1));
    if (rest.empty() || rest[0] != '"') return std::string(AsciiTrim(rest.substr(0, rest.find(';'))));
    std::string value;
    for (size_t i = 1; i < rest.size() && rest[i] != '"'; ++i) {
      // Browsers write a quote in a name as %22, others as \".
      if (rest[i] == '\\' && i + 1 < rest.size() && rest[i + 1] == '"') ++i;
      value += rest[i];
    }
    return value;
  }
  return std::nullopt;
}

Status Malformed(std::string_view what) { return InvalidArgumentError(fmt::format("the upload {}", what)); }

// The Content-Disposition header of a part; empty: none.
std::string DispositionOf(std::string_view head) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && AsciiLower(AsciiTrim(line.substr(0, colon))) == "content-disposition") {
      return std::string(line.substr(colon + 1));
    }
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return {};
}

}  // namespace

Result<std::vector<UploadedFile>> ParseMultipart(std::string_view content_type, std::string_view body,
                                                 std::string_view field) {
  const std::optional<std::string> boundary = Parameter(content_type, "boundary");
  if (!AsciiLower(content_type).starts_with("multipart/form-data") || !boundary || boundary->empty()) {
    return Malformed("must be multipart/form-data with a boundary");
  }
  const std::string between = "\r\n--" + *boundary;
  // The first boundary has no line before it.
  size_t at = body.starts_with(std::string_view(between).substr(2)) ? between.size() - 2 : body.find(between);
  if (at == std::string_view::npos) return Malformed("has no part");
  if (!body.starts_with(std::string_view(between).substr(2))) at += between.size();
  std::vector<UploadedFile> files;
  while (true) {
    if (body.substr(at).starts_with("--")) return files;
    const size_t line = body.find("\r\n", at);
    if (line == std::string_view::npos || !AsciiTrim(body.substr(at, line - at)).empty()) {
      return Malformed("has something behind a boundary");
    }
    const size_t head_end = body.find("\r\n\r\n", line);
    if (head_end == std::string_view::npos) return Malformed("ends inside a part's head");
    const size_t begin = head_end + 4;
    const size_t end = body.find(between, begin - 2);
    if (end == std::string_view::npos) return Malformed("ends inside a part");
    const std::string disposition = DispositionOf(body.substr(line + 2, head_end - line - 2));
    if (Parameter(disposition, "name") == field) {
      const std::optional<std::string> name = Parameter(disposition, "filename");
      if (!name) return Malformed(fmt::format("has a part '{}' that is no file", field));
      files.push_back({.name = SafeFileName(*name),
                       .content = std::string(end > begin ? body.substr(begin, end - begin) : std::string_view())});
    }
    at = end + between.size();
  }
}

std::string SafeFileName(std::string_view name) {
  const size_t slash = name.find_last_of("/\\");
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  std::string safe;
  for (const char c : RepairUtf8(name)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) safe += c;
  }
  safe = std::string(AsciiTrim(safe));
  if (safe.size() > kLongestName) {
    safe.resize(kLongestName);
    safe.resize(safe.size() - IncompleteUtf8Suffix(safe));
  }
  return safe.empty() || safe == "." || safe == ".." ? "file" : safe;
}

Status CheckTextFile(std::string_view content) {
  for (const Signature& signature : kSignatures) {
    if (content.starts_with(signature.bytes)) {
      return InvalidArgumentError(fmt::format("the file is {}, not text; {}", signature.what, kAdvice));
    }
  }
  if (content.substr(0, kNulWithin).find('\0') != std::string_view::npos) {
    return InvalidArgumentError(fmt::format("the file holds NUL bytes: it is binary, or text in UTF-16; {}", kAdvice));
  }
  int64_t characters = 0, invalid = 0;
  for (size_t at = 0; at < content.size(); ++characters) {
    const Utf8Char next = DecodeUtf8(content, at);
    invalid += next.valid ? 0 : 1;
    at += next.bytes;
  }
  if (static_cast<double>(invalid) > kMostInvalid * static_cast<double>(characters)) {
    return InvalidArgumentError(fmt::format("{:.1f} % of the file's characters are no valid UTF-8; {}",
                                            100.0 * static_cast<double>(invalid) / static_cast<double>(characters),
                                            kAdvice));
  }
  return Status();
}

std::string PromptText(std::string_view instruction, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::string_view trimmed = AsciiTrim(instruction);
  std::string prompt(trimmed);
  if (!trimmed.empty()) prompt += "\n\n";
  return prompt + RepairUtf8(text);
}

PromptLimit MakePromptLimit(int64_t ram_bytes, int64_t budget_bytes, int64_t bytes_per_token, int64_t given) {
  constexpr int64_t kUnknown = 8192, kLeast = 4096, kMost = 65536, kBeside = int64_t{4} << 30;
  PromptLimit limit{.tokens = kUnknown, .given = given > 0, .ram_bytes = ram_bytes, .bytes_per_token = bytes_per_token};
  if (given > 0) {
    limit.tokens = given;
  } else if (ram_bytes > 0 && bytes_per_token > 0) {
    limit.tokens = std::clamp((ram_bytes - budget_bytes - kBeside) / bytes_per_token, kLeast, kMost);
  }
  return limit;
}

Status CheckPromptLength(int64_t tokens, const PromptLimit& limit) {
  if (tokens <= limit.tokens) return Status();
  const std::string need = limit.bytes_per_token > 0
                               ? fmt::format("its keys and values need {}", FormatSize(tokens * limit.bytes_per_token))
                               : std::string("what its keys and values need is unknown");
  const std::string ram =
      limit.ram_bytes > 0 ? fmt::format("{} of memory", FormatSize(limit.ram_bytes)) : "an unknown amount of memory";
  return InvalidArgumentError(fmt::format(
      "the prompt has {} tokens, more than the {} that {} ({}; this machine has {}); max_prompt_tokens "
      "replaces the limit",
      tokens, limit.tokens, limit.given ? "max_prompt_tokens allows" : "this machine should be given", need, ram));
}

}  // namespace nunspark::server
