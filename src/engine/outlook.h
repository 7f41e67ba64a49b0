// How a model would run on this machine, in one line: for lists of models. `nunspark plan` says more.
#ifndef NUNSPARK_ENGINE_OUTLOOK_H_
#define NUNSPARK_ENGINE_OUTLOOK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nunspark/engine.h"
#include "nunspark/options.h"
#include "weights/speed_estimate.h"

namespace nunspark {

// kFits: all weights stay in memory. kStreams: some are read while it runs. kNoRoom: less memory than its floor.
// kDrafts: it does not run alone, it drafts for another model. kCannot: not with these options.
enum class Fit : uint8_t { kFits, kStreams, kNoRoom, kDrafts, kCannot };

// "fits", "streams", "no_room", "drafts", "cannot".
std::string_view FitName(Fit fit);

struct Outlook {
  Fit fit = Fit::kCannot;
  double tokens_per_s = 0;   // expected, decoding one sequence; 0 when a rate is unknown
  std::string bound;         // "drive" or "memory", of the larger share; "" when unknown
  int64_t total_bytes = 0;   // of the whole process under the plan
  int64_t budget_bytes = 0;  // of it for weights
  std::string reason;        // why not, for kNoRoom and kCannot; of kDrafts how to use it
};

// Rates of 0 are unknown. `options.context` is cut to what the model was made for. Nothing is reserved; no weights are
// read.
Outlook MakeOutlook(const ModelFiles& files, EngineOptions options, const MachineRates& rates);

// "about 3.2 tok/s"; "up to 60 tok/s" of what fits: memory's rate bounds it, and small models do not reach that. ""
// when it is unknown.
std::string RateText(const Outlook& outlook);

// That of a folder with an EAGLE head, which is no model that can be opened; nullopt for any other.
std::optional<Outlook> EagleOutlook(const std::string& folder);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_OUTLOOK_H_
