#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "nunspark/engine.h"

namespace nunspark::cli {
namespace {

constexpr AddVerb kVerbs[] = {AddPack,   AddGenerate,  AddServe,      AddWeb,         AddInspect,
                              AddVerify, AddLogits,    AddTokenize,   AddChatFormat,  AddPerplexity,
                              AddPlan,   AddSelfcheck, AddDoctor,     AddPull,        AddModels,
                              AddBench,  AddFlags,     AddServingApi, AddCompletions, AddMan};

constexpr const char* kAbout =
    "Runs language models larger than memory by streaming their weights from the drive.\n"
    "Start with: nunspark generate MODEL_FOLDER --prompt \"Hello\" (add --budget 4GB to set the memory for weights).";

constexpr const char* kOutputLost = "standard output cannot be written to any more";

// Prints the one error line; returns the exit code. Messages quote what users and files say: control characters are
// spelled out, so that they can neither end the line nor reach the terminal, and endless names are cut.
int PrintError(std::string_view message) {
  constexpr size_t kLongest = 2000;
  std::string line = "Error: ";
  for (const char c : message.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  if (message.size() > kLongest) line += "...";
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return 1;
}

// What is wrong when the first word is no verb.
std::optional<std::string> UnknownVerb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  std::string known;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == argv[1]) return std::nullopt;
    if (!verb->get_group().empty()) known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  return fmt::format("'{}' is not a verb; verbs: {}", argv[1], known);
}

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
  InstallInterruptHandler();
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
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return std::cout.flush().good() ? 0 : PrintError(kOutputLost);
    }
    PrintError(UnknownVerb(app, argc, argv).value_or(error.what()));
    const auto chosen = app.get_subcommands();
    std::fputs((chosen.empty() ? &app : chosen.front())->help().c_str(), stderr);
    return 2;
  }
  const Result<int> code = Guarded(action);
  if (code.ok()) {
    // What was printed must have arrived.
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? *code : PrintError(kOutputLost);
  }
  if (code.status().code() == StatusCode::kCancelled && Interrupted()) {
    std::fputs("stopped\n", stderr);
    return kExitInterrupted;
  }
  return PrintError(code.status().message());
}

}  // namespace nunspark::cli
