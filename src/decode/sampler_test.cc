#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace nunspark {
namespace {

constexpr int kDraws = 40000;

// Share of draws that gave each token, over positions.
std::map<int32_t, double> Shares(const SamplingOptions& options, const std::vector<float>& logits) {
  SamplerScratch scratch;
  Sampler sampler(options, static_cast<int64_t>(logits.size()), scratch);
  std::map<int32_t, double> shares;
  for (uint32_t position = 0; position < kDraws; ++position) {
    shares[sampler.Sample(logits.data(), {.seed = options.seed, .choice = 0, .position = position})] += 1.0 / kDraws;
  }
  return shares;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplerScratch scratch;
  Sampler sampler({}, 5, scratch);
  const float logits[] = {1, 3, 3, 2, 3};
  EXPECT_EQ(sampler.Sample(logits, {}), 1);
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, -30};
  for (const double temperature : {0.7, 1.0, 2.0}) {
    const auto shares = Shares({.temperature = temperature, .seed = 11}, logits);
    double total = 0, distance = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (int32_t t = 0; t < 6; ++t) {
      const auto found = shares.find(t);
      distance += std::abs((found == shares.end() ? 0 : found->second) -
                           std::exp(logits[static_cast<size_t>(t)] / temperature) / total) /
                  2;
    }
    EXPECT_LT(distance, 0.02) << temperature;
  }
}

TEST(Sampler, FiltersKeepExactlyTheirSet) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
  const auto tokens = [&](const SamplingOptions& options) {
    std::vector<int32_t> kept;
    for (const auto& [token, share] : Shares(options, logits)) kept.push_back(token);
    return kept;
  };
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 2}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.65}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.75}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.01}), (std::vector<int32_t>{1}));
  EXPECT_EQ(tokens({.temperature = 1, .min_p = 0.6}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 3, .top_p = 0.8, .min_p = 0.6}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1}), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, AnyPositiveTemperatureIsFine) {
  const std::vector<float> logits = {20, -3, 31, 30.5f};
  for (const double temperature : {5e-324, 1e-38, 1e-30, 1e-6}) {
    EXPECT_EQ(Shares({.temperature = temperature, .seed = 3}, logits),
              (std::map<int32_t, double>{{2, Shares({.temperature = temperature}, logits)[2]}}));
  }
  EXPECT_EQ(Shares({.temperature = 1e30}, logits).size(), 4u);
}

TEST(Sampler, SameSeedSameDrawsOtherSeedOthers) {
  const std::vector<float> logits(1000, 0.0f);
  SamplerScratch scratch;
  Sampler sampler({.temperature = 1}, 1000, scratch);
  int equal = 0;
  for (uint32_t position = 0; position < 100; ++position) {
    const int32_t a = sampler.Sample(logits.data(), {.seed = 1, .choice = 0, .position = position});
    EXPECT_EQ(a, sampler.Sample(logits.data(), {.seed = 1, .choice = 0, .position = position}));
    equal += a == sampler.Sample(logits.data(), {.seed = 2, .choice = 0, .position = position}) ? 1 : 0;
  }
  EXPECT_LT(equal, 5);
}

TEST(CheckSampling, NamesTheOptionThatIsOutOfRange) {
  EXPECT_TRUE(CheckSampling({.temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0.1}).ok());
  EXPECT_NE(CheckSampling({.top_k = -1}).message().find("top-k"), std::string::npos);
  EXPECT_NE(CheckSampling({.top_p = 0}).message().find("top-p"), std::string::npos);
  EXPECT_NE(CheckSampling({.top_p = 1.1}).message().find("top-p"), std::string::npos);
  EXPECT_NE(CheckSampling({.min_p = -0.1}).message().find("min-p"), std::string::npos);
  EXPECT_FALSE(CheckSampling({.temperature = std::nan("")}).ok());
}

}  // namespace
}  // namespace nunspark
