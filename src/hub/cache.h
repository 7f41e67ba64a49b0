// The hub's cache folder, as huggingface_hub lays it out (docs/FORMAT.md):
//
//   models--org--name/blobs/<sha256, or git's sha1 of small files>
//   models--org--name/snapshots/<commit>/<file> -> ../../blobs/<...>
//   models--org--name/refs/<branch or tag>      the commit it stood for when it was fetched
//   .locks/models--org--name/<blob>.lock        flock: who downloads it
#ifndef NUNSPARK_HUB_CACHE_H_
#define NUNSPARK_HUB_CACHE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/file_choice.h"
#include "hub/repo_ref.h"
#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

struct Snapshot {
  std::string commit;
  std::string path;
  std::filesystem::file_time_type changed;
};

std::string RepoFolder(const std::string& cache, std::string_view id);

// Newest first; none when the repository is not in the cache.
std::vector<Snapshot> ListSnapshots(const std::string& cache, std::string_view id);

// The files below a snapshot that are there (links whose blob is), by name. Bounded in number and depth.
std::vector<NamedSize> ListSnapshotFiles(const std::string& snapshot_path);

// The commit of a branch or tag when it was last fetched.
std::optional<std::string> ReadRef(const std::string& cache, std::string_view id, std::string_view revision);

// Writes it, if it changed. Errors: kPermission, kResourceExhausted, kIo.
Status WriteRef(const std::string& cache, std::string_view id, const std::string& revision, const std::string& commit);

struct CachedModel {
  std::string path;  // folder of a checkpoint, or the (first) file of a GGUF model
  std::string commit;
};

// What opens the model that `ref` names, if all of it is in the cache. Without a revision: "main" as it was last
// fetched, else the newest snapshot that has it. Errors: kInvalidArgument when several GGUF models fit.
Result<std::optional<CachedModel>> FindCached(const std::string& cache, const RepoRef& ref);

// snapshots/<commit>/<name> -> blobs/<blob>, relative; replaces a link that is there. On a file system without links
// the blob itself is moved there. Errors: kPermission, kResourceExhausted, kIo.
Status LinkBlob(const std::string& repo_folder, const std::string& blob, const std::string& commit,
                const std::string& name);

// The lock under which a blob is downloaded, held until it is closed (OpenLocked). Waits until it is free, asking
// `cancelled` now and then. Errors: kCancelled, kPermission, kIo.
Result<File> LockBlob(const std::string& cache, std::string_view id, std::string_view blob,
                      const std::function<bool()>& cancelled);

// Of a repository's locks; those that exist. Errors: kPermission, kIo.
Result<std::vector<std::string>> ListLocks(const std::string& cache, std::string_view id);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_CACHE_H_
