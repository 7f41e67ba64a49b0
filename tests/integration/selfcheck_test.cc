// `nunspark selfcheck` on the demo model, and that it can fail.

#include "integration/program.h"

namespace nunspark::test {
namespace {

std::vector<std::string> NamesOf(const Json& json, const std::string& result) {
  std::vector<std::string> names;
  const Json checks = MemberOf(json, {"checks"});
  for (const Json& check : checks.as_array()) {
    if (check.Find("result")->as_string() == result) names.push_back(check.Find("name")->as_string());
  }
  return names;
}

TEST(Selfcheck, FindsTheDemoModelTheSameInEveryWay) {
  const Json json = JsonOf(Nunspark("selfcheck " + Demo() + " --json --max-tokens 6 --draft-model " +
                                    ModelPath("demo-draft-4bit") + " --num-draft-tokens 4"));
  EXPECT_TRUE(MemberOf(json, {"ok"}).as_bool());
  EXPECT_TRUE(NamesOf(json, "failed").empty());
  EXPECT_TRUE(NamesOf(json, "not made").empty());
  std::string names;
  for (const std::string& name : NamesOf(json, "ok")) names += name + "\n";
  // Streaming, threads, a batch, two drafters; scalar always is one of the instruction sets.
  for (const char* part : {"streamed, budget", "thread", "batched, 4 at once", "drafts by prompt lookup",
                           "drafts of --draft-model", "scalar"}) {
    EXPECT_NE(names.find(part), std::string::npos) << part << " in " << names;
  }
  const Json checks = MemberOf(json, {"checks"});
  for (const Json& check : checks.as_array()) EXPECT_GT(check.Find("tokens")->as_int(), 0);
}

TEST(Selfcheck, WritesATableForPeople) {
  const Ran ran = Nunspark("selfcheck " + Demo() + " --max-tokens 2");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* part : {"compared with", "resident, budget", "  ok\n", "bit for bit"}) {
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << " in " << ran.out;
  }
  EXPECT_EQ(ran.out.find("FAILED"), std::string::npos) << ran.out;
}

// Drafts of the fast mode are meant to change the text, so this is a difference that it has to find.
TEST(Selfcheck, FailsWithTheFirstTokenThatDiffers) {
  const std::string arguments =
      "selfcheck " + Demo() + " --max-tokens 12 --draft-model " + ModelPath("demo-draft-4bit") + " --accept-top-k 1000";
  const Ran ran = Nunspark(arguments);
  ExpectError(ran, {"1 of ", "--accept-top-k"});
  EXPECT_NE(ran.out.find("FAILED: prompt "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find(" instead of "), std::string::npos) << ran.out;
  const Ran as_json = Nunspark(arguments + " --json");
  EXPECT_EQ(as_json.code, 1);
  const Json json = ParseJson(as_json.out, "output").value();
  EXPECT_FALSE(MemberOf(json, {"ok"}).as_bool());
  EXPECT_EQ(NamesOf(json, "failed"), std::vector<std::string>{"drafts of --draft-model"});
}

TEST(Selfcheck, RefusesWhatIsNoModel) {
  ExpectError(Nunspark("selfcheck /does/not/exist"), {"/does/not/exist"});
  ExpectError(Nunspark("selfcheck " + Demo() + " --max-tokens 0"), {"--max-tokens"});
}

}  // namespace
}  // namespace nunspark::test
