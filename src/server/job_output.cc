#include "server/job_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace nunspark::server {
namespace {

constexpr std::string_view kOutputEnd = ".out.txt";
constexpr std::string_view kSidecarEnd = ".meta.json";
constexpr int kMostNames = 100'000;

// Of an output that is compared: texts are of some MB at most.
constexpr int64_t kMostEarlier = int64_t{256} << 20;

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return Status();
  return IoError(fmt::format("the output folder {} cannot be used: {}", folder,
                             error ? error.message() : std::string("it is a file")));
}

// Calls `take` with each possible path of an output in turn until it says that it has it.
template <typename Take>
Result<std::string> FindName(const std::string& folder, const std::string& file_name, const Take& take) {
  RETURN_IF_ERROR(MakeFolder(folder));
  for (int i = 0; i < kMostNames; ++i) {
    const std::string base = i == 0 ? file_name : fmt::format("{}.{}", file_name, i);
    std::string path = JoinPath(folder, base + std::string(kOutputEnd));
    std::error_code error;
    if (std::filesystem::exists(SidecarPath(path), error)) continue;
    ASSIGN_OR_RETURN(const bool taken, take(path));
    if (taken) return path;
  }
  return ResourceExhaustedError(fmt::format("{} holds {} outputs of {}", folder, kMostNames, file_name));
}

Result<std::string> CreateNew(const std::string& folder, const std::string& file_name) {
  return FindName(folder, file_name, [](const std::string& path) -> Result<bool> {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) return false;
    if (fd < 0) return ErrnoStatus(errno, "creating the output", path);
    ::close(fd);
    return true;
  });
}

}  // namespace

std::string SidecarPath(const std::string& output_path) {
  return output_path.substr(0, output_path.size() - kOutputEnd.size()) + std::string(kSidecarEnd);
}

Result<std::string> FreeOutputPath(const std::string& folder, const std::string& file_name) {
  return FindName(folder, file_name, [](const std::string& path) -> Result<bool> {
    std::error_code error;
    return !std::filesystem::exists(path, error);
  });
}

Result<JobOutput> JobOutput::Create(const std::string& folder, const std::string& file_name) {
  JobOutput output;
  output.folder_ = folder;
  output.file_name_ = file_name;
  ASSIGN_OR_RETURN(output.path_, CreateNew(folder, file_name));
  RETURN_IF_ERROR(output.Open());
  return output;
}

Result<JobOutput> JobOutput::Resume(const std::string& path, const std::string& folder, const std::string& file_name) {
  if (path.empty() || !FileExists(path)) return Create(folder, file_name);
  JobOutput output;
  output.folder_ = folder;
  output.file_name_ = file_name;
  output.path_ = path;
  RETURN_IF_ERROR(output.Open());
  return output;
}

Status JobOutput::Open() {
  ASSIGN_OR_RETURN(earlier_, ReadRegularFile(path_, {.max_bytes = kMostEarlier}));
  ASSIGN_OR_RETURN(file_, File::OpenWrite(path_));
  end_ = 0;
  return Status();
}

Status JobOutput::Restart() { return Open(); }

Status JobOutput::Depart() {
  const std::string text = earlier_.substr(0, static_cast<size_t>(end_));
  file_.Close();
  ASSIGN_OR_RETURN(path_, CreateNew(folder_, file_name_));
  ASSIGN_OR_RETURN(file_, File::OpenWrite(path_));
  earlier_.clear();
  return file_.WriteAt(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Result<std::string> JobOutput::Append(std::string_view text) {
  const std::string_view there = std::string_view(earlier_).substr(std::min<size_t>(earlier_.size(), end_));
  const size_t same = std::min(there.size(), text.size());
  if (there.substr(0, same) == text.substr(0, same)) {
    end_ += static_cast<int64_t>(same);
    text.remove_prefix(same);
  } else {
    RETURN_IF_ERROR(Depart());
  }
  if (text.empty()) return std::string();
  RETURN_IF_ERROR(file_.WriteAt(end_, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  end_ += std::ssize(text);
  return std::string(text);
}

Status JobOutput::Finish() {
  if (end_ < std::ssize(earlier_)) RETURN_IF_ERROR(Depart());
  struct stat written = {}, named = {};
  if (::fstat(file_.fd(), &written) != 0 || ::stat(path_.c_str(), &named) != 0 || written.st_dev != named.st_dev ||
      written.st_ino != named.st_ino) {
    return IoError(fmt::format("the output {} was removed while it was written", path_));
  }
  return file_.Sync();
}

}  // namespace nunspark::server
