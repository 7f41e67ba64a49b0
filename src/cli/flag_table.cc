#include "cli/flag_table.h"

#include <string_view>

#include "base/parts.h"

namespace nunspark::cli {
namespace {

void AddVerbs(const CLI::App& app, const std::string& prefix, std::vector<VerbRow>& rows) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_group().empty()) continue;
    rows.push_back({prefix + verb->get_name(), verb});
    AddVerbs(*verb, prefix + verb->get_name() + " ", rows);
  }
}

// The parser writes a closed set of values into the name of the type: "TEXT:{lanes,rows}".
std::vector<std::string> ChoicesOf(std::string_view type) {
  std::vector<std::string> choices;
  const size_t open = type.find(":{");
  if (open == type.npos || !type.ends_with('}')) return choices;
  for (const std::string_view choice : SplitAt(type.substr(open + 2, type.size() - open - 3), ',')) {
    choices.emplace_back(choice);
  }
  return choices;
}

}  // namespace

std::vector<VerbRow> VerbRows(const CLI::App& app) {
  std::vector<VerbRow> rows;
  AddVerbs(app, "", rows);
  return rows;
}

std::vector<VerbRow> InnerVerbs(const CLI::App& app) {
  std::vector<VerbRow> rows;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (!verb->get_group().empty()) rows.push_back({verb->get_name(), verb});
  }
  return rows;
}

std::vector<FlagRow> FlagRows(const CLI::App& verb, HelpRow help) {
  std::vector<FlagRow> rows;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty() || (option == verb.get_help_ptr() && help == HelpRow::kLeaveOut)) continue;
    FlagRow row{.names = {},
                .value = {},
                .choices = ChoicesOf(option->get_type_name()),
                .fallback = option->get_default_str(),
                .text = option->get_description(),
                .group = option->get_group(),
                .argument = !option->nonpositional(),
                .required = option->get_required()};
    if (row.argument) {
      row.names = {option->get_name(true)};
    } else {
      for (const std::string& name : option->get_snames()) row.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) row.names.push_back("--" + name);
      if (option->get_items_expected_max() > 0) row.value = option->get_type_name();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace nunspark::cli
