// The verbs and their flags as rows: what docs/flags.md, the man pages and the shells' completions are made from.
#ifndef NUNSPARK_CLI_FLAG_TABLE_H_
#define NUNSPARK_CLI_FLAG_TABLE_H_

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace nunspark::cli {

struct FlagRow {
  std::vector<std::string> names;    // with their dashes, the long one last; of an argument its name alone
  std::string value;                 // what stands for its value; empty for switches and arguments
  std::vector<std::string> choices;  // the only values, where the parser knows them
  std::string fallback;
  std::string text;
  std::string group;  // "Options" for those that have no heading of their own
  bool argument = false;
  bool required = false;
};

struct VerbRow {
  std::string name;  // "bench cache-sim"
  const CLI::App* app;
};

// Every verb that is shown, each followed by those inside it.
std::vector<VerbRow> VerbRows(const CLI::App& app);

// The verbs directly inside `app`, by their last word.
std::vector<VerbRow> InnerVerbs(const CLI::App& app);

// What is shown of a verb's flags and arguments; --help only where it is asked for.
enum class HelpRow { kLeaveOut, kInclude };
std::vector<FlagRow> FlagRows(const CLI::App& verb, HelpRow help);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_FLAG_TABLE_H_
