#include "engine/outlook.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/drafter_files.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"

namespace nunspark {

std::string_view FitName(Fit fit) {
  switch (fit) {
    case Fit::kFits: return "fits";
    case Fit::kStreams: return "streams";
    case Fit::kNoRoom: return "no_room";
    case Fit::kDrafts: return "drafts";
    case Fit::kCannot: return "cannot";
  }
  return "";
}

Outlook MakeOutlook(const ModelFiles& files, EngineOptions options, const MachineRates& rates) {
  const auto& model = static_cast<const ModelFilesImpl&>(files);
  if (IsDrafter(*model.layout().spec)) {
    return {.fit = Fit::kDrafts, .bound = {}, .reason = "it drafts for another model (generate --draft-model)"};
  }
  if (files.max_context() > 0) options.context = std::min(options.context, files.max_context());
  const Result<EnginePlan> plan = MakeEnginePlan(model, options);
  Outlook outlook;
  if (!plan.ok()) {
    outlook.fit = plan.status().code() == StatusCode::kUnsupported ? Fit::kCannot : Fit::kNoRoom;
    outlook.reason = plan.status().message();
    return outlook;
  }
  const MemoryPlan& memory = plan->memory;
  const SpeedEstimate speed = EstimateSpeed(model.layout(), plan->index, memory, rates);
  outlook.fit = memory.budget_bytes >= memory.full_bytes ? Fit::kFits : Fit::kStreams;
  outlook.tokens_per_s = speed.tokens_per_s;
  if (speed.tokens_per_s > 0) outlook.bound = speed.bound;
  outlook.total_bytes = memory.total_bytes;
  outlook.budget_bytes = memory.budget_bytes;
  return outlook;
}

std::string RateText(const Outlook& outlook) {
  const double rate = outlook.tokens_per_s;
  if (rate <= 0) return "";
  return fmt::format("{} {:.{}f} tok/s", outlook.fit == Fit::kFits ? "up to" : "about", rate, rate < 10 ? 1 : 0);
}

std::optional<Outlook> EagleOutlook(const std::string& folder) {
  if (!IsEagleFolder(folder)) return std::nullopt;
  return Outlook{.fit = Fit::kDrafts, .bound = {}, .reason = "it drafts for another model (generate --eagle-drafter)"};
}

}  // namespace nunspark
