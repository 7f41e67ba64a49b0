#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

constexpr AddVerb kVerbs[] = {AddPack,   AddGenerate, AddInspect,    AddVerify,
                              AddLogits, AddTokenize, AddChatFormat, AddPerplexity};

constexpr const char* kAbout =
    "Runs language models larger than memory by streaming their weights from the drive.\n"
    "Start with: nunspark generate MODEL_FOLDER --prompt \"Hello\" (add --budget 4GB to set the memory for weights).";

// Our code reports failures as a Status; what still throws is the memory that the system refuses.
Result<int> Guarded(const Action& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("the system refuses more memory; use a smaller --budget or a shorter prompt");
  } catch (const std::exception& error) {
    return IoError(fmt::format("unexpected failure: {}", error.what()));
  }
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app(kAbout, "nunspark");
  app.set_version_flag("--version", VersionText());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Action action;
  for (const AddVerb add : kVerbs) add(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" of code 0 and go to stdout.
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "Error: %s\n", error.what());
    const auto chosen = app.get_subcommands();
    std::fputs((chosen.empty() ? &app : chosen.front())->help().c_str(), stderr);
    return 2;
  }
  InstallInterruptHandler();
  const Result<int> code = Guarded(action);
  if (code.ok()) return *code;
  if (code.status().code() == StatusCode::kCancelled && Interrupted()) {
    std::fputs("stopped\n", stderr);
    return kExitInterrupted;
  }
  std::fprintf(stderr, "Error: %s\n", code.status().message().c_str());
  return 1;
}

}  // namespace nunspark::cli
