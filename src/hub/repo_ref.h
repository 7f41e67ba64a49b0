// Names of models on a hub: "org/name", "org/name@revision", "org/name@revision:file".
#ifndef NUNSPARK_HUB_REPO_REF_H_
#define NUNSPARK_HUB_REPO_REF_H_

#include <optional>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

inline constexpr std::string_view kDefaultRevision = "main";

struct RepoRef {
  std::string id;        // "org/name", or "name" for the few repositories without an owner
  std::string revision;  // branch, tag or commit; "": none was named
  std::string file;      // a file of it: its name, a pattern with * and ?, or a quantisation ("Q4_K_M"); "": none

  const std::string& revision_or_default() const;
  // As it was written.
  std::string Text() const;
};

// Errors: kInvalidArgument, naming what hubs do not allow: ids of up to 96 letters, digits, '-', '_', '.', without
// "--" or "..", neither of its parts beginning or ending with '-' or '.'; revisions that git would not take.
Result<RepoRef> ParseRepoRef(std::string_view text);

// A valid reference with an owner: what a model argument that is no path may mean.
std::optional<RepoRef> AsRepoRef(std::string_view text);

// 40 lower-case hex digits.
bool IsCommit(std::string_view revision);

// "models--org--name", and back; nullopt for what is no such name.
std::string RepoFolderName(std::string_view id);
std::optional<std::string> RepoIdOfFolder(std::string_view folder_name);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_REPO_REF_H_
