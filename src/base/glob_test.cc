#include "base/glob.h"

#include <string>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(Glob, MatchesWholeTexts) {
  EXPECT_TRUE(GlobMatches("lm_head", "lm_head"));
  EXPECT_FALSE(GlobMatches("lm_head", "model.lm_head"));
  EXPECT_FALSE(GlobMatches("lm_head", "lm_heads"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*", "anything.at.all"));
  EXPECT_TRUE(GlobMatches("*.down_proj", "model.layers.3.mlp.down_proj"));
  EXPECT_TRUE(GlobMatches("model.layers.?.mlp.*", "model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(GlobMatches("model.layers.?.mlp.*", "model.layers.13.mlp.up_proj"));
  EXPECT_TRUE(GlobMatches("*layers.1*proj", "model.layers.1.layers.1.x_proj"));
  EXPECT_TRUE(GlobMatches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(GlobMatches("a*b*c", "a-c-b"));
  EXPECT_FALSE(GlobMatches("?", ""));
  EXPECT_TRUE(GlobMatches("**a**", "xxa"));
  EXPECT_FALSE(GlobMatches("", "a"));
}

TEST(Glob, GoesBackToTheLastStar) {
  EXPECT_TRUE(GlobMatches("*Q4*.gguf", "a/x-Q4_K_M.gguf"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("a?c*", "abcd"));
  EXPECT_TRUE(GlobMatches("*aab", "aaaab"));
  EXPECT_FALSE(GlobMatches("a?c", "ac"));
  EXPECT_FALSE(GlobMatches("abc", "abcd"));
  EXPECT_FALSE(GlobMatches("", "a"));
}

}  // namespace
}  // namespace nunspark
