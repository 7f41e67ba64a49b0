#include "hub/removal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "hub/repo_ref.h"
#include "io/file.h"
#include "io/locked_file.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 200000;

// Of the entry itself, not of what a link leads to.
bool Inspect(const std::string& path, struct stat& info) { return ::lstat(path.c_str(), &info) == 0; }

Status RequireFolder(const std::string& path) {
  struct stat info = {};
  if (!Inspect(path, info)) return ErrnoStatus(errno, "inspecting", path);
  if (S_ISLNK(info.st_mode)) {
    return InvalidArgumentError(fmt::format("{} is a link; remove what it leads to by hand", path));
  }
  return Status();
}

// Everything below `folder`, without following links.
Status AddAll(const std::string& folder, Removal& removal) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    struct stat info = {};
    if (!Inspect(path, info)) return ErrnoStatus(errno, "inspecting", path);
    if (removal.files.size() + removal.folders.size() > kMaxEntries) {
      return InvalidArgumentError(fmt::format("{} holds more than {} files; remove it by hand", folder, kMaxEntries));
    }
    if (S_ISDIR(info.st_mode)) {
      RETURN_IF_ERROR(AddAll(path, removal));
    } else {
      removal.files.push_back(path);
      if (S_ISREG(info.st_mode)) removal.freed_bytes += info.st_size;
    }
  }
  removal.folders.push_back(folder);
  return Status();
}

Result<Removal> PlanPackRemoval(const CatalogueEntry& entry) {
  RETURN_IF_ERROR(RequireFolder(entry.path));
  const std::string journal = entry.path + ".partial/journal";
  if (FileExists(journal)) {
    ASSIGN_OR_RETURN(const std::optional<File> lock, OpenLocked(journal));
    if (!lock) return InvalidArgumentError(fmt::format("{} is being packed", entry.path));
  }
  Removal removal;
  removal.folder = entry.path;
  RETURN_IF_ERROR(AddAll(entry.path, removal));
  for (const std::string& file : removal.files) {
    struct stat info = {};
    if (Inspect(file, info) && S_ISREG(info.st_mode)) continue;
    return InvalidArgumentError(fmt::format("{} is no file of a pack; remove {} by hand", file, entry.path));
  }
  if (const std::string warm_start = entry.path + ".warm-start"; FileExists(warm_start)) {
    removal.files.push_back(warm_start);
  }
  // Without its manifest a folder is no pack any more, wherever this ends.
  std::stable_partition(removal.files.begin(), removal.files.end(),
                        [](const std::string& file) { return file.ends_with("/manifest.json"); });
  return removal;
}

Result<Removal> PlanGgufRemoval(const CatalogueEntry& entry) {
  const fs::path path(entry.path);
  Removal removal;
  removal.folder = path.parent_path().string();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(removal.folder));
  std::vector<NamedSize> files;
  for (const std::string& name : names) files.push_back({.name = name, .bytes = 0});
  for (const GgufFiles& model : GroupGguf(files)) {
    if (model.name != path.filename()) continue;
    for (const size_t shard : model.shards) removal.files.push_back(JoinPath(removal.folder, files[shard].name));
  }
  removal.freed_bytes = entry.size_bytes;
  return removal;
}

// A file of a snapshot and the blob of the same repository that it leads to, if it does.
struct Link {
  std::string commit;
  std::string name;
  std::string path;
  std::string blob;
};

std::string BlobOf(const std::string& link, const std::string& repo) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return "";
  const fs::path full = (fs::path(link).parent_path() / target).lexically_normal();
  return full.parent_path() == fs::path(repo + "/blobs").lexically_normal() ? full.string() : "";
}

Result<std::vector<Link>> LinksOf(const std::string& repo, const std::string& cache, const std::string& id) {
  std::vector<Link> links;
  for (const Snapshot& snapshot : ListSnapshots(cache, id)) {
    Removal all;
    RETURN_IF_ERROR(AddAll(snapshot.path, all));
    for (std::string& path : all.files) {
      links.push_back({.commit = snapshot.commit,
                       .name = path.substr(snapshot.path.size() + 1),
                       .path = path,
                       .blob = BlobOf(path, repo)});
    }
  }
  return links;
}

// Chosen links, and the blobs that only they use.
Status AddLinks(const std::vector<Link>& links, const std::function<bool(const Link&)>& goes, Removal& removal) {
  std::set<std::string> used, blobs;
  for (const Link& link : links) {
    struct stat info = {};
    if (!goes(link)) {
      used.insert(link.blob);
    } else {
      removal.files.push_back(link.path);
      if (!link.blob.empty())
        blobs.insert(link.blob);
      else if (Inspect(link.path, info) && S_ISREG(info.st_mode))
        removal.freed_bytes += info.st_size;
    }
  }
  for (const std::string& blob : blobs) {
    struct stat info = {};
    if (!Inspect(blob, info)) continue;
    (used.contains(blob) ? removal.kept_bytes : removal.freed_bytes) += info.st_size;
    if (!used.contains(blob)) removal.files.push_back(blob);
  }
  return Status();
}

Result<Removal> PlanRepoRemoval(const std::string& cache, const RepoRef& ref) {
  Removal removal;
  removal.folder = RepoFolder(cache, ref.id);
  if (!FolderExists(removal.folder)) return NotFoundError(fmt::format("{} is not in {}", ref.id, cache));
  RETURN_IF_ERROR(RequireFolder(removal.folder));
  ASSIGN_OR_RETURN(const std::vector<std::string> lock_paths, ListLocks(cache, ref.id));
  for (const std::string& path : lock_paths) {
    ASSIGN_OR_RETURN(std::optional<File> lock, OpenLocked(path));
    if (!lock) return InvalidArgumentError(fmt::format("{} is being downloaded ({} is locked)", ref.id, path));
    removal.locks.push_back(std::move(*lock));
  }
  ASSIGN_OR_RETURN(const std::vector<Link> links, LinksOf(removal.folder, cache, ref.id));
  std::function<bool(const Link&)> goes = [](const Link&) { return true; };
  if (!ref.revision.empty()) {
    const std::optional<std::string> commit =
        IsCommit(ref.revision) ? std::optional(ref.revision) : ReadRef(cache, ref.id, ref.revision);
    goes = [commit](const Link& link) { return commit && link.commit == *commit; };
  } else if (!ref.file.empty()) {
    std::vector<NamedSize> names;
    for (const Link& link : links) names.push_back({.name = link.name, .bytes = 0});
    // The same file of several snapshots is one.
    std::sort(names.begin(), names.end(), [](const NamedSize& a, const NamedSize& b) { return a.name < b.name; });
    names.erase(std::unique(names.begin(), names.end(),
                            [](const NamedSize& a, const NamedSize& b) { return a.name == b.name; }),
                names.end());
    const Result<GgufFiles> model = ChooseGguf(GroupGguf(names), ref.file);
    if (!model.ok()) return model.status().WithContext(ref.id);
    std::set<std::string> shards;
    for (const size_t shard : model->shards) shards.insert(names[shard].name);
    goes = [shards](const Link& link) { return shards.contains(link.name); };
  }
  if (std::all_of(links.begin(), links.end(), goes)) {
    RETURN_IF_ERROR(AddAll(removal.folder, removal));
    return removal;
  }
  RETURN_IF_ERROR(AddLinks(links, goes, removal));
  if (removal.files.empty()) return NotFoundError(fmt::format("{} is not in {}", ref.Text(), cache));
  // Of a snapshot that goes as a whole, its folders and the branches that stand for it.
  std::map<std::string, bool> whole;
  for (const Link& link : links) whole.try_emplace(link.commit, true).first->second &= goes(link);
  for (const auto& [commit, all] : whole) {
    Removal below;
    if (!all) continue;
    RETURN_IF_ERROR(AddAll(JoinPath(JoinPath(removal.folder, "snapshots"), commit), below));
    // What other tools note of a commit.
    const std::string tree = JoinPath(JoinPath(removal.folder, "trees"), commit + ".json");
    if (FileExists(tree)) removal.files.push_back(tree);
    const std::string absent = JoinPath(JoinPath(removal.folder, ".no_exist"), commit);
    if (FolderExists(absent)) RETURN_IF_ERROR(AddAll(absent, removal));
    removal.folders.insert(removal.folders.end(), below.folders.begin(), below.folders.end());
  }
  Removal refs;
  const std::string ref_folder = JoinPath(removal.folder, "refs");
  if (FolderExists(ref_folder)) RETURN_IF_ERROR(AddAll(ref_folder, refs));
  for (const std::string& path : refs.files) {
    const auto commit = ReadRef(cache, ref.id, path.substr(ref_folder.size() + 1));
    const auto entry = commit ? whole.find(*commit) : whole.end();
    if (entry != whole.end() && entry->second) removal.files.push_back(path);
  }
  return removal;
}

}  // namespace

Result<Removal> PlanRemoval(const CatalogueOptions& options, std::string_view name) {
  ASSIGN_OR_RETURN(const std::vector<CatalogueEntry> entries, ScanCatalogue(options));
  for (const CatalogueEntry& entry : entries) {
    if (entry.name != name || !entry.snapshot.empty()) continue;
    if (entry.kind == ModelKind::kUnpacked) {
      return InvalidArgumentError(
          fmt::format("{} is a checkpoint that was put there by hand; remove it so", entry.path));
    }
    return entry.kind == ModelKind::kPacked ? PlanPackRemoval(entry) : PlanGgufRemoval(entry);
  }
  const Result<RepoRef> ref = ParseRepoRef(name);
  if (!ref.ok()) return NotFoundError(fmt::format("no model named '{}'; 'nunspark models' lists them", name));
  return PlanRepoRemoval(options.cache, *ref);
}

Status Remove(const Removal& removal) {
  for (const std::string& file : removal.files) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "removing", file);
  }
  for (const std::string& folder : removal.folders) {
    if (::rmdir(folder.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY) {
      return ErrnoStatus(errno, "removing", folder);
    }
  }
  return Status();
}

}  // namespace nunspark
