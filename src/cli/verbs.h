// The verbs of the command line. Each file verb_<name>.cc adds one subcommand; its callback does the work.
//
// Exit codes (contract section 1): 0 success; 1 a handled error, with one "Error: ..." line on stderr; 2 wrong
// arguments, with usage on stderr; 130 stopped by Ctrl-C.
#ifndef NUNSPARK_CLI_VERBS_H_
#define NUNSPARK_CLI_VERBS_H_

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nunspark/status.h"

namespace nunspark::cli {

inline constexpr int kExitInterrupted = 130;

// What a verb does once its flags are parsed. Returns the exit code, or the error to print.
using Action = std::function<Result<int>()>;

// Adds the subcommand to `app` and sets *action when it is the one called.
using AddVerb = void (*)(CLI::App& app, Action* action);

void AddPack(CLI::App& app, Action* action);
void AddGenerate(CLI::App& app, Action* action);
void AddServe(CLI::App& app, Action* action);
void AddWeb(CLI::App& app, Action* action);
// Hidden: writes docs/serving-api.md.
void AddServingApi(CLI::App& app, Action* action);
void AddInspect(CLI::App& app, Action* action);
void AddVerify(CLI::App& app, Action* action);
void AddLogits(CLI::App& app, Action* action);
void AddTokenize(CLI::App& app, Action* action);
void AddChatFormat(CLI::App& app, Action* action);
void AddPerplexity(CLI::App& app, Action* action);
void AddPlan(CLI::App& app, Action* action);
void AddBench(CLI::App& app, Action* action);
// Hidden: writes docs/flags.md.
void AddFlags(CLI::App& app, Action* action);
void AddDoctor(CLI::App& app, Action* action);
void AddSelfcheck(CLI::App& app, Action* action);
void AddCompletions(CLI::App& app, Action* action);
void AddMan(CLI::App& app, Action* action);
void AddPull(CLI::App& app, Action* action);
void AddModels(CLI::App& app, Action* action);

// Runs the program: parses, acts, prints errors. Returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_VERBS_H_
