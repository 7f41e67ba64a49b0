// Measuring a machine without a model: `bench --synthetic`.

#include <filesystem>
#include <set>

#include "cli/synthetic_model.h"
#include "integration/program.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

// The program itself compares the output with the text that is built into the model.
TEST(Synthetic, WritesTheTextThatIsBuiltInAndLeavesNothingBehind) {
  const TempFolder temp;
  const Ran ran = Nunspark("bench --synthetic tiny --max-tokens 40 --ngram --budget 1.3MB --out " + temp.path() +
                               "/raw.json --plot " + temp.path() + "/plot.svg",
                           "TMPDIR=" + temp.path() + " ");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("### nunspark bench -- synthetic tiny\n"), std::string::npos) << ran.out;
  const Json json = ParseJson(ReadWholeFile(temp.path() + "/raw.json").value(), "raw").value();
  EXPECT_EQ(json.Find("runs")->as_array().size(), 6u);
  const std::string plot = ReadWholeFile(temp.path() + "/plot.svg").value();
  EXPECT_TRUE(plot.starts_with("<svg ") && plot.ends_with("</svg>\n")) << plot;
  for (const char* part : {"cycle-100, greedy", "cycle-1300, ngram-spec", " tok/s"}) {
    EXPECT_NE(plot.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temp.path()), {}), 2);
}

TEST(Synthetic, IsKeptAndUsedAgainWhereThatIsAsked) {
  const TempFolder temp;
  const std::string command = "bench --synthetic tiny --quick --keep " + temp.path();
  EXPECT_EQ(Nunspark(command).code, 0);
  const std::string pack = temp.path() + "/tiny";
  EXPECT_EQ(Nunspark("verify " + pack).code, 0);
  const auto made = std::filesystem::last_write_time(pack + "/manifest.json");
  EXPECT_EQ(Nunspark(command).code, 0);
  EXPECT_EQ(std::filesystem::last_write_time(pack + "/manifest.json"), made);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temp.path()), {}), 1);
}

// As real routers do: consecutive tokens share experts, far more than by chance, and far from all.
TEST(Synthetic, ConsecutiveTokensShareExperts) {
  const TempFolder temp;
  ASSERT_EQ(Nunspark("bench --synthetic tiny --quick --keep " + temp.path()).code, 0);
  const cli::SyntheticShape shape = cli::FindSyntheticShape("tiny").value();
  std::string ids;
  for (const int32_t id : cli::SyntheticTokens(shape, 40, 20)) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  const std::string trace = temp.path() + "/trace";
  const Ran ran =
      Nunspark("generate " + temp.path() + "/tiny --prompt-ids " + ids + " --max-tokens 60 --expert-trace " + trace);
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::istringstream lines(ReadWholeFile(trace).value());
  std::vector<std::set<int64_t>> last(static_cast<size_t>(shape.layers));
  double shared = 0, all = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json call = ParseJson(line, "trace").value();
    if (call.Find("batch_tokens")->as_int() != 1) continue;
    std::set<int64_t> fired;
    for (const Json& expert : call.Find("fired")->as_array()) fired.insert(expert.as_int());
    std::set<int64_t>& before = last[static_cast<size_t>(call.Find("layer")->as_int())];
    if (!before.empty()) {
      for (const int64_t expert : fired) shared += static_cast<double>(before.count(expert));
      all += static_cast<double>(fired.size());
    }
    before = std::move(fired);
  }
  ASSERT_GT(all, 0);
  const double by_chance = static_cast<double>(shape.experts_per_token) / shape.experts;
  EXPECT_GT(shared / all, 1.3 * by_chance);
  EXPECT_LT(shared / all, 0.8);
}

TEST(Synthetic, RefusesWhatItCannotMake) {
  EXPECT_EQ(Nunspark("bench --synthetic huge").code, 2);
  ExpectError(Nunspark("bench " + Demo() + " --synthetic tiny"), {"--synthetic takes the place of a model"});
  ExpectError(Nunspark("bench " + Demo() + " --keep here"), {"--keep goes with --synthetic"});
  const TempFolder temp;
  for (const std::string flag : {"--plot ", "--out "}) {
    // Before anything is measured: the report would have nowhere to go.
    const Ran ran = Nunspark("bench --synthetic tiny " + flag + temp.path() + "/none/report");
    ExpectError(ran, {"/none/report"});
    EXPECT_EQ(ran.err.find("prompt tokens"), std::string::npos) << ran.err;
  }
  ExpectError(Nunspark("bench --synthetic tiny", "TMPDIR=" + temp.path() + "/none "), {"none"});
}

}  // namespace
}  // namespace nunspark::test
