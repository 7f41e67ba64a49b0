#include "cli/selfcheck.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nunspark::cli {
namespace {

const std::vector<CheckOutput> kOutputs = {{{5, 6, 7}, {-0.5f, -1, -2}}, {{8, 9}, {-3, -4}}};

TEST(FirstDifference, IsNoneBetweenEqualOutputs) { EXPECT_FALSE(FirstDifference(kOutputs, kOutputs)); }

TEST(FirstDifference, NamesPromptAndTokenAndWhatEachHad) {
  std::vector<CheckOutput> other = kOutputs;
  other[1].ids[1] = 10;
  const std::optional<Difference> difference = FirstDifference(kOutputs, other);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->prompt, 1u);
  EXPECT_EQ(difference->token, 1u);
  EXPECT_EQ(difference->expected->id, 9);
  EXPECT_EQ(difference->found->id, 10);
}

TEST(FirstDifference, SeesTheLastBitOfALogarithm) {
  std::vector<CheckOutput> other = kOutputs;
  other[0].logprobs[2] = std::nextafter(-2.0f, 0.0f);
  const std::optional<Difference> difference = FirstDifference(kOutputs, other);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->token, 2u);
  EXPECT_EQ(difference->expected->id, difference->found->id);
}

TEST(FirstDifference, SeesOutputsThatEndEarlierOrLater) {
  std::vector<CheckOutput> other = kOutputs;
  other[0].ids.pop_back();
  other[0].logprobs.pop_back();
  EXPECT_FALSE(FirstDifference(kOutputs, other)->found);
  EXPECT_FALSE(FirstDifference(other, kOutputs)->expected);
  EXPECT_EQ(FirstDifference(other, kOutputs)->token, 2u);
}

}  // namespace
}  // namespace nunspark::cli
