// `nunspark completions SHELL`: what a shell needs to complete verbs, flags and values, from the flags' own tables.
#include <cstdio>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parts.h"
#include "cli/flag_table.h"
#include "cli/verbs.h"

namespace nunspark::cli {
namespace {

// A shell word in single quotes. bash and zsh end the quotes for a quote inside; fish has a backslash for it.
std::string Quote(std::string_view text, std::string_view quote = "'\\''", std::string_view backslash = "\\") {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? quote : c == '\\' ? backslash : std::string_view(&c, 1);
  return quoted + "'";
}

std::string QuoteForFish(std::string_view text) { return Quote(text, "\\'", "\\\\"); }

// A name of a function: "bench cache-sim" -> "bench_cache_sim".
std::string Identifier(std::string name) {
  for (char& c : name) c = c == ' ' || c == '-' ? '_' : c;
  return name;
}

std::string Names(const std::vector<VerbRow>& verbs) {
  std::string names;
  for (const VerbRow& verb : verbs) names += (names.empty() ? "" : " ") + verb.name;
  return names;
}

// An argument with a closed set of values; nullptr where files are what comes.
const FlagRow* ChosenArgument(const std::vector<FlagRow>& rows) {
  for (const FlagRow& row : rows) {
    if (row.argument && !row.choices.empty()) return &row;
  }
  return nullptr;
}

// Where nothing is offered, `-o default` lets bash complete names of files.
std::string BashScript(const CLI::App& app) {
  std::string cases, values, inner;
  std::vector<VerbRow> verbs = VerbRows(app);
  verbs.insert(verbs.begin(), {"", &app});
  for (const VerbRow& verb : verbs) {
    std::string flags, takes;
    const std::vector<FlagRow> rows = FlagRows(*verb.app, HelpRow::kInclude);
    for (const FlagRow& row : rows) {
      if (row.argument) continue;
      flags += fmt::format("{}{}", flags.empty() ? "" : " ", fmt::join(row.names, " "));
      if (row.value.empty()) continue;
      takes += fmt::format("{}{}", takes.empty() ? "" : "|", fmt::join(row.names, "|"));
      if (!row.choices.empty()) {
        for (const std::string& name : row.names) {
          values += fmt::format("    {}) words={} ;;\n", Quote(verb.name + " " + name),
                                Quote(fmt::format("{}", fmt::join(row.choices, " "))));
        }
      }
    }
    const FlagRow* const chosen = ChosenArgument(rows);
    const std::string words =
        chosen != nullptr ? fmt::format("{}", fmt::join(chosen->choices, " ")) : Names(InnerVerbs(*verb.app));
    cases += fmt::format("    {}) flags={} words={} takes={} ;;\n", Quote(verb.name), Quote(flags), Quote(words),
                         Quote("|" + takes + "|"));
    if (!verb.name.empty()) inner += (inner.empty() ? "" : "|") + Quote(verb.name);
  }
  return fmt::format(R"(# bash completion of nunspark. Made by `nunspark completions bash`.
_nunspark() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} verb= i flags= words= takes=
  COMPREPLY=()
  # bash takes --flag=value apart
  if [[ $word == '=' ]]; then
    word=
  elif [[ $previous == '=' ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "${{verb:+$verb }}${{COMP_WORDS[i]}}" in
      {}) verb="${{verb:+$verb }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$verb" in
{}  esac
  if [[ $previous == -* && $takes == *"|$previous|"* ]]; then
    words=
    case "$verb $previous" in
{}    *) return ;;
    esac
  elif [[ $word == -* ]]; then
    words=$flags
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _nunspark nunspark
)",
                     inner, cases, values);
}

// In a description of _arguments a bracket ends it, in its other parts a colon.
std::string ZshEscape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string ZshSpec(const FlagRow& row) {
  const std::string values = row.choices.empty() ? "_files" : fmt::format("({})", fmt::join(row.choices, " "));
  if (row.argument) return Quote(fmt::format("*:{}:{}", ZshEscape(row.text), values));
  std::string spec = fmt::format("[{}]", ZshEscape(row.text));
  // The name of the value is shown as a heading only.
  if (!row.value.empty()) spec += fmt::format(":{}:{}", ZshEscape(row.value.substr(0, row.value.find(':'))), values);
  const char* const sign = row.value.empty() ? "" : "=";
  if (row.names.size() == 1) return Quote(row.names[0] + sign + spec);
  return fmt::format("{}{{{}}}{}", Quote(fmt::format("({})", fmt::join(row.names, " "))), fmt::join(row.names, ","),
                     Quote(sign + spec));
}

std::string ZshVerbs(const std::vector<VerbRow>& verbs) {
  std::string text;
  for (const VerbRow& verb : verbs) {
    text += fmt::format("    {}\n", Quote(ZshEscape(verb.name) + ":" + verb.app->get_description()));
  }
  return text;
}

std::string ZshScript(const CLI::App& app) {
  std::string text = "#compdef nunspark\n# zsh completion of nunspark. Made by `nunspark completions zsh`.\n";
  for (const VerbRow& verb : VerbRows(app)) {
    text += fmt::format("\n_nunspark_{}() {{\n", Identifier(verb.name));
    const std::vector<VerbRow> inner = InnerVerbs(*verb.app);
    for (const VerbRow& row : inner) {
      text += fmt::format(
          "  if [[ $words[2] == {} ]] && (( CURRENT > 2 )); then\n    shift words\n    (( CURRENT-- ))\n"
          "    _nunspark_{}\n    return\n  fi\n",
          row.name, Identifier(verb.name + " " + row.name));
    }
    if (!inner.empty()) {
      text += fmt::format("  local -a verbs=(\n{}  )\n  (( CURRENT == 2 )) && _describe verb verbs\n", ZshVerbs(inner));
    }
    text += "  _arguments -s -S";
    bool argument = false;
    for (const FlagRow& row : FlagRows(*verb.app, HelpRow::kInclude)) {
      // One rest-argument is all that _arguments takes.
      if (row.argument && argument) continue;
      argument |= row.argument;
      text += " \\\n    " + ZshSpec(row);
    }
    text += "\n}\n";
  }
  text += fmt::format(
      "\n_nunspark() {{\n  local -a verbs=(\n{}  )\n  if (( CURRENT == 2 )); then\n    _describe verb "
      "verbs\n    _arguments",
      ZshVerbs(InnerVerbs(app)));
  for (const FlagRow& row : FlagRows(app, HelpRow::kInclude)) text += " " + ZshSpec(row);
  text += "\n    return\n  fi\n  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n";
  for (const VerbRow& verb : InnerVerbs(app)) {
    text += fmt::format("    {}) _nunspark_{} ;;\n", verb.name, Identifier(verb.name));
  }
  return text +
         "  esac\n}\n\nif [[ $funcstack[1] == _nunspark ]]; then _nunspark \"$@\"; else compdef _nunspark "
         "nunspark; fi\n";
}

// "bench cache-sim" is meant when both words came, and "bench" when only that did.
std::string FishCondition(const std::string& name, const CLI::App& verb) {
  std::string condition;
  for (const std::string_view word : SplitAt(name, ' ')) {
    condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ", word);
  }
  const std::string inner = Names(InnerVerbs(verb));
  return Quote(inner.empty() ? condition : condition + "; and not __fish_seen_subcommand_from " + inner);
}

void AddFish(const CLI::App& verb, const std::string& condition, std::string& text) {
  const std::string start = "complete -c nunspark -n " + condition;
  for (const VerbRow& inner : InnerVerbs(verb)) {
    text += fmt::format("{} -a {} -d {}\n", start, inner.name, QuoteForFish(inner.app->get_description()));
  }
  for (const FlagRow& row : FlagRows(verb, HelpRow::kInclude)) {
    const std::string values =
        row.choices.empty() ? "" : fmt::format(" -a {}", Quote(fmt::format("{}", fmt::join(row.choices, " "))));
    if (row.argument) {
      if (!values.empty()) text += fmt::format("{} -f{} -d {}\n", start, values, QuoteForFish(row.text));
      continue;
    }
    text += start;
    for (const std::string& name : row.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!row.value.empty()) text += values.empty() ? " -r" : " -x" + values;
    text += " -d " + QuoteForFish(row.text) + "\n";
  }
}

std::string FishScript(const CLI::App& app) {
  std::string text =
      "# fish completion of nunspark. Made by `nunspark completions fish`.\n"
      "complete -c nunspark -n __fish_use_subcommand -f\n";
  AddFish(app, "__fish_use_subcommand", text);
  for (const VerbRow& verb : VerbRows(app)) AddFish(*verb.app, FishCondition(verb.name, *verb.app), text);
  return text;
}

}  // namespace

void AddCompletions(CLI::App& app, Action* action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* const verb = app.add_subcommand("completions", "write a shell's completions to standard output");
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer("Example: nunspark completions bash > ~/.local/share/bash-completion/completions/nunspark");
  verb->callback([&app, shell, action] {
    *action = [&app, shell]() -> Result<int> {
      const auto script = *shell == "bash" ? BashScript : *shell == "zsh" ? ZshScript : FishScript;
      std::fputs(script(app).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace nunspark::cli
