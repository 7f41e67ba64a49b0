#include "formats/checksums.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "formats/content_hash.h"
#include "formats/json_fields.h"
#include "formats/manifest.h"
#include "formats/tensor_index.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMaxFiles = 65536;

Status ReadFile(const Json& json, std::string_view what, std::vector<FileChecksum>& files) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(json, what, fmt::format("files[{}]", files.size())));
  FileChecksum file;
  ASSIGN_OR_RETURN(file.name, fields.String("name"));
  if (!IsPlainFileName(file.name)) return fields.Wrong("name", "a file name without folders", QuoteName(file.name));
  if (!files.empty() && file.name <= files.back().name) {
    return fields.Wrong("name", "names in rising order", QuoteName(file.name));
  }
  ASSIGN_OR_RETURN(file.bytes, fields.Int("bytes", 0, std::numeric_limits<int64_t>::max()));
  ASSIGN_OR_RETURN(file.checksum, fields.String("checksum"));
  if (!IsChecksum(file.checksum)) {
    return fields.Wrong("checksum", "\"xxh3:\" and 32 lower-case hex digits", QuoteName(file.checksum));
  }
  files.push_back(std::move(file));
  return Status();
}

}  // namespace

Result<FileChecksum> MakeFileChecksum(const std::string& folder, const std::string& name, int64_t bytes) {
  FileChecksum file{.name = name, .bytes = bytes, .checksum = ""};
  ASSIGN_OR_RETURN(file.checksum, ChecksumOfFile(JoinPath(folder, name), bytes));
  return file;
}

std::string WriteChecksums(std::vector<FileChecksum> files) {
  std::sort(files.begin(), files.end(), [](const FileChecksum& a, const FileChecksum& b) { return a.name < b.name; });
  std::string out = fmt::format("{{\n\"version\": {},\n\"files\": [", kVersion);
  for (size_t i = 0; i < files.size(); ++i) {
    CHECK(IsPlainFileName(files[i].name) && (i == 0 || files[i].name != files[i - 1].name));
    out += fmt::format("{}\n{{\"name\":{},\"bytes\":{},\"checksum\":{}}}", i == 0 ? "" : ",", JsonQuote(files[i].name),
                       files[i].bytes, JsonQuote(files[i].checksum));
  }
  out += "\n],\n";
  out += fmt::format("\"self\": \"{}\"\n}}\n", ChecksumOf(out));
  return out;
}

Result<std::vector<FileChecksum>> ParseChecksums(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(text, what));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(root, what, ""));
  ASSIGN_OR_RETURN([[maybe_unused]] const int64_t version, fields.Int("version", kVersion, kVersion));
  ASSIGN_OR_RETURN(const Json* const list, fields.Array("files"));
  if (list->as_array().size() > kMaxFiles) {
    return fields.Wrong("files", fmt::format("at most {} files", kMaxFiles),
                        fmt::format("{}", list->as_array().size()));
  }
  std::vector<FileChecksum> files;
  for (const Json& json : list->as_array()) RETURN_IF_ERROR(ReadFile(json, what, files));
  // The one test that finds every change, white space and the closing checksum included.
  const std::string expected = WriteChecksums(files);
  if (text != expected) {
    const auto place = std::mismatch(text.begin(), text.end(), expected.begin(), expected.end()).first;
    return DataLossError(fmt::format("{}: its own checksum and content disagree: changed at or before byte {}", what,
                                     place - text.begin()));
  }
  return files;
}

}  // namespace nunspark
