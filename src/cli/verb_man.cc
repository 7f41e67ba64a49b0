// `nunspark man`: manual pages from the flags' own tables.
#include <cstdio>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flag_table.h"
#include "cli/verbs.h"
#include "io/file.h"

namespace nunspark::cli {
namespace {

struct Flags {
  std::vector<std::string> verb;
  std::string out;
};

// Text for roff: what it would take for its own is escaped. Minus signs stay minus signs, so that flags can be copied.
std::string Roff(std::string_view text) {
  std::string escaped;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((at == 0 || text[at - 1] == '\n') && (c == '.' || c == '\'')) escaped += "\\&";
    escaped += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return escaped;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

// "bench cache-sim" -> "nunspark-bench-cache-sim".
std::string PageName(std::string_view verb) {
  std::string name = verb.empty() ? "nunspark" : fmt::format("nunspark-{}", verb);
  for (char& c : name) c = c == ' ' ? '-' : c;
  return name;
}

std::string Heading(const std::string& page, const std::string& text) {
  // Without a date: the same sources give the same page.
  return fmt::format(".TH {} 1 \"\" \"nunspark {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", Roff(Upper(page)),
                     NUNSPARK_VERSION, Roff(page), Roff(text));
}

void AddRow(const FlagRow& row, std::string& text) {
  text += ".TP\n";
  if (row.argument) {
    text += fmt::format("\\fI{}\\fR\n", Roff(row.names[0]));
  } else {
    std::vector<std::string> names;
    for (const std::string& name : row.names) names.push_back("\\fB" + Roff(name) + "\\fR");
    text += fmt::format("{}", fmt::join(names, ", "));
    if (!row.value.empty()) text += " \\fI" + Roff(row.value.substr(0, row.value.find(':'))) + "\\fR";
    text += "\n";
  }
  text += Roff(row.text);
  if (!row.choices.empty()) text += "; one of " + Roff(fmt::format("{}", fmt::join(row.choices, ", ")));
  if (!row.fallback.empty()) text += " (default: " + Roff(row.fallback) + ")";
  text += row.required ? " (required).\n" : ".\n";
}

std::string VerbPage(const VerbRow& verb) {
  std::string text = Heading(PageName(verb.name), verb.app->get_description());
  text += fmt::format(".SH SYNOPSIS\n.B nunspark {}\n[\\fIoptions\\fR]", Roff(verb.name));
  std::string arguments, options, group;
  for (const FlagRow& row : FlagRows(*verb.app, HelpRow::kInclude)) {
    if (row.argument) {
      const std::string name = "\\fI" + Roff(row.names[0]) + "\\fR";
      text += row.required ? " " + name : " [" + name + "]";
      AddRow(row, arguments);
      continue;
    }
    if (row.group != group) {
      group = row.group;
      if (group != "Options") options += fmt::format(".SS {}\n", Roff(group));
    }
    AddRow(row, options);
  }
  text += "\n";
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  text += ".SH OPTIONS\nSizes are decimal (1.5GB); a bare number is bytes.\n" + options;
  constexpr std::string_view kExample = "Example: ";
  if (const std::string footer = verb.app->get_footer(); footer.starts_with(kExample)) {
    text += fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", Roff(footer.substr(kExample.size())));
  }
  return text + ".SH SEE ALSO\n.BR nunspark (1)\n";
}

std::string MainPage(const CLI::App& app) {
  std::string text = Heading(PageName(""), "run language models larger than memory");
  text += ".SH SYNOPSIS\n.B nunspark\n\\fIverb\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n" + Roff(app.get_description()) +
          "\n.SH VERBS\n";
  std::string pages;
  for (const VerbRow& verb : VerbRows(app)) {
    text += fmt::format(".TP\n.B {}\n{}.\n", Roff(verb.name), Roff(verb.app->get_description()));
    pages += fmt::format("{}.BR {} (1)", pages.empty() ? "" : ",\n", Roff(PageName(verb.name)));
  }
  text +=
      ".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n.TP\n.B 1\nA failure; standard error has one line that begins with "
      "\\(lqError:\\(rq.\n.TP\n.B 2\nWrong arguments.\n.TP\n.B 130\nStopped by Ctrl\\-C.\n"
      ".SH ENVIRONMENT\n.TP\n.B NUNSPARK_ISA\nThe instruction set to use instead of the best one. Results are the "
      "same.\n.TP\n.B TMPDIR\nWhere temporary files go.\n.SH SEE ALSO\n" +
      pages + "\n";
  return text;
}

Result<int> Run(const CLI::App& app, const Flags& flags) {
  const std::vector<VerbRow> verbs = VerbRows(app);
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(JoinPath(flags.out, PageName("") + ".1"), MainPage(app)));
    for (const VerbRow& verb : verbs) {
      RETURN_IF_ERROR(WriteFileAtomically(JoinPath(flags.out, PageName(verb.name) + ".1"), VerbPage(verb)));
    }
    return 0;
  }
  const std::string name = fmt::format("{}", fmt::join(flags.verb, " "));
  if (name.empty()) {
    std::fputs(MainPage(app).c_str(), stdout);
    return 0;
  }
  for (const VerbRow& verb : verbs) {
    if (verb.name != name) continue;
    std::fputs(VerbPage(verb).c_str(), stdout);
    return 0;
  }
  return InvalidArgumentError(fmt::format("'{}' is not a verb; 'nunspark --help' lists them", name));
}

}  // namespace

void AddMan(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("man", "write a manual page to standard output");
  verb->add_option("verb", flags->verb, "of this verb; else of the program");
  verb->add_option("--out", flags->out, "write all pages into this folder instead, which must be there");
  verb->footer("Example: nunspark man generate | man -l -");
  verb->callback([&app, flags, action] { *action = [&app, flags] { return Run(app, *flags); }; });
}

}  // namespace nunspark::cli
