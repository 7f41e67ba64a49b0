// Where a pack goes: the folder that was asked for, the unfinished one beside it, and what may be there already.
#ifndef NUNSPARK_PACK_PACK_FOLDER_H_
#define NUNSPARK_PACK_PACK_FOLDER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "nunspark/status.h"
#include "pack/pack_plan.h"

namespace nunspark {

// All absolute, without symbolic links in the parent, so that the final rename stays in one folder.
struct PackPaths {
  std::string out;
  std::string parent;
  std::string partial;  // "<out>.partial"
  std::string journal;  // in it
  std::string pack;     // in it: the pack so far
};

// Creates the folders above `out_folder`. Errors: kInvalidArgument for names that cannot be, kPermission, kIo.
Result<PackPaths> FindPackPaths(const std::string& out_folder);

// The path without symbolic links; empty when there is nothing.
std::string RealPath(const std::string& path);

// True when `paths.out` is the pack of `plan`, complete; false when it is empty or not there. Anything else is an
// error, kInvalidArgument: it is not ours to remove. Compares the documents and sizes, not the weights.
Result<bool> IsAlreadyPacked(const PackPaths& paths, const PackPlan& plan);

// Removes what a kill has left beside a pack between its rename and the end of the run.
void RemoveLeftover(const PackPaths& paths);

// A name that the packer gives to files, in any pack.
bool IsPackFileName(std::string_view name);

// Sum over the folder's files.
int64_t FolderBytes(const std::string& folder);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PACK_FOLDER_H_
