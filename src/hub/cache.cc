#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "io/file_system.h"
#include "io/locked_file.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 20000;
constexpr int kMaxDepth = 8;
constexpr auto kLockPoll = std::chrono::milliseconds(200);

void AddFiles(const fs::path& folder, const std::string& prefix, int depth, std::vector<NamedSize>& files) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && files.size() < kMaxFiles;
       at.increment(error)) {
    const std::string name = prefix + at->path().filename().string();
    std::error_code ignored;
    // A link to a folder is followed by nothing of ours: it could lead anywhere.
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) {
      if (depth < kMaxDepth) AddFiles(at->path(), name + "/", depth + 1, files);
    } else if (at->is_regular_file(ignored)) {
      const uintmax_t bytes = at->file_size(ignored);
      if (!ignored) files.push_back({.name = name, .bytes = static_cast<int64_t>(bytes)});
    }
  }
}

Result<std::optional<CachedModel>> FindIn(const std::string& snapshot, const std::string& commit, const RepoRef& ref) {
  const std::vector<NamedSize> files = ListSnapshotFiles(snapshot);
  if (ref.file.empty() && IsWholeCheckpoint(files)) return std::optional(CachedModel{snapshot, commit});
  std::vector<GgufFiles> models = GroupGguf(files);
  std::erase_if(models, [](const GgufFiles& model) { return !model.complete; });
  const Result<GgufFiles> model = ChooseGguf(models, ref.file);
  if (model.ok()) return std::optional(CachedModel{JoinPath(snapshot, model->name), commit});
  if (model.status().code() == StatusCode::kNotFound) return std::optional<CachedModel>();
  return model.status().WithContext(ref.Text());
}

}  // namespace

std::string RepoFolder(const std::string& cache, std::string_view id) { return JoinPath(cache, RepoFolderName(id)); }

std::vector<Snapshot> ListSnapshots(const std::string& cache, std::string_view id) {
  std::vector<Snapshot> snapshots;
  std::error_code error;
  for (fs::directory_iterator at(JoinPath(RepoFolder(cache, id), "snapshots"), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (!at->is_directory(ignored) || at->is_symlink(ignored)) continue;
    snapshots.push_back({.commit = at->path().filename().string(),
                         .path = at->path().string(),
                         .changed = at->last_write_time(ignored)});
  }
  std::sort(snapshots.begin(), snapshots.end(), [](const Snapshot& a, const Snapshot& b) {
    return std::tie(b.changed, a.commit) < std::tie(a.changed, b.commit);
  });
  return snapshots;
}

std::vector<NamedSize> ListSnapshotFiles(const std::string& snapshot_path) {
  std::vector<NamedSize> files;
  AddFiles(snapshot_path, "", 0, files);
  std::sort(files.begin(), files.end(), [](const NamedSize& a, const NamedSize& b) { return a.name < b.name; });
  return files;
}

std::optional<std::string> ReadRef(const std::string& cache, std::string_view id, std::string_view revision) {
  const std::string path = JoinPath(JoinPath(RepoFolder(cache, id), "refs"), revision);
  const Result<std::string> text = ReadRegularFile(path, {.max_bytes = 256, .limit_reason = "more than any ref has"});
  if (!text.ok()) return std::nullopt;
  const std::string commit(AsciiTrim(*text));
  // It becomes a path.
  return IsCommit(commit) ? std::optional(commit) : std::nullopt;
}

Status WriteRef(const std::string& cache, std::string_view id, const std::string& revision, const std::string& commit) {
  if (revision == commit || ReadRef(cache, id, revision) == commit) return Status();
  const std::string path = JoinPath(JoinPath(RepoFolder(cache, id), "refs"), revision);
  RETURN_IF_ERROR(CreateFolders(fs::path(path).parent_path().string()));
  return WriteFileAtomically(path, commit);
}

Result<std::optional<CachedModel>> FindCached(const std::string& cache, const RepoRef& ref) {
  const std::string snapshots = JoinPath(RepoFolder(cache, ref.id), "snapshots");
  const auto commit =
      IsCommit(ref.revision) ? std::optional(ref.revision) : ReadRef(cache, ref.id, ref.revision_or_default());
  if (commit) {
    ASSIGN_OR_RETURN(const std::optional<CachedModel> found, FindIn(JoinPath(snapshots, *commit), *commit, ref));
    if (found || !ref.revision.empty()) return found;
  }
  if (!ref.revision.empty()) return std::optional<CachedModel>();
  for (const Snapshot& snapshot : ListSnapshots(cache, ref.id)) {
    ASSIGN_OR_RETURN(const std::optional<CachedModel> found, FindIn(snapshot.path, snapshot.commit, ref));
    if (found) return found;
  }
  return std::optional<CachedModel>();
}

Status LinkBlob(const std::string& repo_folder, const std::string& blob, const std::string& commit,
                const std::string& name) {
  const std::string link = JoinPath(JoinPath(JoinPath(repo_folder, "snapshots"), commit), name);
  const std::string blob_path = JoinPath(JoinPath(repo_folder, "blobs"), blob);
  RETURN_IF_ERROR(CreateFolders(fs::path(link).parent_path().string()));
  std::string target = "../../blobs/" + blob;
  for (const char c : name) {
    if (c == '/') target.insert(0, "../");
  }
  // Under a name of its own first: what is there stays usable until it is replaced as a whole.
  const std::string fresh = fmt::format("{}.{}.link", link, ::getpid());
  (void)::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) == 0) {
    if (::rename(fresh.c_str(), link.c_str()) == 0) return Status();
    const int error = errno;
    (void)::unlink(fresh.c_str());
    return ErrnoStatus(error, "linking", link);
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return ErrnoStatus(errno, "linking", link);
  if (::rename(blob_path.c_str(), link.c_str()) != 0) return ErrnoStatus(errno, "renaming", blob_path);
  return Status();
}

Result<File> LockBlob(const std::string& cache, std::string_view id, std::string_view blob,
                      const std::function<bool()>& cancelled) {
  const std::string folder = JoinPath(JoinPath(cache, ".locks"), RepoFolderName(id));
  RETURN_IF_ERROR(CreateFolders(folder));
  const std::string path = JoinPath(folder, std::string(blob) + ".lock");
  while (true) {
    ASSIGN_OR_RETURN(std::optional<File> lock, OpenLocked(path));
    if (lock) return std::move(*lock);
    if (cancelled()) return CancelledError(fmt::format("stopped while another process downloads into {}", cache));
    std::this_thread::sleep_for(kLockPoll);
  }
}

Result<std::vector<std::string>> ListLocks(const std::string& cache, std::string_view id) {
  const std::string folder = JoinPath(JoinPath(cache, ".locks"), RepoFolderName(id));
  Result<std::vector<std::string>> names = ListFolder(folder);
  if (names.status().code() == StatusCode::kNotFound) return std::vector<std::string>();
  RETURN_IF_ERROR(names.status());
  std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".lock"); });
  for (std::string& name : *names) name = JoinPath(folder, name);
  return names;
}

}  // namespace nunspark
