#include "cli/flags_document.h"

#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flag_table.h"
#include "cli/verbs.h"

namespace nunspark::cli {
namespace {

// A cell of a table: what ends a cell is spelled out.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c == '\n' ? ' ' : c);
  return cell;
}

void AddVerbText(const VerbRow& verb, std::string& text) {
  text +=
      fmt::format("\n## {}\n\n{}.\n\n| | default | |\n|---|---|---|\n", verb.name, Cell(verb.app->get_description()));
  std::string group;
  for (const FlagRow& row : FlagRows(*verb.app, HelpRow::kLeaveOut)) {
    if (row.group != group) {
      group = row.group;
      if (!row.argument && group != "Options") text += fmt::format("| *{}* | | |\n", group);
    }
    text += fmt::format("| `{}{}` | {} | {}{} |\n", Cell(fmt::format("{}", fmt::join(row.names, ","))),
                        Cell(row.value.empty() ? "" : " " + row.value),
                        row.fallback.empty() ? "" : fmt::format("`{}`", Cell(row.fallback)), Cell(row.text),
                        row.required ? " (required)" : "");
  }
}

}  // namespace

std::string FlagsDocument(const CLI::App& app) {
  std::string text =
      "# Flags\n\nWritten by `nunspark flags`, from the tables that parse them; a test compares. Sizes are decimal "
      "(`1.5GB`), "
      "a bare number is bytes.\nFlags *of the original* are taken under its names; where this design makes one "
      "pointless it changes nothing, and says so here.\n";
  for (const VerbRow& verb : VerbRows(app)) AddVerbText(verb, text);
  return text;
}

void AddFlags(CLI::App& app, Action* action) {
  CLI::App* const verb = app.add_subcommand("flags", "write docs/flags.md to standard output")->group("");
  verb->callback([&app, action] {
    *action = [&app]() -> Result<int> {
      std::fputs(FlagsDocument(app).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace nunspark::cli
