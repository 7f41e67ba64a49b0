#include "hub/listing.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/parts.h"
#include "base/utf8.h"
#include "hub/repo_ref.h"

namespace nunspark {
namespace {

constexpr size_t kMaxNameBytes = 1024;
// File systems take 255; ".<pid>.link" and the like are added beside it.
constexpr size_t kMaxPartBytes = 230;

Status NameError(std::string_view name, std::string_view reason) {
  constexpr size_t kShown = 200;
  return DataLossError(fmt::format("the repository lists a file named {}{}, {}; nothing of it is fetched",
                                   JsonQuote(name.substr(0, kShown)), name.size() > kShown ? ".." : "", reason));
}

Result<std::string> StringMember(const Json& object, std::string_view key, std::string_view what) {
  const Json* const value = object.Find(key);
  if (value == nullptr || !value->is_string()) {
    return DataLossError(fmt::format("{}: expected a string '{}', found {}", what, key,
                                     value == nullptr ? "nothing" : std::string(value->TypeName())));
  }
  return value->as_string();
}

Result<int64_t> SizeMember(const Json& object, std::string_view what) {
  const Json* const value = object.Find("size");
  if (value == nullptr || !value->is_int() || value->as_int() < 0) {
    return DataLossError(fmt::format("{}: expected a 'size' of at least 0, found {}", what,
                                     value == nullptr ? "nothing" : WriteJson(*value).substr(0, 40)));
  }
  return value->as_int();
}

// Files in git have their blob's id, large ones a SHA-256 beside the id of what stands for them in git.
Result<RepoFile> ParseFile(const Json& entry, std::string_view what) {
  RepoFile file;
  ASSIGN_OR_RETURN(file.name, StringMember(entry, "rfilename", what));
  RETURN_IF_ERROR(CheckFileName(file.name));
  const std::string where = fmt::format("{}: {}", what, JsonQuote(file.name));
  const Json* const lfs = entry.Find("lfs");
  const bool large = lfs != nullptr && lfs->is_object();
  ASSIGN_OR_RETURN(file.bytes, SizeMember(large && lfs->Find("size") != nullptr ? *lfs : entry, where));
  file.digest_kind = large ? DigestKind::kSha256 : DigestKind::kGitBlob;
  const Json* digest = large ? lfs->Find("sha256") : entry.Find("blobId");
  if (large && digest == nullptr) digest = lfs->Find("oid");
  if (digest == nullptr || digest->is_null()) return file;
  file.digest = digest->is_string() ? digest->as_string() : "";
  if (file.digest.starts_with("sha256:")) file.digest.erase(0, 7);
  // It becomes a file's name in the cache.
  if (!IsDigest(file.digest_kind, file.digest)) {
    return DataLossError(fmt::format("{}: expected {} in lower-case hexadecimal digits, found {}", where,
                                     DigestName(file.digest_kind), WriteJson(*digest).substr(0, 100)));
  }
  return file;
}

bool IsDeviceName(std::string_view part) {
  const std::string stem = AsciiLower(part.substr(0, part.find('.')));
  for (const std::string_view device : {"con", "prn", "aux", "nul"}) {
    if (stem == device) return true;
  }
  return stem.size() == 4 && (stem.starts_with("com") || stem.starts_with("lpt")) && stem[3] >= '1' && stem[3] <= '9';
}

}  // namespace

Status CheckFileName(std::string_view name) {
  if (name.empty()) return NameError(name, "which is empty");
  if (name.size() > kMaxNameBytes) return NameError(name, fmt::format("of more than {} bytes", kMaxNameBytes));
  if (!IsValidUtf8(name)) return NameError(name, "which is no UTF-8");
  if (name.front() == '/') return NameError(name, "an absolute path");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return NameError(name, "with a control character");
    if (c == '\\') return NameError(name, "with a backslash");
  }
  for (const std::string_view part : SplitAt(name, '/')) {
    if (part.empty() || part == "." || part == "..") return NameError(name, "which leads out of its folder");
    if (part.size() > kMaxPartBytes) return NameError(name, fmt::format("with more than {} bytes", kMaxPartBytes));
  }
  return Status();
}

Result<RepoListing> ParseListing(std::string_view json, std::string_view what) {
  if (json.size() > static_cast<size_t>(kMaxListingBytes)) {
    return ResourceExhaustedError(fmt::format("{}: more than {} bytes", what, kMaxListingBytes));
  }
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, what));
  if (!root.is_object()) return DataLossError(fmt::format("{}: expected an object, found {}", what, root.TypeName()));
  RepoListing listing;
  ASSIGN_OR_RETURN(listing.commit, StringMember(root, "sha", what));
  if (!IsCommit(listing.commit)) {
    return DataLossError(fmt::format("{}: expected 'sha' to be a commit of 40 hexadecimal digits, found {}", what,
                                     JsonQuote(listing.commit.substr(0, 100))));
  }
  const Json* const files = root.Find("siblings");
  if (files == nullptr || !files->is_array()) {
    return DataLossError(fmt::format("{}: expected an array 'siblings' of files", what));
  }
  if (files->as_array().size() > kMaxListedFiles) {
    return ResourceExhaustedError(fmt::format("{}: {} files, more than the {} that are looked at", what,
                                              files->as_array().size(), kMaxListedFiles));
  }
  for (const Json& entry : files->as_array()) {
    ASSIGN_OR_RETURN(RepoFile file, ParseFile(entry, what));
    listing.files.push_back(std::move(file));
  }
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(listing.files.begin(), listing.files.end(),
                                        [](const RepoFile& a, const RepoFile& b) { return a.name == b.name; });
  if (twice != listing.files.end()) return NameError(twice->name, "and it does so twice");
  return listing;
}

Status CheckTogether(const std::vector<RepoFile>& files) {
  std::map<std::string, std::string_view> seen;
  for (const RepoFile& file : files) {
    const auto [other, fresh] = seen.try_emplace(AsciiLower(file.name), file.name);
    if (!fresh) {
      return NameError(file.name,
                       fmt::format("and {}, which differs in upper and lower case only", JsonQuote(other->second)));
    }
    for (const std::string_view part : SplitAt(file.name, '/')) {
      if (IsDeviceName(part)) return NameError(file.name, "which is a device on some systems");
    }
  }
  return Status();
}

}  // namespace nunspark
