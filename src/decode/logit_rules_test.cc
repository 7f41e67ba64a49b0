#include "decode/logit_rules.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace nunspark {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Logits after the tokens of an output.
std::vector<float> After(const GenerateOptions& options, const std::vector<int32_t>& prompt,
                         const std::vector<int32_t>& output, std::vector<float> logits) {
  const std::vector<int32_t> stops = {3};
  LogitRules rules(options, stops, prompt, 100, std::ssize(logits));
  for (const int32_t token : output) rules.Advance(token);
  if (rules.active()) rules.Apply(logits.data());
  return logits;
}

TEST(LogitRules, PenaltiesFollowTheirFormulas) {
  const std::vector<float> logits = {2, -2, 4, 1, -1};
  EXPECT_EQ(After({}, {0, 1}, {2, 2}, logits), logits);
  EXPECT_EQ(After({.sampling = {.repetition_penalty = 2}}, {0, 1}, {2, 2}, logits),
            (std::vector<float>{1, -4, 2, 1, -1}));
  EXPECT_EQ(After({.sampling = {.presence_penalty = 0.5}}, {0, 1}, {2, 2, 4}, logits),
            (std::vector<float>{2, -2, 3.5, 1, -1.5}));
  EXPECT_EQ(After({.sampling = {.frequency_penalty = 0.5}}, {0, 1}, {2, 2, 4}, logits),
            (std::vector<float>{2, -2, 3, 1, -1.5}));
  EXPECT_EQ(After({.sampling = {.repetition_penalty = 2, .presence_penalty = 1, .logit_bias = {{2, 10}, {0, kNever}}}},
                  {0, 1}, {2}, logits),
            (std::vector<float>{kNever, -4, 11, 1, -1}));
}

TEST(LogitRules, NothingEndsTheOutputBeforeMinTokens) {
  const GenerateOptions options{.min_tokens = 2, .stop_ids = {1}};
  EXPECT_EQ(After(options, {0}, {}, {1, 1, 1, 1}), (std::vector<float>{1, kNever, 1, kNever}));
  EXPECT_EQ(After(options, {0}, {0}, {1, 1, 1, 1}), (std::vector<float>{1, kNever, 1, kNever}));
  EXPECT_EQ(After(options, {0}, {0, 0}, {1, 1, 1, 1}), (std::vector<float>{1, 1, 1, 1}));
}

// Allows the token after the one that came.
class Successor : public TokenConstraint {
 public:
  void Allowed(std::span<uint32_t> bits) override {
    for (uint32_t& word : bits) word = 0;
    bits[static_cast<size_t>(next_ / 32)] = 1u << (next_ % 32);
  }
  void Advance(int32_t token) override { next_ = token + 1; }

 private:
  int32_t next_ = 33;
};

TEST(LogitRules, AConstraintLeavesOnlyWhatItAllows) {
  const std::vector<float> logits(70, 1.0f);
  const auto allowed = [&](const std::vector<int32_t>& output) {
    std::vector<int32_t> tokens;
    const std::vector<float> left = After({.constraint = std::make_shared<Successor>()}, {0}, output, logits);
    for (int32_t token = 0; token < 70; ++token) {
      if (left[static_cast<size_t>(token)] != kNever) tokens.push_back(token);
    }
    return tokens;
  };
  EXPECT_EQ(allowed({}), std::vector<int32_t>{33});
  EXPECT_EQ(allowed({33, 40}), std::vector<int32_t>{41});
}

TEST(LogitRules, OptionsOutOfRangeAreNamed) {
  const auto refuse = [](const GenerateOptions& options, const std::string& part) {
    const Status status = CheckLogitRules(options, 100);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  EXPECT_TRUE(
      CheckLogitRules({.sampling = {.logit_bias = {{99, kNever}}}, .min_tokens = 32, .stop_ids = {0}}, 100).ok());
  refuse({.sampling = {.repetition_penalty = 0}}, "repetition-penalty");
  refuse({.sampling = {.presence_penalty = 1e9}}, "presence-penalty");
  refuse({.sampling = {.frequency_penalty = std::numeric_limits<double>::quiet_NaN()}}, "frequency-penalty");
  refuse({.sampling = {.logit_bias = {{100, 1}}}}, "token 100");
  refuse({.sampling = {.logit_bias = {{1, -kNever}}}}, "logit-bias of token 1");
  refuse({.min_tokens = 33}, "min-tokens");
  refuse({.min_tokens = 1, .constraint = std::make_shared<Successor>()}, "held to a form");
  refuse({.stop_ids = {-1}}, "stop token -1");
}

}  // namespace
}  // namespace nunspark
