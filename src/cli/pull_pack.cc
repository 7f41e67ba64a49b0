#include "cli/pull_pack.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/parts.h"
#include "base/size.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "hub/cache.h"
#include "hub/http_client.h"
#include "io/file_system.h"
#include "io/locked_file.h"
#include "models/model_layout.h"

namespace nunspark::cli {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr int64_t kLengthBytes = 8;

// Bytes of a safetensors file up to its data, once its first eight are there.
int64_t HeaderBytes(std::string_view beginning) {
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<uint8_t>(beginning[static_cast<size_t>(i)])} << (8 * i);
  }
  // Far more than is taken; the reader of the header says so.
  return kLengthBytes + static_cast<int64_t>(std::min<uint64_t>(length, uint64_t{1} << 40));
}

class Pipeline {
 public:
  Pipeline(const PullOptions& options, const PullPlan& plan, std::string out,
           const std::function<void(int64_t, int64_t)>& progress)
      : options_(options), plan_(plan), out_(std::move(out)), folder_(out_ + ".download"), progress_(progress) {
    control_ = options.control;
    control_.http.cancelled = control_.cancelled;
    control_.progress = [this](int64_t delta) {
      done_bytes_ += delta;
      progress_(done_bytes_, plan_.total_bytes);
    };
  }

  Result<PackReport> Run();

 private:
  std::string Path(const std::string& name) const { return JoinPath(folder_, name); }
  // Says that the file of that name is whole and verified, not only its header.
  std::string Mark(const std::string& name) const { return Path(name) + ".whole"; }
  bool IsWhole(const std::string& name) const { return FileExists(Mark(name)); }
  Status CheckRoom() const;
  Status BeginCommit();
  Status FetchHeader(HttpClient& client, const RepoFile& file);
  Status FetchWhole(HttpClient& client, const RepoFile& file);
  Status DropWeights(const std::string& name);
  Status SetTimes();
  Result<PackReport> PackAvailable();
  std::set<std::string> WaitingNames(const PackReport& report) const;
  Status Clean();

  const PullOptions& options_;
  const PullPlan& plan_;
  const std::string out_;
  const std::string folder_;
  const std::function<void(int64_t, int64_t)>& progress_;
  DownloadControl control_;
  int64_t done_bytes_ = 0;
  std::optional<Checkpoint> checkpoint_;
  std::optional<ModelLayout> layout_;
};

Result<PackReport> Pipeline::Run() {
  RETURN_IF_ERROR(CreateFolders(folder_));
  ASSIGN_OR_RETURN(const std::optional<File> lock, OpenLocked(Path("lock")));
  if (!lock) return InvalidArgumentError(fmt::format("{} is in use: another process downloads into it", folder_));
  HttpClient client(control_.http);
  RETURN_IF_ERROR(BeginCommit());
  RETURN_IF_ERROR(CheckRoom());
  std::vector<const RepoFile*> weights;
  for (const RepoFile& file : plan_.files) {
    if (file.name.ends_with(kSafetensors)) {
      weights.push_back(&file);
      RETURN_IF_ERROR(FetchHeader(client, file));
    } else {
      RETURN_IF_ERROR(FetchWhole(client, file));
    }
  }
  ASSIGN_OR_RETURN(PackReport report, PackAvailable());
  // What an earlier call has packed.
  const std::set<std::string> to_come = WaitingNames(report);
  for (const RepoFile* file : weights) {
    if (!to_come.contains(file->name)) control_.progress(file->bytes);
  }
  while (!report.waiting_files.empty()) {
    // What is waited for and not there; of that the first, in the order of their names.
    const std::set<std::string> waiting = WaitingNames(report);
    const auto next = std::find_if(weights.begin(), weights.end(), [&](const RepoFile* file) {
      return waiting.contains(file->name) && !IsWhole(file->name);
    });
    if (next == weights.end()) return IoError(fmt::format("{}: every file is there, and pieces are missing", folder_));
    RETURN_IF_ERROR(FetchWhole(client, **next));
    ASSIGN_OR_RETURN(report, PackAvailable());
  }
  RETURN_IF_ERROR(Clean());
  return report;
}

std::set<std::string> Pipeline::WaitingNames(const PackReport& report) const {
  std::set<std::string> names;
  for (const int32_t file : report.waiting_files) {
    const std::string& path = checkpoint_->tensors.files()[static_cast<size_t>(file)].path;
    names.emplace(LastPathPart(path));
  }
  return names;
}

// Files of another commit may have the same names and sizes.
Status Pipeline::BeginCommit() {
  const std::string note = Path("commit");
  if (FileExists(note)) {
    ASSIGN_OR_RETURN(const std::string commit, ReadRegularFile(note));
    if (commit == plan_.commit) return Status();
  }
  for (const RepoFile& file : plan_.files) {
    for (const char* ending : {"", ".whole", ".incomplete", ".header"})
      (void)::unlink((Path(file.name) + ending).c_str());
  }
  return WriteFileAtomically(note, plan_.commit);
}

// The packer looks for the pack's room itself; beside it there must be room for what arrives.
Status Pipeline::CheckRoom() const {
  int64_t largest = 0, held = 0;
  for (const RepoFile& file : plan_.files) {
    largest = std::max(largest, file.bytes);
    struct stat info = {};
    for (const std::string& path : {Path(file.name), Path(file.name) + ".incomplete"}) {
      if (::stat(path.c_str(), &info) == 0) held += int64_t{info.st_blocks} * 512;
    }
  }
  std::error_code none;
  for (std::filesystem::recursive_directory_iterator at(out_ + ".partial", none), end; !none && at != end;
       at.increment(none)) {
    struct stat info = {};
    if (::stat(at->path().c_str(), &info) == 0) held += int64_t{info.st_blocks} * 512;
  }
  const Status room = CheckFreeSpace(folder_, plan_.total_bytes + largest - held);
  if (room.ok() || !std::filesystem::exists(out_, none)) return room;
  return Status();  // a pack is there already; the packer says what is the matter, or that it is up to date
}

// The beginning of the file, in a file of its full size without anything in the rest.
Status Pipeline::FetchHeader(HttpClient& client, const RepoFile& file) {
  if (FileExists(Path(file.name))) return Status();
  const DownloadedFile download = DownloadOf(options_, plan_, file, Path(file.name));
  const auto missing = [](std::string_view text) {
    const auto have = static_cast<int64_t>(text.size());
    return (have < kLengthBytes ? kLengthBytes : HeaderBytes(text)) - have;
  };
  ASSIGN_OR_RETURN(const std::string header,
                   FetchBeginning(client, {.url = download.url, .token = download.token, .from = 0, .if_range = ""},
                                  kMaxSafetensorsHeaderBytes + kLengthBytes, download.name, control_, missing));
  if (static_cast<int64_t>(header.size()) > file.bytes) {
    return DataLossError(
        fmt::format("{}: its header has {} bytes, the file as listed {}", download.name, header.size(), file.bytes));
  }
  const std::string fresh = Path(file.name) + ".header";
  ASSIGN_OR_RETURN(File stub, File::Create(fresh));
  RETURN_IF_ERROR(stub.WriteAt(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  RETURN_IF_ERROR(stub.Truncate(file.bytes));
  RETURN_IF_ERROR(stub.Sync());
  if (::rename(fresh.c_str(), download.path.c_str()) != 0) return ErrnoStatus(errno, "renaming", fresh);
  return Status();
}

Status Pipeline::FetchWhole(HttpClient& client, const RepoFile& file) {
  if (IsWhole(file.name)) {
    control_.progress(file.bytes);
    return Status();
  }
  std::string before;
  const bool is_weights = file.name.ends_with(kSafetensors);
  const auto read_header = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const File stub, File::OpenRead(Path(file.name)));
    std::string text(static_cast<size_t>(kLengthBytes), '\0');
    const auto bytes = [&] { return std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()); };
    RETURN_IF_ERROR(stub.ReadAt(0, bytes()));
    text.resize(static_cast<size_t>(std::min(HeaderBytes(text), file.bytes)));
    RETURN_IF_ERROR(stub.ReadAt(0, bytes()));
    return text;
  };
  if (is_weights) {
    ASSIGN_OR_RETURN(before, read_header());
  }
  RETURN_IF_ERROR(Download(client, DownloadOf(options_, plan_, file, Path(file.name)), control_));
  if (is_weights) {
    ASSIGN_OR_RETURN(const std::string after, read_header());
    if (before != after) {
      return DataLossError(
          fmt::format("{}: the server gave another header before it gave the whole file; remove {} and "
                      "try again",
                      file.name, folder_));
    }
  }
  ASSIGN_OR_RETURN(const File mark, File::Create(Mark(file.name)));
  return SyncFolder(folder_);
}

// Keeps the header: the packer's next runs describe the whole model.
Status Pipeline::DropWeights(const std::string& name) {
  if (::unlink(Mark(name).c_str()) != 0) return ErrnoStatus(errno, "removing", Mark(name));
  ASSIGN_OR_RETURN(File file, File::OpenWrite(Path(name)));
  ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
  std::string length(static_cast<size_t>(kLengthBytes), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(length.data()), length.size()}));
  RETURN_IF_ERROR(file.Truncate(std::min(HeaderBytes(length), bytes)));
  return file.Truncate(bytes);
}

// The packer goes on only where nothing has changed since, by the files' times among others: they stand for the commit.
Status Pipeline::SetTimes() {
  time_t seconds = 0;
  std::from_chars(plan_.commit.data(), plan_.commit.data() + 7, seconds, 16);
  const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0}, {.tv_sec = seconds, .tv_nsec = 0}};
  for (const RepoFile& file : plan_.files) {
    const std::string path = Path(file.name);
    if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) return ErrnoStatus(errno, "setting the times of", path);
  }
  return Status();
}

Result<PackReport> Pipeline::PackAvailable() {
  RETURN_IF_ERROR(SetTimes());
  if (!checkpoint_) {
    ASSIGN_OR_RETURN(checkpoint_, OpenCheckpoint(folder_));
    ASSIGN_OR_RETURN(layout_, ResolveModel(*checkpoint_));
  }
  std::vector<std::string> names;
  for (const SourceFile& file : checkpoint_->tensors.files()) {
    names.emplace_back(LastPathPart(file.path));
  }
  PackOptions pack;
  pack.out_folder = out_;
  pack.available = [&](int32_t file) { return IsWhole(names[static_cast<size_t>(file)]); };
  pack.progress = [this](int64_t, int64_t) { return !control_.cancelled(); };
  ASSIGN_OR_RETURN(PackReport report, Pack(*checkpoint_, *layout_, pack));
  const std::set<int32_t> waiting(report.waiting_files.begin(), report.waiting_files.end());
  for (size_t file = 0; file < names.size(); ++file) {
    if (IsWhole(names[file]) && !waiting.contains(static_cast<int32_t>(file)))
      RETURN_IF_ERROR(DropWeights(names[file]));
  }
  return report;
}

// Only what was made here; the folder stays if there is anything else in it.
Status Pipeline::Clean() {
  for (const RepoFile& file : plan_.files) {
    for (const std::string& path : {Path(file.name), Mark(file.name)}) (void)::unlink(path.c_str());
  }
  for (const char* name : {"commit", "lock"}) (void)::unlink(Path(name).c_str());
  (void)::rmdir(folder_.c_str());
  return Status();
}

}  // namespace

Result<PackReport> PullIntoPack(const PullOptions& options, const PullPlan& plan, const std::string& out,
                                const std::function<void(int64_t done, int64_t total)>& progress) {
  return Pipeline(options, plan, std::string(WithoutEndSlashes(out)), progress).Run();
}

}  // namespace nunspark::cli
