#include "engine/outlook.h"

#include <algorithm>

#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "weights/speed_estimate.h"

namespace nunspark {

std::string_view FitName(Fit fit) {
  switch (fit) {
    case Fit::kFits: return "fits";
    case Fit::kStreams: return "streams";
    case Fit::kNoRoom: return "no_room";
    case Fit::kCannot: return "cannot";
  }
  return "";
}

Outlook MakeOutlook(const ModelFiles& files, EngineOptions options, const OutlookRates& rates) {
  const auto& model = static_cast<const ModelFilesImpl&>(files);
  if (files.max_context() > 0) options.context = std::min(options.context, files.max_context());
  const Result<EnginePlan> plan = MakeEnginePlan(model, options);
  Outlook outlook;
  if (!plan.ok()) {
    outlook.fit = plan.status().code() == StatusCode::kUnsupported ? Fit::kCannot : Fit::kNoRoom;
    outlook.reason = plan.status().message();
    return outlook;
  }
  const MemoryPlan& memory = plan->memory;
  const SpeedEstimate speed =
      EstimateSpeed(model.layout(), plan->index, memory, {.drive = rates.drive, .memory = rates.memory});
  outlook.fit = memory.budget_bytes >= memory.full_bytes ? Fit::kFits : Fit::kStreams;
  outlook.tokens_per_s = speed.tokens_per_s;
  if (speed.tokens_per_s > 0) outlook.bound = speed.bound;
  outlook.total_bytes = memory.total_bytes;
  outlook.budget_bytes = memory.budget_bytes;
  return outlook;
}

}  // namespace nunspark
