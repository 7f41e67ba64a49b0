#include "cli/model_argument.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "hub/cache.h"
#include "hub/environment.h"

namespace nunspark::cli {
namespace {

Status NotThere(const RepoRef& ref, const HubEnvironment& hub) {
  return NotFoundError(fmt::format("no file or folder {}, and no model of that name in {}; {}", ref.Text(), hub.cache,
                                   hub.offline ? "HF_HUB_OFFLINE is set, so it is not downloaded"
                                               : fmt::format("download it with 'nunspark pull {}'", ref.Text())));
}

}  // namespace

bool OnTerminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1; }

bool AskYesNo(const std::string& question) {
  std::fputs((question + " [y/N] ").c_str(), stderr);
  std::fflush(stderr);
  const InterruptsExit nothing_to_clean_up;
  std::string line;
  if (!std::getline(std::cin, line)) return false;
  const std::string answer = AsciiLower(AsciiTrim(line));
  return answer == "y" || answer == "yes";
}

PullOptions PullOptionsFor(const HubEnvironment& hub, const RepoRef& ref) {
  PullOptions options{.hub = hub, .ref = ref};
  options.control.cancelled = [] { return Interrupted(); };
  return options;
}

Result<PullPlan> PlanPullWithNotice(const PullOptions& options) {
  std::fprintf(stderr, "asking %s for the files of %s@%s\n", options.hub.endpoint.c_str(), options.ref.id.c_str(),
               options.ref.revision_or_default().c_str());
  return PlanPull(options);
}

Result<PullReport> PullWithProgress(PullOptions options, const PullPlan& plan) {
  std::fprintf(stderr, "%s@%.12s: %zu files, %s, %s of it to download into %s\n", options.ref.id.c_str(),
               plan.commit.c_str(), plan.files.size(), FormatSize(plan.total_bytes).c_str(),
               FormatSize(plan.missing_bytes).c_str(), options.hub.cache.c_str());
  Progress progress("downloading", ProgressUnit::kBytes);
  options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  Result<PullReport> report = Pull(options, plan);
  progress.Clear();
  if (!report.ok() && plan.missing_bytes > 0 && report.status().code() != StatusCode::kDataLoss) {
    std::fputs("what was downloaded is kept; the same command goes on from there\n", stderr);
  }
  return report;
}

std::string RepoIdOfPath(std::string_view path) {
  const std::filesystem::path whole(path);
  for (auto part = whole.begin(); part != whole.end(); ++part) {
    const auto next = std::next(part);
    if (next == whole.end() || *next != "snapshots") continue;
    if (const std::optional<std::string> id = RepoIdOfFolder(part->string())) return *id;
  }
  return "";
}

Result<std::string> ResolveModel(const std::string& argument, Consent consent) {
  std::error_code error;
  if (std::filesystem::exists(argument, error)) return argument;
  const std::optional<RepoRef> ref = AsRepoRef(argument);
  if (!ref) return argument;
  ASSIGN_OR_RETURN(const HubEnvironment hub, ReadHubEnvironment());
  ASSIGN_OR_RETURN(const std::optional<CachedModel> cached, FindCached(hub.cache, *ref));
  if (cached) return cached->path;
  const bool asks = consent == Consent::kTerminal;
  if (hub.offline || (asks && !OnTerminal())) return NotThere(*ref, hub);
  const PullOptions options = PullOptionsFor(hub, *ref);
  ASSIGN_OR_RETURN(const PullPlan plan, PlanPullWithNotice(options));
  if (asks && !AskYesNo(fmt::format("{} is not on this machine. Download {} from {}?", ref->Text(),
                                    FormatSize(plan.missing_bytes), hub.endpoint))) {
    return CancelledError("aborted");
  }
  ASSIGN_OR_RETURN(const PullReport report, PullWithProgress(options, plan));
  return report.path;
}

Status ResolveModelIn(std::string& argument, Consent consent) {
  if (argument.empty()) return Status();
  ASSIGN_OR_RETURN(argument, ResolveModel(argument, consent));
  return Status();
}

}  // namespace nunspark::cli
