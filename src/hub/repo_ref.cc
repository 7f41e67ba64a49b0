#include "hub/repo_ref.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/parts.h"

namespace nunspark {
namespace {

constexpr size_t kMaxIdLength = 96;
constexpr size_t kMaxRevisionLength = 255;
constexpr size_t kMaxFileLength = 1024;
constexpr std::string_view kFolderPrefix = "models--";

bool IsIdCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool IsIdPart(std::string_view part) {
  const auto outer = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && !outer(part.front()) && !outer(part.back()) &&
         std::all_of(part.begin(), part.end(), IsIdCharacter) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

bool IsId(std::string_view id) {
  if (id.size() > kMaxIdLength || id.ends_with(".git")) return false;
  const size_t slash = id.find('/');
  if (slash == std::string_view::npos) return IsIdPart(id);
  return IsIdPart(id.substr(0, slash)) && IsIdPart(id.substr(slash + 1));
}

// As git check-ref-format, and nothing that could lead out of a folder: a revision becomes a path in the cache.
bool IsRevision(std::string_view revision) {
  if (revision.empty() || revision.size() > kMaxRevisionLength || revision.front() == '-') return false;
  for (const char c : revision) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f || std::string_view("~^:?*[\\").find(c) != std::string_view::npos) return false;
  }
  for (const std::string_view part : SplitAt(revision, '/')) {
    if (part.empty() || part.front() == '.' || part.ends_with(".lock") || part.find("..") != std::string_view::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace

const std::string& RepoRef::revision_or_default() const {
  static const std::string main(kDefaultRevision);
  return revision.empty() ? main : revision;
}

std::string RepoRef::Text() const {
  return id + (revision.empty() ? "" : "@" + revision) + (file.empty() ? "" : ":" + file);
}

Result<RepoRef> ParseRepoRef(std::string_view text) {
  RepoRef ref;
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) ref.file = text.substr(colon + 1);
  const std::string_view repo = text.substr(0, colon);
  const size_t at = repo.find('@');
  ref.id = repo.substr(0, at);
  if (!IsId(ref.id)) {
    return InvalidArgumentError(fmt::format(
        "'{}' is no repository id: expected org/name[@revision][:file], of letters, digits, '-', '_' and '.'", text));
  }
  if (at != std::string_view::npos) {
    ref.revision = repo.substr(at + 1);
    if (!IsRevision(ref.revision)) {
      return InvalidArgumentError(
          fmt::format("'{}': '{}' is no revision; expected a branch, a tag or a commit", text, ref.revision));
    }
  }
  if (colon != std::string_view::npos && (ref.file.empty() || ref.file.size() > kMaxFileLength)) {
    return InvalidArgumentError(fmt::format("'{}': expected a file's name after ':'", text));
  }
  return ref;
}

std::optional<RepoRef> AsRepoRef(std::string_view text) {
  Result<RepoRef> ref = ParseRepoRef(text);
  if (!ref.ok() || ref->id.find('/') == std::string::npos) return std::nullopt;
  return std::move(ref).value();
}

bool IsCommit(std::string_view revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string RepoFolderName(std::string_view id) {
  std::string name(kFolderPrefix);
  for (const char c : id) name += c == '/' ? "--" : std::string(1, c);
  return name;
}

std::optional<std::string> RepoIdOfFolder(std::string_view folder_name) {
  if (!folder_name.starts_with(kFolderPrefix)) return std::nullopt;
  std::string id(folder_name.substr(kFolderPrefix.size()));
  if (const size_t dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
  if (!IsId(id)) return std::nullopt;
  return id;
}

}  // namespace nunspark
