#include "engine/warm_start_file.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"

namespace nunspark {
namespace {

constexpr int64_t kMostBytes = 64 << 20;

// Empty where there is none.
std::string CacheFolder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string folder = variable("XDG_CACHE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = JoinPath(variable("HOME"), ".cache");
  return folder.empty() ? "" : JoinPath(folder, "nunspark/warm-start");
}

template <typename Write>
Status InFirstPlace(const Checkpoint& model, const Write& write) {
  Status status = NotFoundError("there is no folder for it: set XDG_CACHE_HOME, or HOME");
  for (const std::string& path : WarmStartPaths(model)) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    status = write(path);
    if (status.ok()) break;
  }
  return status;
}

}  // namespace

std::vector<std::string> WarmStartPaths(const Checkpoint& model) {
  std::vector<std::string> paths;
  if (model.is_pack) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::canonical(model.folder, error);
    if (!error) paths.push_back(folder.string() + ".warm-start");
  }
  if (const std::string folder = CacheFolder(); !folder.empty()) paths.push_back(JoinPath(folder, model.source_hash));
  return paths;
}

WarmStartFile LoadWarmStart(const Checkpoint& model, const HParams& hparams) {
  WarmStartFile file;
  for (const std::string& path : WarmStartPaths(model)) {
    const Result<std::string> text =
        ReadRegularFile(path, {.max_bytes = kMostBytes, .limit_reason = "more than experts of any model take"});
    if (!text.ok()) {
      if (text.status().code() != StatusCode::kNotFound) file.note = text.status().message();
      continue;
    }
    Result<std::vector<ExpertUses>> uses = ParseWarmStart(
        *text, model.source_hash, static_cast<int32_t>(hparams.layer.size()), static_cast<int32_t>(hparams.experts));
    if (uses.ok()) return {.uses = std::move(uses).value(), .note = ""};
    file.note = fmt::format("{}: {}", path, uses.status().message());
  }
  return file;
}

Status CheckWarmStart(const Checkpoint& model) {
  return InFirstPlace(model, [](const std::string& path) { return AtomicFile::Create(path).status(); });
}

Status SaveWarmStart(const Checkpoint& model, std::span<const ExpertUses> uses) {
  const std::string text = WriteWarmStart(model.source_hash, uses);
  return InFirstPlace(model, [&](const std::string& path) { return WriteFileAtomically(path, text); });
}

}  // namespace nunspark
