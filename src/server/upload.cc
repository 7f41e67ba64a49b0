#include "server/upload.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/size.h"
#include "base/utf8.h"
#include "server/multipart.h"

namespace nunspark::server {
namespace {

constexpr size_t kLongestName = 200;
constexpr size_t kMostOfForm = 256;  // each is synced to the drive
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

// Keeps the files of one field; what else a form has is passed over.
class FilesOfField : public MultipartHandler {
 public:
  explicit FilesOfField(std::string_view field) : field_(field) {}

  Status OnField(const MultipartField& field) override {
    wanted_ = field.name == field_;
    if (!wanted_) return Status();
    if (!field.filename) return InvalidArgumentError(fmt::format("the form's field \"{}\" is no file", field_));
    if (files_.size() == kMostOfForm) {
      return InvalidArgumentError(fmt::format("a form may hold {} files; send the others in another one", kMostOfForm));
    }
    files_.push_back({.name = SafeFileName(*field.filename), .content = {}});
    return Status();
  }
  Status OnData(std::string_view data) override {
    if (wanted_) files_.back().content += data;
    return Status();
  }
  Status OnFieldEnd() override { return Status(); }

  std::vector<UploadedFile> TakeFiles() { return std::move(files_); }

 private:
  const std::string field_;
  bool wanted_ = false;
  std::vector<UploadedFile> files_;
};

}  // namespace

Result<std::vector<UploadedFile>> FilesOfForm(std::string_view content_type, std::string_view body,
                                              std::string_view field) {
  ASSIGN_OR_RETURN(const std::string boundary, MultipartReader::BoundaryOf(content_type));
  FilesOfField files(field);
  MultipartReader reader(boundary, files);
  RETURN_IF_ERROR(reader.Push(body));
  RETURN_IF_ERROR(reader.Finish());
  return files.TakeFiles();
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
