#include "cli/flags_document.h"

#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "cli/verbs.h"

namespace nunspark::cli {
namespace {

// A cell of a table: what ends a cell is spelled out.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c == '\n' ? ' ' : c);
  return cell;
}

void AddOptions(const CLI::App& verb, std::string& text) {
  std::string group;
  text += "\n| | default | |\n|---|---|---|\n";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty() || option == verb.get_help_ptr()) continue;
    if (option->get_group() != group) {
      group = option->get_group();
      if (option->nonpositional() && group != "Options") text += fmt::format("| *{}* | | |\n", group);
    }
    const std::string name = option->nonpositional() ? option->get_name(false, true) : option->get_name(true);
    const std::string value =
        option->nonpositional() && option->get_items_expected_max() > 0 ? " " + option->get_type_name() : "";
    const std::string fallback =
        option->get_default_str().empty() ? "" : fmt::format("`{}`", option->get_default_str());
    text += fmt::format("| `{}{}` | {} | {}{} |\n", Cell(name), Cell(value), Cell(fallback),
                        Cell(option->get_description()), option->get_required() ? " (required)" : "");
  }
}

void AddVerbText(const CLI::App& verb, const std::string& name, std::string& text) {
  text += fmt::format("\n## {}\n\n{}.\n", name, Cell(verb.get_description()));
  AddOptions(verb, text);
  for (const CLI::App* inner : verb.get_subcommands({})) AddVerbText(*inner, name + " " + inner->get_name(), text);
}

}  // namespace

std::string FlagsDocument(const CLI::App& app) {
  std::string text =
      "# Flags\n\nWritten by `nunspark flags`, from the tables that parse them; a test compares. Sizes are decimal "
      "(`1.5GB`), "
      "a bare number is bytes.\nFlags *of the original* are taken under its names; where this design makes one "
      "pointless it changes nothing, and says so here.\n";
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (!verb->get_group().empty()) AddVerbText(*verb, verb->get_name(), text);
  }
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
