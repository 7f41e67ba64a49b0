// A model of a hub into a pack, without a second copy of it on the drive.
//
// The files of weights arrive one after another in "<out>.download", whole and verified. What each completes is packed,
// and its weights are given back to the drive as soon as no piece needs them any more: what takes room at any time is
// the pack, and the files that have pieces in common with files still to come (mostly one). Interrupted, the same call
// goes on: with the part of a download, and with the packer's journal.
#ifndef NUNSPARK_CLI_PULL_PACK_H_
#define NUNSPARK_CLI_PULL_PACK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "hub/pull.h"
#include "nunspark/status.h"
#include "pack/packer.h"

namespace nunspark::cli {

// REQUIRES: a plan of a checkpoint, not of a GGUF file. `progress`: bytes of the repository that have arrived, and all.
// Errors: kInvalidArgument when another process works on `out`; those of Download and
// Pack; kDataLoss when a file is not the one whose header was read first.
Result<PackReport> PullIntoPack(const PullOptions& options, const PullPlan& plan, const std::string& out,
                                const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_PULL_PACK_H_
