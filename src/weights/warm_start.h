// Warm start: which experts the last runs of a model used most, kept in a small file so that the next engine can read
// them while nobody waits for anything. docs/FORMAT.md has the format.
#ifndef NUNSPARK_WEIGHTS_WARM_START_H_
#define NUNSPARK_WEIGHTS_WARM_START_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

struct ExpertUses {
  int32_t layer = 0;
  int32_t expert = 0;
  int64_t uses = 0;  // passes of which it was part; those of earlier runs count less

  bool operator==(const ExpertUses&) const = default;
};

// What the file says, most used first. `model`: Checkpoint::source_hash. Errors: kDataLoss, without the path, for a
// file that is damaged, of another model or of another version of the format: there is nothing to save then.
Result<std::vector<ExpertUses>> ParseWarmStart(std::string_view text, std::string_view model, int32_t layers,
                                               int32_t experts);

// The file. Entries without uses are left out.
std::string WriteWarmStart(std::string_view model, std::span<const ExpertUses> uses);

// Of earlier runs and of one that had so many passes: what was used a thousand passes ago counts half. In the order of
// the file.
std::vector<ExpertUses> AddUses(std::span<const ExpertUses> earlier, std::span<const ExpertUses> run, int64_t passes);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_WARM_START_H_
