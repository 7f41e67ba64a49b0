// What stands for a model on the command line: a path, or a repository of a hub. The one place that tells them apart.
#ifndef NUNSPARK_CLI_MODEL_ARGUMENT_H_
#define NUNSPARK_CLI_MODEL_ARGUMENT_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cli/verbs.h"
#include "hub/pull.h"
#include "nunspark/status.h"

namespace nunspark::cli {

inline constexpr const char* kModelArgument = "pack, checkpoint folder, .gguf file or repository id";

// kTerminal: before a download a person is asked, with its size; without a terminal nothing is downloaded.
enum class Consent : uint8_t { kTerminal, kGiven };

// `argument` itself when there is such a file or folder, or when it is not written like org/name[@revision][:file].
// Else what opens that model of the hub's cache, after downloading it if it is not there and that is consented to.
// Errors: kNotFound naming `nunspark pull`; kCancelled when the answer is no; those of PlanPull and Pull.
Result<std::string> ResolveModel(const std::string& argument, Consent consent = Consent::kTerminal);

// In place; "" stays.
Status ResolveModelIn(std::string& argument, Consent consent = Consent::kTerminal);

// What a verb with `flags->model` does: the model is resolved, then the verb runs.
template <typename Flags>
Action OnModel(std::shared_ptr<Flags> flags, Result<int> (*run)(const Flags&)) {
  return [flags = std::move(flags), run]() -> Result<int> {
    RETURN_IF_ERROR(ResolveModelIn(flags->model));
    return run(*flags);
  };
}

// "org/name" of a model of the hub's cache by its path, else "".
std::string RepoIdOfPath(std::string_view path);

// Pulls, with a notice of what and a progress bar on standard error.
Result<PullReport> PullWithProgress(PullOptions options, const PullPlan& plan);

// PlanPull, with a notice of who is asked: an answer may take long.
Result<PullPlan> PlanPullWithNotice(const PullOptions& options);

// Ctrl-C ends downloads.
PullOptions PullOptionsFor(const HubEnvironment& hub, const RepoRef& ref);

// "y" or "yes" on the terminal, in any case. `question` ends without a mark.
bool AskYesNo(const std::string& question);
bool OnTerminal();

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_MODEL_ARGUMENT_H_
