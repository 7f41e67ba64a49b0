#include "decode/ngram_drafter.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/read_file.h"

namespace nunspark {
namespace {

Json ReadGolden(const std::string& name) {
  const std::string path = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/drafts/ngram/" + name;
  return ParseJson(ReadWholeFile(path).value(), path).value();
}

std::vector<int32_t> Ids(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

int32_t Number(const Json& object, const char* key) { return static_cast<int32_t>(object.Find(key)->as_int()); }

// Checklist item 55.
TEST(FollowingTokens, AreThoseAfterTheLastOccurrenceOfTheLongestSuffix) {
  const Json golden = ReadGolden("propose.json");
  std::vector<std::vector<int32_t>> histories;
  for (const Json& history : golden.Find("histories")->as_array()) histories.push_back(Ids(history));
  ASSERT_GT(golden.Find("cases")->as_array().size(), 500u);
  for (const Json& one : golden.Find("cases")->as_array()) {
    const std::span<const int32_t> found = FollowingTokens(histories[static_cast<size_t>(Number(one, "history"))],
                                                           Number(one, "max_ngram"), Number(one, "num_draft_tokens"));
    EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()), Ids(*one.Find("proposal")))
        << "history " << Number(one, "history");
  }
}

// Checklist item 56.
TEST(NgramLength, FollowsTheOriginalStepByStep) {
  const Json golden = ReadGolden("adaptive.json");
  ASSERT_GE(golden.as_array().size(), 10u);
  for (const Json& trace : golden.as_array()) {
    const std::string name = trace.Find("name")->as_string();
    const Json& params = *trace.Find("params");
    const NgramOptions options{.longest_suffix = Number(params, "max_ngram"),
                               .most_tokens = Number(params, "num_draft_tokens"),
                               .adaptive = params.Find("adaptive")->as_bool(),
                               .fewest_tokens = Number(params, "min_draft_tokens"),
                               .reprobe_every = Number(params, "reprobe_every")};
    NgramLength length(options);
    int at = 0;
    for (const Json& op : trace.Find("ops")->as_array()) {
      const std::string what = name + ", step " + std::to_string(at++);
      if (op.Find("op")->as_string() == "propose") {
        const std::vector<int32_t> history = Ids(*op.Find("history"));
        const int32_t most = length.Next();
        const std::span<const int32_t> found =
            most > 0 ? FollowingTokens(history, options.longest_suffix, most) : std::span<const int32_t>();
        EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()), Ids(*op.Find("proposal"))) << what;
      } else {
        length.Observe(Number(op, "proposed"), Number(op, "accepted"));
      }
      EXPECT_EQ(length.length(), Number(op, "k")) << what;
      EXPECT_EQ(length.rounds_off(), Number(op, "disabled_rounds")) << what;
      EXPECT_EQ(length.probes(), Number(op, "probes")) << what;
      EXPECT_EQ(length.shortest(), Number(op, "k_min_seen")) << what;
      EXPECT_EQ(length.longest(), Number(op, "k_max_seen")) << what;
    }
  }
}

}  // namespace
}  // namespace nunspark
