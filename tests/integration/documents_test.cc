// The documents say what the program says.

#include <filesystem>
#include <sstream>

#include "base/ascii.h"
#include "integration/program.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

// All sources, with string literals that go on in the next line joined.
std::string Sources() {
  std::string all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(NUNSPARK_SOURCE_DIR) + "/src")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cc") || path.ends_with("_test.cc")) continue;
    const std::string text = ReadWholeFile(path).value();
    std::string joined;
    // By lines: a regular expression over a whole file is deeper than the stack.
    bool open = false;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::string_view rest = line;
      if (open && AsciiTrim(rest).starts_with('"')) {
        joined.pop_back();
        joined.pop_back();
        rest = AsciiTrim(rest).substr(1);
      }
      open = rest.ends_with('"');
      joined += std::string(rest) + "\n";
    }
    all += joined;
  }
  return all;
}

TEST(Documents, TroubleshootingQuotesTheProgramsOwnWords) {
  const std::string sources = Sources();
  std::istringstream lines(ReadWholeFile(std::string(NUNSPARK_SOURCE_DIR) + "/docs/troubleshooting.md").value());
  int quotes = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("### `")) continue;
    ++quotes;
    const std::string quote = line.substr(5, line.rfind('`') - 5);
    for (size_t begin = 0; begin < quote.size();) {
      const size_t end = std::min(quote.find("...", begin), quote.size());
      std::string part(AsciiTrim(std::string_view(quote).substr(begin, end - begin)));
      while (!part.empty() && std::string_view("; =").find(part.front()) != std::string_view::npos) part.erase(0, 1);
      EXPECT_NE(sources.find(part), std::string::npos) << "'" << part << "' of " << line;
      begin = end + 3;
    }
  }
  EXPECT_GT(quotes, 10);
}

}  // namespace
}  // namespace nunspark::test
