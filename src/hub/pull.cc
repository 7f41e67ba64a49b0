#include "hub/pull.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "hub/cache.h"
#include "hub/file_choice.h"
#include "io/file.h"
#include "io/file_system.h"

namespace nunspark {
namespace {

// Left free on the drive, for everything else.
constexpr int64_t kSpareBytes = 64 << 20;
constexpr auto kReportEvery = std::chrono::milliseconds(100);

// -1: no such file.
int64_t BytesAt(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  return static_cast<int64_t>(info.st_size);
}

// Where the files of one pull are.
struct Places {
  std::string cache;
  std::string id;
  std::string repo;
  std::string snapshot;

  Places(const PullOptions& options, const std::string& commit)
      : cache(options.hub.cache),
        id(options.ref.id),
        repo(RepoFolder(cache, id)),
        snapshot(JoinPath(JoinPath(repo, "snapshots"), commit)) {}
  std::string Blob(const RepoFile& file) const { return JoinPath(JoinPath(repo, "blobs"), file.digest); }
  std::string Link(const RepoFile& file) const { return JoinPath(snapshot, file.name); }
  // As other tools judge it, too: a blob appears only when it is whole.
  bool HasBlob(const RepoFile& file) const { return BytesAt(Blob(file)) == file.bytes; }
  bool HasLink(const RepoFile& file) const { return BytesAt(Link(file)) == file.bytes; }
  int64_t MissingBytes(const RepoFile& file) const {
    if (HasLink(file) || HasBlob(file)) return 0;
    const int64_t part = BytesAt(Blob(file) + ".incomplete");
    return file.bytes - std::clamp<int64_t>(part, 0, file.bytes);
  }
};

// The files of one pull, taken by several threads.
class Puller {
 public:
  Puller(const PullOptions& options, const PullPlan& plan)
      : options_(options), plan_(plan), places_(options, plan.commit), control_(options.control) {
    control_.cancelled = [this] { return stopped_.load() || options_.control.cancelled(); };
    control_.progress = [this](int64_t delta) { done_bytes_ += delta; };
    control_.http.cancelled = control_.cancelled;
  }

  Status Run();
  int64_t downloaded_bytes() const { return downloaded_bytes_; }

 private:
  void Work();
  Status GetFile(HttpClient& client, const RepoFile& file);

  const PullOptions& options_;
  const PullPlan& plan_;
  Places places_;
  DownloadControl control_;
  std::atomic<int64_t> done_bytes_{0};
  std::atomic<int64_t> downloaded_bytes_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of the rest
  std::condition_variable ended_;
  size_t next_ = 0;
  int working_ = 0;
  Status failure_;
};

Status Puller::Run() {
  const int threads = std::clamp<int>(options_.parallel, 1, kMaxParallelDownloads);
  working_ = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), plan_.files.size()));
  std::vector<std::thread> workers;
  for (int i = working_; i > 0; --i) workers.emplace_back([this] { Work(); });
  {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kReportEvery, [this] { return working_ == 0; })) {
      if (!options_.progress) continue;
      lock.unlock();
      options_.progress(done_bytes_, plan_.total_bytes);
      lock.lock();
    }
  }
  for (std::thread& worker : workers) worker.join();
  return failure_;
}

void Puller::Work() {
  HttpClient client(control_.http);
  std::unique_lock lock(mutex_);
  while (next_ < plan_.files.size() && failure_.ok()) {
    const RepoFile& file = plan_.files[next_++];
    lock.unlock();
    Status status = control_.cancelled() ? CancelledError("stopped") : GetFile(client, file);
    lock.lock();
    if (status.ok() || !failure_.ok()) continue;
    failure_ = std::move(status);
    stopped_ = true;
  }
  if (--working_ == 0) ended_.notify_all();
}

Status Puller::GetFile(HttpClient& client, const RepoFile& file) {
  if (places_.HasLink(file)) {
    done_bytes_ += file.bytes;
    return Status();
  }
  ASSIGN_OR_RETURN(const File lock, LockBlob(places_.cache, places_.id, file.digest, control_.cancelled));
  // Another process may have brought it while we waited.
  if (places_.HasBlob(file)) {
    done_bytes_ += file.bytes;
  } else {
    RETURN_IF_ERROR(Download(client, DownloadOf(options_, plan_, file, places_.Blob(file)), control_));
    downloaded_bytes_ += file.bytes;
  }
  // Seen by others, config.json makes a snapshot a model.
  if (file.name == "config.json") return Status();
  return LinkBlob(places_.repo, file.digest, plan_.commit, file.name);
}

}  // namespace

DownloadedFile DownloadOf(const PullOptions& options, const PullPlan& plan, const RepoFile& file, std::string path) {
  return {.url = fmt::format("{}/{}/resolve/{}/{}", options.hub.endpoint, options.ref.id, plan.commit,
                             PercentEncode(file.name, Slashes::kKept)),
          .token = options.hub.token,
          .name = fmt::format("{} of {}", file.name, options.ref.id),
          .path = std::move(path),
          .bytes = file.bytes,
          .digest_kind = file.digest_kind,
          .digest = file.digest};
}

Status CheckFreeSpace(const std::string& folder, int64_t needed_bytes) {
  ASSIGN_OR_RETURN(const FileSystemInfo drive, InspectFileSystem(folder));
  if (needed_bytes <= 0 || drive.free_bytes >= needed_bytes + kSpareBytes) return Status();
  return ResourceExhaustedError(fmt::format("{} has {} free, and {} are needed (with {} to spare)", folder,
                                            FormatSize(drive.free_bytes), FormatSize(needed_bytes),
                                            FormatSize(kSpareBytes)));
}

Result<PullPlan> PlanPull(const PullOptions& options) {
  DownloadControl control = options.control;
  control.http.cancelled = control.cancelled;
  HttpClient client(control.http);
  const std::string revision = options.ref.revision_or_default();
  const HttpRequest request{.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options.hub.endpoint,
                                               options.ref.id, PercentEncode(revision, Slashes::kEncoded)),
                            .token = options.hub.token,
                            .from = 0,
                            .if_range = ""};
  const std::string what = fmt::format("files of {}@{}", options.ref.id, revision);
  ASSIGN_OR_RETURN(const std::string json, Fetch(client, request, kMaxListingBytes, what, control));
  ASSIGN_OR_RETURN(RepoListing listing, ParseListing(json, what));
  if (IsCommit(revision) && listing.commit != revision) {
    return DataLossError(fmt::format("{}: the hub answers with commit {}", what, listing.commit));
  }
  std::vector<NamedSize> names;
  for (const RepoFile& file : listing.files) names.push_back({.name = file.name, .bytes = file.bytes});
  const Result<FileChoice> choice = ChooseFiles(names, options.ref.file);
  if (!choice.ok()) return choice.status().WithContext(options.ref.Text());
  PullPlan plan;
  plan.commit = listing.commit;
  if (choice->model >= 0) plan.model_file = names[static_cast<size_t>(choice->model)].name;
  const Places places(options, plan.commit);
  for (const size_t i : choice->files) {
    RepoFile& file = listing.files[i];
    if (file.digest.empty()) {
      return UnsupportedError(fmt::format("{}: {} does not say the hash of {}, so it could not be verified", what,
                                          options.hub.endpoint, file.name));
    }
    if (file.bytes > std::numeric_limits<int64_t>::max() / 2 - plan.total_bytes) {
      return DataLossError(fmt::format("{}: {} of {} bytes is larger than any file", what, file.name, file.bytes));
    }
    plan.total_bytes += file.bytes;
    plan.missing_bytes += places.MissingBytes(file);
    plan.files.push_back(std::move(file));
  }
  RETURN_IF_ERROR(CheckTogether(plan.files));
  return plan;
}

Result<PullReport> Pull(const PullOptions& options, const PullPlan& plan) {
  const Places places(options, plan.commit);
  RETURN_IF_ERROR(CreateFolders(JoinPath(places.repo, "blobs")));
  RETURN_IF_ERROR(CreateFolders(places.snapshot));
  if (const Status room = CheckFreeSpace(places.cache, plan.missing_bytes); !room.ok()) {
    return Status(room.code(), room.message() + "; free some, or set HF_HUB_CACHE to a larger drive");
  }
  Puller puller(options, plan);
  RETURN_IF_ERROR(puller.Run());
  for (const RepoFile& file : plan.files) {
    if (!places.HasLink(file)) RETURN_IF_ERROR(LinkBlob(places.repo, file.digest, plan.commit, file.name));
  }
  RETURN_IF_ERROR(WriteRef(places.cache, places.id, options.ref.revision_or_default(), plan.commit));
  return PullReport{.path = plan.model_file.empty() ? places.snapshot : JoinPath(places.snapshot, plan.model_file),
                    .commit = plan.commit,
                    .files = static_cast<int64_t>(plan.files.size()),
                    .bytes = plan.total_bytes,
                    .downloaded_bytes = puller.downloaded_bytes()};
}

}  // namespace nunspark
