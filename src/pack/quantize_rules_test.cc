#include "pack/quantize_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nunspark {
namespace {

using testing::HasSubstr;

TEST(QuantizeRules, ReadsEncodings) {
  const auto settings = [](const char* text) {
    const Result<QuantizeRule> rule = ParseQuantizeRule(text);
    EXPECT_TRUE(rule.ok()) << rule.status().message();
    EXPECT_EQ(rule->pattern, "");
    return rule->settings;
  };
  EXPECT_EQ(settings("affine:4:64"), (QuantSettings{.group_size = 64, .bits = 4, .mode = "affine"}));
  EXPECT_EQ(settings("affine:3"), (QuantSettings{.group_size = 64, .bits = 3, .mode = "affine"}));
  EXPECT_EQ(settings("affine:8:128"), (QuantSettings{.group_size = 128, .bits = 8, .mode = "affine"}));
  EXPECT_EQ(settings("mxfp4"), (QuantSettings{.group_size = 32, .bits = 4, .mode = "mxfp4"}));
  EXPECT_EQ(settings("mxfp8"), (QuantSettings{.group_size = 32, .bits = 8, .mode = "mxfp8"}));
  EXPECT_EQ(settings("none"), std::nullopt);
}

TEST(QuantizeRules, APatternStandsBeforeTheLastEqualsSign) {
  const Result<QuantizeRule> rule = ParseQuantizeRule("*.mlp.down_proj=affine:6:32");
  ASSERT_TRUE(rule.ok()) << rule.status().message();
  EXPECT_EQ(rule->pattern, "*.mlp.down_proj");
  EXPECT_EQ(rule->settings, (QuantSettings{.group_size = 32, .bits = 6, .mode = "affine"}));
  EXPECT_EQ(ParseQuantizeRule("odd=name=none")->pattern, "odd=name");
}

TEST(QuantizeRules, TextIsReadBackEqual) {
  for (const char* const text : {"affine:4:64", "lm_head=affine:8:32", "*=mxfp4", "mxfp8", "a.?.b=none"}) {
    EXPECT_EQ(QuantizeRuleText(ParseQuantizeRule(text).value()), text);
  }
}

TEST(QuantizeRules, WrongRulesSayWhatMayStandThere) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"", "encoding: expected affine:BITS:GROUP, mxfp4, mxfp8 or none, found \"\""},
      {"int4", "expected affine:BITS:GROUP"},
      {"nvfp4", "expected affine:BITS:GROUP"},
      {"affine", "expected affine:BITS or affine:BITS:GROUP"},
      {"affine:4:64:1", "expected affine:BITS or affine:BITS:GROUP"},
      {"affine:7:64", "bits: expected 2, 3, 4, 5, 6 or 8"},
      {"affine:1:64", "bits: expected"},
      {"affine:16", "bits: expected"},
      {"affine:4x:64", "bits: expected"},
      {"affine::64", "bits: expected"},
      {"affine:-4:64", "bits: expected"},
      {"affine:99999999999:64", "bits: expected"},
      {"affine:4:48", "group size: expected 32, 64 or 128"},
      {"affine:4:", "group size: expected"},
      {"mxfp4:32", "expected mxfp4 without numbers"},
      {"none:1", "expected affine"},
      {"=affine:4:64", "pattern: expected a module's path"},
      {"lm_head=", "encoding: expected"},
  };
  for (const auto& [text, message] : kWrong) {
    const Result<QuantizeRule> rule = ParseQuantizeRule(text);
    EXPECT_EQ(rule.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(rule.status().message(), HasSubstr(message)) << text;
  }
}

TEST(QuantizeRules, FormatsFollowSourceAndSettings) {
  const WeightFormat affine = EncodedFormat(*ParseQuantizeRule("affine:6:32")->settings, FloatType::kF16);
  EXPECT_EQ(FormatName(affine), "affine6-g32/f16");
  EXPECT_EQ(EncodedFormat(*ParseQuantizeRule("mxfp4")->settings, FloatType::kBF16), FixedFormat(Encoding::kMxFp4));
  EXPECT_EQ(EncodedFormat(*ParseQuantizeRule("mxfp8")->settings, FloatType::kF32), FixedFormat(Encoding::kMxFp8));
}

}  // namespace
}  // namespace nunspark
