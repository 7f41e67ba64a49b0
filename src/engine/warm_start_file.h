// Where the file of a model's warm start lies, and reading and writing it. It is a hint: nothing fails for the want of
// it.
#ifndef NUNSPARK_ENGINE_WARM_START_FILE_H_
#define NUNSPARK_ENGINE_WARM_START_FILE_H_

#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/hparams.h"
#include "weights/warm_start.h"

namespace nunspark {

// In the order in which they are tried: PACK.warm-start beside a pack's folder; then, and for all other models,
// nunspark/warm-start/SOURCE_HASH in XDG_CACHE_HOME or ~/.cache.
std::vector<std::string> WarmStartPaths(const Checkpoint& model);

struct WarmStartFile {
  std::vector<ExpertUses> uses;  // most used first
  std::string note;              // why a file that is there is not used, or none can be kept
};
// The first file that is of this model.
WarmStartFile LoadWarmStart(const Checkpoint& model, const HParams& hparams);

// Whether there is a place that can be written to. Errors: that of the last.
Status CheckWarmStart(const Checkpoint& model);

// To the first such place. Errors: likewise.
Status SaveWarmStart(const Checkpoint& model, std::span<const ExpertUses> uses);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_WARM_START_FILE_H_
