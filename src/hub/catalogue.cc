#include "hub/catalogue.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "base/parts.h"
#include "hub/cache.h"
#include "hub/file_choice.h"
#include "io/file.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kManifest = "manifest.json";

// Folders that are not there have nothing in them.
Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  if (folder.empty()) return std::vector<std::string>();
  Result<std::vector<std::string>> names = ListFolder(folder);
  if (names.status().code() == StatusCode::kNotFound) return std::vector<std::string>();
  return names;
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return std::string(WithoutEndSlashes(error ? path : absolute.lexically_normal().string()));
}

int64_t TotalBytes(const std::vector<NamedSize>& files) {
  int64_t bytes = 0;
  for (const NamedSize& file : files) bytes += file.bytes;
  return bytes;
}

Status AddPacks(const std::string& root, std::vector<CatalogueEntry>& entries) {
  if (root.empty()) return Status();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  std::vector<NamedSize> beside;
  for (const std::string& name : names) {
    const std::string path = JoinPath(Absolute(root), name);
    if (FileExists(JoinPath(path, kManifest))) {
      // What is left of an interrupted pack has no manifest until it is renamed.
      entries.push_back({.kind = ModelKind::kPacked,
                         .name = name,
                         .path = path,
                         .size_bytes = TotalBytes(ListSnapshotFiles(path)),
                         .snapshot = ""});
    } else if (FileExists(JoinPath(path, "config.json"))) {
      const std::vector<NamedSize> files = ListSnapshotFiles(path);
      if (!IsWholeCheckpoint(files)) continue;
      entries.push_back(
          {.kind = ModelKind::kUnpacked, .name = name, .path = path, .size_bytes = TotalBytes(files), .snapshot = ""});
    } else if (FileExists(path)) {
      std::error_code error;
      const uintmax_t bytes = fs::file_size(path, error);
      if (!error) beside.push_back({.name = name, .bytes = static_cast<int64_t>(bytes)});
    }
  }
  for (const GgufFiles& model : GroupGguf(beside)) {
    if (!model.complete) continue;
    entries.push_back({.kind = ModelKind::kGguf,
                       .name = model.name,
                       .path = JoinPath(Absolute(root), model.name),
                       .size_bytes = model.bytes,
                       .snapshot = ""});
  }
  return Status();
}

void AddRepository(const std::string& cache, const std::string& id, std::vector<CatalogueEntry>& entries) {
  bool has_checkpoint = false;
  std::vector<std::string> gguf_names;
  for (const Snapshot& snapshot : ListSnapshots(cache, id)) {
    const std::vector<NamedSize> files = ListSnapshotFiles(snapshot.path);
    if (!has_checkpoint && IsWholeCheckpoint(files)) {
      has_checkpoint = true;
      entries.push_back({.kind = ModelKind::kUnpacked,
                         .name = id,
                         .path = snapshot.path,
                         .size_bytes = TotalBytes(files),
                         .snapshot = snapshot.commit});
    }
    for (const GgufFiles& model : GroupGguf(files)) {
      if (!model.complete || std::count(gguf_names.begin(), gguf_names.end(), model.name) > 0) continue;
      gguf_names.push_back(model.name);
      entries.push_back({.kind = ModelKind::kGguf,
                         .name = id + ":" + model.name,
                         .path = JoinPath(snapshot.path, model.name),
                         .size_bytes = model.bytes,
                         .snapshot = snapshot.commit});
    }
  }
}

}  // namespace

std::string_view ModelKindName(ModelKind kind) {
  switch (kind) {
    case ModelKind::kPacked: return "packed";
    case ModelKind::kUnpacked: return "unpacked";
    case ModelKind::kGguf: return "gguf";
  }
  return "";
}

Result<std::vector<CatalogueEntry>> ScanCatalogue(const CatalogueOptions& options) {
  std::vector<CatalogueEntry> entries;
  RETURN_IF_ERROR(AddPacks(options.packed_root, entries));
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, NamesIn(options.cache));
  for (const std::string& folder : folders) {
    if (const auto id = RepoIdOfFolder(folder)) AddRepository(Absolute(options.cache), *id, entries);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const CatalogueEntry& a, const CatalogueEntry& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  });
  return entries;
}

}  // namespace nunspark
