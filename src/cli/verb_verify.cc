#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "pack/verify.h"

namespace nunspark::cli {
namespace {

Result<int> Run(const std::string& folder) {
  Progress progress("verifying", ProgressUnit::kBytes);
  ASSIGN_OR_RETURN(const VerifyReport report, Verify(folder, [&](int64_t done, int64_t total) {
                     progress.Update(done, total);
                     return !Interrupted();
                   }));
  progress.Clear();
  for (const VerifyProblem& problem : report.problems) std::fprintf(stderr, "%s\n", ProblemText(problem).c_str());
  if (!report.ok()) {
    return DataLossError(fmt::format("{}: {} problem{} found; pack again from the checkpoint", folder,
                                     report.problem_count, report.problem_count == 1 ? "" : "s"));
  }
  std::puts(fmt::format("{}: every byte is as it was written ({} pieces, {})", folder, report.pieces,
                        FormatSize(report.bytes))
                .c_str());
  return 0;
}

}  // namespace

void AddVerify(CLI::App& app, Action* action) {
  auto folder = std::make_shared<std::string>();
  CLI::App* const verb = app.add_subcommand("verify", "re-read a pack and compare every byte with its checksums");
  verb->add_option("pack", *folder, "folder written by nunspark pack")->required();
  verb->callback([folder, action] { *action = [folder] { return Run(*folder); }; });
}

}  // namespace nunspark::cli
