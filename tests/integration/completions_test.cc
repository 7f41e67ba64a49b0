// What shells complete, asked of the shells themselves, and the manual pages.

#include <filesystem>
#include <fstream>
#include <sstream>

#include "integration/program.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

bool Installed(const std::string& program) { return RunShell("command -v " + program, nullptr) == 0; }

// What bash offers for the last of `words`, as one line.
std::string Bash(const std::string& words) {
  std::string out, err;
  const std::string script = "eval \"$(" + kBinary +
                             " completions bash)\"\n"
                             "COMP_WORDS=(nunspark " +
                             words +
                             ") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                             "_nunspark nunspark; echo \"${COMPREPLY[*]}\"\ncomplete -p nunspark\n";
  const TempFolder temp;
  std::ofstream(temp.path() + "/script") << script;
  EXPECT_EQ(RunShell("bash " + temp.path() + "/script", &out, &err), 0) << err;
  EXPECT_EQ(err, "");
  EXPECT_NE(out.find("\ncomplete -o default -F _nunspark nunspark\n"), std::string::npos) << out;
  return out.substr(0, out.find('\n'));
}

TEST(Completions, BashCompletesVerbsFlagsAndValues) {
  EXPECT_EQ(Bash("gen"), "generate");
  EXPECT_EQ(Bash("generate --prompt-"), "--prompt-file --prompt-ids --prompt-ids-file");
  EXPECT_EQ(Bash("generate some/model --max-t"), "--max-tokens");
  EXPECT_EQ(Bash("bench ca"), "cache-sim");
  EXPECT_EQ(Bash("bench cache-sim --tr"), "--trace");
  EXPECT_EQ(Bash("bench --tr"), "");
  EXPECT_EQ(Bash("pack --layout ''"), "lanes rows");
  EXPECT_EQ(Bash("pack --layout = r"), "rows");
  EXPECT_EQ(Bash("completions ''"), "bash zsh fish");
}

// An empty answer makes bash complete files.
TEST(Completions, BashCompletesFilesWhereAModelOrAnyValueComes) {
  EXPECT_EQ(Bash("generate ''"), "");
  EXPECT_EQ(Bash("generate --prompt-file ''"), "");
  EXPECT_EQ(Bash("generate --prompt-file --m"), "");
}

TEST(Completions, BashKnowsEveryVerbAndFlagOfTheDocument) {
  std::istringstream document(ReadWholeFile(std::string(NUNSPARK_SOURCE_DIR) + "/docs/flags.md").value());
  const std::string verbs = " " + Bash("''") + " ";
  std::string verb, offered;
  int flags = 0;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("## ")) {
      verb = line.substr(3);
      if (verb.find(' ') == std::string::npos) {
        EXPECT_NE(verbs.find(" " + verb + " "), std::string::npos) << verb;
      }
      offered = " " + Bash(verb + " -") + " ";
    } else if (line.starts_with("| `--")) {
      const std::string flag = line.substr(3, line.find_first_of(" `", 4) - 3);
      EXPECT_NE(offered.find(" " + flag + " "), std::string::npos) << verb << " " << flag;
      ++flags;
    }
  }
  EXPECT_GT(flags, 100);
}

TEST(Completions, FishCompletesVerbsFlagsAndValues) {
  if (!Installed("fish")) GTEST_SKIP() << "fish is not installed";
  const TempFolder temp;
  const auto fish = [&](const std::string& line) {
    std::ofstream(temp.path() + "/script") << kBinary << " completions fish | source\ncomplete -C '" << line << "'\n";
    std::string out, err;
    EXPECT_EQ(RunShell("cd " + temp.path() + "; HOME=. fish --no-config script", &out, &err), 0) << err;
    std::string words;
    std::istringstream lines(out);
    for (std::string word; std::getline(lines, word);) {
      if (word.find('\t') != std::string::npos) words += word.substr(0, word.find('\t')) + " ";
    }
    return words;
  };
  EXPECT_EQ(fish("nunspark gen"), "generate ");
  EXPECT_EQ(fish("nunspark generate --prompt-"), "--prompt-file --prompt-ids --prompt-ids-file ");
  EXPECT_EQ(fish("nunspark bench cache-sim --tr"), "--trace ");
  EXPECT_EQ(fish("nunspark bench --tr"), "");
  EXPECT_EQ(fish("nunspark completions "), "bash fish zsh ");
}

// Types into a terminal of its own, and reads what zsh lists.
TEST(Completions, ZshCompletesVerbsFlagsAndValues) {
  if (!Installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  const TempFolder temp;
  ASSERT_EQ(RunShell(kBinary + " completions zsh > " + temp.path() + "/_nunspark", nullptr), 0);
  // The prompt is spelled with an escape so that the echo of this line is not taken for it.
  std::ofstream(temp.path() + "/script")
      << "zmodload zsh/zpty\nzpty z zsh -f -i\n"
         "zpty -w z \"unsetopt prompt_cr zle_bracketed_paste; RPROMPT= TERM=dumb COLUMNS=300 fpath=($PWD \\$fpath); "
         "autoload -Uz compinit; compinit -u -D; bindkey '^I' list-choices; setopt no_beep; "
         "zstyle ':completion:*' verbose no; PROMPT=$'r\\145ady:'\"\n"
         "zpty -r -m z before '*ready:*'\nzpty -n -w z \"$1\"$'\\t\\C-uecho d\\'\\'one\\n'\n"
         "zpty -r -m z out '*done*'\nprint -r -- $out\n";
  const auto zsh = [&](const std::string& line) {
    std::string out, err;
    EXPECT_EQ(RunShell("cd " + temp.path() + "; HOME=. timeout 60 zsh -f script '" + line + "'", &out, &err), 0) << err;
    return out;
  };
  const auto lists = [&](const std::string& line, const std::string& word) {
    return zsh(line).find("\n" + word) != std::string::npos;
  };
  EXPECT_TRUE(lists("nunspark gen", "generate"));
  EXPECT_TRUE(lists("nunspark generate --max", "--max-tokens"));
  EXPECT_TRUE(lists("nunspark bench cache-sim --tr", "--trace"));
  EXPECT_TRUE(lists("nunspark pack --layout=", "lanes"));
  EXPECT_TRUE(lists("nunspark completions ", "bash"));
  EXPECT_FALSE(lists("nunspark bench --tr", "--trace"));
}

TEST(ManualPages, AreOnePerVerbAndWithoutMistakes) {
  const TempFolder temp;
  ASSERT_EQ(Nunspark("man --out " + temp.path()).code, 0);
  std::istringstream document(ReadWholeFile(std::string(NUNSPARK_SOURCE_DIR) + "/docs/flags.md").value());
  int verbs = 0;
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with("## ")) continue;
    ++verbs;
    const std::string verb = line.substr(3);
    const Ran page = Nunspark("man " + verb);
    EXPECT_EQ(page.code, 0) << page.err;
    std::string name = "nunspark-" + verb;
    std::replace(name.begin(), name.end(), ' ', '-');
    EXPECT_EQ(page.out, ReadWholeFile(temp.path() + "/" + name + ".1").value());
  }
  EXPECT_EQ(verbs + 1, std::distance(std::filesystem::directory_iterator(temp.path()), {}));
  EXPECT_EQ(Nunspark("man").out, ReadWholeFile(temp.path() + "/nunspark.1").value());
  ExpectError(Nunspark("man fly"), {"'fly' is not a verb"});
  ExpectError(Nunspark("man --out " + temp.path() + "/none"), {"none"});
  if (!Installed("mandoc")) GTEST_SKIP() << "mandoc is not installed";
  // Pages have no date, so that the same sources give the same bytes.
  std::string out;
  RunShell("mandoc -T lint -W warning " + temp.path() + "/*.1 | grep -v 'missing date'", &out);
  EXPECT_EQ(out, "");
  EXPECT_EQ(RunShell("mandoc -T utf8 " + temp.path() + "/nunspark-generate.1 | col -b", &out), 0);
  EXPECT_NE(out.find("--prompt TEXT"), std::string::npos) << out;
}

}  // namespace
}  // namespace nunspark::test
