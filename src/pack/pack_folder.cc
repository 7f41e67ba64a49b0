#include "pack/pack_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/parts.h"
#include "base/read_file.h"
#include "formats/checksums.h"
#include "formats/manifest.h"
#include "formats/tensor_index.h"
#include "io/file.h"
#include "io/file_system.h"
#include "pack/journal.h"

namespace nunspark {
namespace {

constexpr std::string_view kJournalFile = "journal";
constexpr std::string_view kUnfinishedFolder = "pack";

// Whether a folder that is not empty is this very pack.
Status CheckExistingPack(const std::string& out, const PackPlan& plan) {
  const std::string path = JoinPath(out, kManifestFile);
  if (!FileExists(path)) {
    return InvalidArgumentError(
        fmt::format("{} exists, is not empty and is not a pack; choose another output folder", out));
  }
  const auto refuse = [&](std::string_view reason) {
    return InvalidArgumentError(
        fmt::format("{} already holds a pack, {}; choose another output folder or remove it", out, reason));
  };
  ASSIGN_OR_RETURN(const std::string text,
                   ReadRegularFile(path, {.max_bytes = kMaxManifestBytes, .limit_reason = kManifestLimitReason}));
  Result<Manifest> manifest = ParseManifest(text, path);
  if (!manifest.ok()) return refuse("but not one that can be used (" + manifest.status().message() + ")");
  if (manifest->source_hash != plan.manifest.source_hash) {
    return refuse(fmt::format("made from other weights or quantised otherwise (source {}, expected {})",
                              manifest->source_hash, plan.manifest.source_hash));
  }
  for (ManifestPiece& piece : manifest->pieces) piece.checksum.clear();
  if (WriteManifest(*manifest) != WriteManifest(plan.manifest)) {
    return refuse("made from the same weights with other options or another config.json");
  }
  TensorIndex index;
  if (const Status damage = AddPackFiles(*manifest, out, index); !damage.ok()) {
    return refuse("which is damaged (" + damage.message() + ")");
  }
  const std::string checksums_path = JoinPath(out, kChecksumsFile);
  const Result<std::string> checksums_text = ReadRegularFile(checksums_path);
  if (!checksums_text.ok()) return refuse("which is damaged (" + checksums_text.status().message() + ")");
  const Result<std::vector<FileChecksum>> checksums = ParseChecksums(*checksums_text, checksums_path);
  if (!checksums.ok()) return refuse("which is damaged (" + checksums.status().message() + ")");
  std::vector<FileChecksum> side_files = plan.copies;
  side_files.insert(side_files.end(), plan.generated.begin(), plan.generated.end());
  for (const std::string_view name : PackedSideFiles()) {
    const auto named = [&](const FileChecksum& file) { return file.name == name; };
    const auto mine = std::find_if(side_files.begin(), side_files.end(), named);
    const auto theirs = std::find_if(checksums->begin(), checksums->end(), named);
    const bool same =
        mine == side_files.end() ? theirs == checksums->end() : theirs != checksums->end() && *mine == *theirs;
    if (!same) return refuse(fmt::format("made from the same weights with another {}", name));
  }
  return Status();
}

// The partial folder is beside it, and renames do not cross file systems.
Status CheckSameFileSystem(const PackPaths& paths, const struct stat& out) {
  struct stat parent = {};
  if (::stat(paths.parent.c_str(), &parent) != 0) return ErrnoStatus(errno, "opening", paths.parent);
  if (out.st_dev == parent.st_dev) return Status();
  return InvalidArgumentError(fmt::format("{} is the top of a file system; give a folder inside it", paths.out));
}

}  // namespace

Result<PackPaths> FindPackPaths(const std::string& out_folder) {
  const std::string out(WithoutEndSlashes(out_folder));
  if (out.empty()) return InvalidArgumentError("the output folder of a pack must have a name");
  PackPaths paths;
  paths.out = RealPath(out);
  if (paths.out.empty()) {
    const std::filesystem::path path(out);
    const std::string name = path.filename().string();
    if (name == "." || name == "..") return NotFoundError(fmt::format("no folder {}", out));
    const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
    RETURN_IF_ERROR(CreateFolders(parent));
    // A link to nowhere would make the final rename fail, after hours.
    if (std::error_code error; std::filesystem::is_symlink(path, error)) {
      return InvalidArgumentError(fmt::format("{} is a symbolic link to something that does not exist", out));
    }
    paths.out = JoinPath(RealPath(parent), name);
  }
  if (paths.out == "/") return InvalidArgumentError("the output folder of a pack cannot be /");
  paths.parent = std::filesystem::path(paths.out).parent_path().string();
  paths.partial = paths.out + ".partial";
  paths.journal = JoinPath(paths.partial, kJournalFile);
  paths.pack = JoinPath(paths.partial, kUnfinishedFolder);
  return paths;
}

std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real == nullptr ? std::string() : std::string(real.get());
}

Result<bool> IsAlreadyPacked(const PackPaths& paths, const PackPlan& plan) {
  struct stat info = {};
  if (::stat(paths.out.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, "opening", paths.out);
  }
  if (!S_ISDIR(info.st_mode)) return InvalidArgumentError(fmt::format("{} exists and is no folder", paths.out));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(paths.out));
  if (names.empty()) {
    RETURN_IF_ERROR(CheckSameFileSystem(paths, info));
    return false;
  }
  RETURN_IF_ERROR(CheckExistingPack(paths.out, plan));
  return true;
}

void RemoveLeftover(const PackPaths& paths) {
  const Result<std::vector<std::string>> names = ListFolder(paths.partial);
  if (!names.ok()) return;
  // A journal without a pack, or nothing any more.
  if (*names == std::vector<std::string>{std::string(kJournalFile)}) {
    const Result<Journal> journal = Journal::Open(paths.journal);
    if (!journal.ok()) return;
    ::unlink(paths.journal.c_str());
  }
  ::rmdir(paths.partial.c_str());
}

bool IsPackFileName(std::string_view name) {
  const std::span<const std::string_view> side = PackedSideFiles();
  return name == kPackCoreFile || name == kManifestFile || name == kChecksumsFile ||
         (name.starts_with("model-experts-") && name.ends_with(".safetensors")) ||
         std::find(side.begin(), side.end(), name) != side.end();
}

int64_t FolderBytes(const std::string& folder) {
  int64_t bytes = 0;
  const Result<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    struct stat info = {};
    if (::stat(JoinPath(folder, name).c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

}  // namespace nunspark
