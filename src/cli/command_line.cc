#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flag_table.h"
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

// Letters to change, add or take away to make one word of the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = corner + (a[i] == b[j] ? 0 : 1);
      corner = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

// " (did you mean ...?)" with the one of `known` that `wrong` is probably meant to be; "" when none is like it.
std::string Suggestion(std::string_view wrong, const std::vector<std::string>& known) {
  size_t least = wrong.size() / 3 + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : known) {
    const bool begins = name.starts_with(wrong) || (name.size() > 4 && wrong.starts_with(name));
    const size_t distance = begins ? 1 : EditDistance(name, wrong);
    if (distance >= least) continue;
    least = distance;
    nearest = &name;
  }
  return nearest == nullptr ? "" : fmt::format(" (did you mean {}?)", *nearest);
}

// What is wrong when the first word is no verb.
std::optional<std::string> UnknownVerb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  std::vector<std::string> known;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == argv[1]) return std::nullopt;
    if (!verb->get_group().empty()) known.push_back(verb->get_name());
  }
  return fmt::format("'{}' is not a verb{}; verbs: {}", argv[1], Suggestion(argv[1], known), fmt::join(known, ", "));
}

// The verb that was given, or its own one (bench cache-sim).
const CLI::App& ChosenVerb(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : ChosenVerb(*chosen.front());
}

// The first word that no verb takes. A flag that is not known comes before words that are too many: its value may be
// one of them, and the parser takes back the verb at the first, so that what follows counts as not known to the
// program.
std::optional<std::string> UnknownWord(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> left = app.remaining(true);
  std::vector<std::string> flags;
  for (const FlagRow& row : FlagRows(ChosenVerb(app), HelpRow::kInclude)) {
    if (!row.argument) flags.insert(flags.end(), row.names.begin(), row.names.end());
  }
  const auto is_left = [&](std::string_view word) { return std::find(left.begin(), left.end(), word) != left.end(); };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i], flag = word.substr(0, word.find('='));
    if (!flag.starts_with("-") || !is_left(word) || std::find(flags.begin(), flags.end(), flag) != flags.end())
      continue;
    return fmt::format("there is no flag {}{}", flag, Suggestion(flag, flags));
  }
  const auto* const extra = std::find_if(argv + 1, argv + argc, is_left);
  if (extra == argv + argc) return std::nullopt;
  return fmt::format("'{}' is one argument too many", *extra);
}

// One line that says what is wrong, one with the usage: all flags would push both out of sight.
int PrintUsageError(const CLI::App& app, int argc, const char* const* argv, const CLI::ParseError& error) {
  std::optional<std::string> problem = UnknownVerb(app, argc, argv);
  if (!problem) problem = UnknownWord(app, argc, argv);
  std::string name;
  for (const CLI::App* part = &ChosenVerb(app); part != nullptr; part = part->get_parent()) {
    name = part->get_name() + (name.empty() ? "" : " ") + name;
  }
  PrintError(fmt::format("{}; see '{} --help'", problem.value_or(error.what()), name));
  const std::string help = app.help();  // that of the verb that was given
  const size_t usage = help.find("Usage:");
  std::fputs((argc < 2 ? help : help.substr(usage, help.find('\n', usage) + 1 - usage)).c_str(), stderr);
  return 2;
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
    return PrintUsageError(app, argc, argv, error);
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
