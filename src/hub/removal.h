// Taking a model off this machine: first what would go, then doing it.
#ifndef NUNSPARK_HUB_REMOVAL_H_
#define NUNSPARK_HUB_REMOVAL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/cache.h"
#include "hub/catalogue.h"
#include "nunspark/status.h"

namespace nunspark {

// Holds the locks under which the model's files are downloaded, so that nobody adds to it meanwhile. Move-only.
struct Removal {
  std::string folder;                // everything below is in it
  std::vector<std::string> files;    // links and files, in the order in which they go
  std::vector<std::string> folders;  // that are empty then, inner ones first
  int64_t freed_bytes = 0;
  int64_t kept_bytes = 0;  // contents that other snapshots of the repository share
  std::vector<File> locks;
};

// `name`: as ScanCatalogue has it - a pack, "org/name" (all its snapshots), "org/name:file.gguf" - or
// "org/name@revision" for one snapshot. Repositories with nothing but parts of downloads count, too. Links are removed,
// never followed. Errors: kNotFound for a name that is not there; kInvalidArgument for a model that is being downloaded
// or packed, for a folder that is a link, for a pack that holds links, and for a checkpoint beside the packs;
// kPermission, kIo.
Result<Removal> PlanRemoval(const CatalogueOptions& options, std::string_view name);

// Errors: kPermission, kIo; what was removed before stays so.
Status Remove(const Removal& removal);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_REMOVAL_H_
