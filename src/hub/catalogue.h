// The models on this machine: packs, checkpoints in the hub's cache, GGUF files. Names and sizes only; nothing is
// opened but folders, so a scan takes milliseconds.
#ifndef NUNSPARK_HUB_CATALOGUE_H_
#define NUNSPARK_HUB_CATALOGUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

// kPacked: a folder with manifest.json; kUnpacked: a checkpoint, of the cache or in a folder beside the packs; kGguf: a
// GGUF file, with its other shards.
enum class ModelKind : uint8_t { kPacked, kUnpacked, kGguf };

// "packed", "unpacked", "gguf".
std::string_view ModelKindName(ModelKind kind);

struct CatalogueEntry {
  ModelKind kind = ModelKind::kPacked;
  std::string name;        // folder name; "org/name"; "org/name:file.gguf", or "file.gguf" beside the packs
  std::string path;        // absolute: the folder, or the (first) GGUF file. What opens the model
  int64_t size_bytes = 0;  // of the files, those that links lead to included
  std::string snapshot;    // commit of a model of the cache, else ""
};

struct CatalogueOptions {
  std::string packed_root;  // "": no packs. May be missing
  std::string cache;        // of the hub (HubEnvironment::cache); "": none. May be missing
};

// Packs, then checkpoints, then GGUF files, each by name. Of a repository of the cache the newest snapshot that is
// complete; one with parts of a download is left out. What cannot be read is left out, too.
// Errors: kPermission, kIo for the two folders themselves; kInvalidArgument when one is a file.
Result<std::vector<CatalogueEntry>> ScanCatalogue(const CatalogueOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_CATALOGUE_H_
