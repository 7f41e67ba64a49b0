#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/math.h"
#include "kernels/kernels.h"

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

// What the sampler promises, token by token, without any short cut.
int32_t Plainly(const SamplingOptions& options, const std::vector<float>& logits, const DrawKey& key) {
  struct Candidate {
    float value, probability;
    int32_t token;
  };
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> kept;
  std::vector<float> probabilities;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double distance = static_cast<double>(logits[i]) - static_cast<double>(best);
    probabilities.push_back(static_cast<float>(distance / options.temperature));
    kept.push_back({probabilities.back(), 0, static_cast<int32_t>(i)});
  }
  Kernels().softmax(probabilities.data(), static_cast<int64_t>(probabilities.size()));
  for (size_t i = 0; i < kept.size(); ++i) kept[i].probability = probabilities[i];
  std::stable_sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.value > b.value; });
  const bool top_k = options.top_k > 0 && options.top_k < static_cast<int32_t>(kept.size());
  if (top_k) kept.resize(static_cast<size_t>(options.top_k));
  if (options.top_p < 1) {
    double total = 0, sum = 0;
    const auto share = [&](const Candidate& c) { return top_k ? Exp(c.value) : static_cast<double>(c.probability); };
    for (const Candidate& c : kept) total += share(c);
    size_t count = 0;
    for (; count < kept.size() && (count == 0 || sum < options.top_p * (top_k ? total : 1)); ++count) {
      sum += share(kept[count]);
    }
    kept.resize(count);
  }
  double largest = -std::numeric_limits<double>::infinity();
  int32_t token = -1;
  for (const Candidate& c : kept) {
    if (options.min_p > 0 && c.value < Log(options.min_p)) continue;
    const double value = c.value - Log(-Log(KeyedUniform(key, static_cast<uint32_t>(c.token))));
    if (value < largest || (value == largest && token < c.token)) continue;
    largest = value;
    token = c.token;
  }
  return token;
}

// Sizes around a block, logits that are steep, flat, equal or far below the best, every combination of filters.
TEST(Sampler, TakesNoShortCutThatShows) {
  uint32_t position = 0;
  std::mt19937 random(5);
  for (const int size : {1, 2, 15, 16, 17, 33, 1000, 4099}) {
    for (const float deviation : {0.0f, 0.5f, 3.0f, 40.0f}) {
      std::vector<float> logits;
      std::normal_distribution<float> normal(0.0f, 1.0f);
      for (int i = 0; i < size; ++i) logits.push_back(deviation * normal(random));
      if (size > 20) logits[20] = -std::numeric_limits<float>::infinity();
      // Equal ones among the best.
      if (size > 30) logits[29] = logits[7] = *std::max_element(logits.begin(), logits.end());
      SamplerScratch scratch;
      for (const double temperature : {0.3, 1.0, 1.7}) {
        for (const int32_t top_k : {0, 1, 5, 40, 2000}) {
          for (const double top_p : {1.0, 0.999999, 0.9, 0.3}) {
            for (const double min_p : {0.0, 0.05, 1.0}) {
              const SamplingOptions options{.temperature = temperature,
                                            .top_k = top_k,
                                            .top_p = top_p,
                                            .min_p = min_p,
                                            .seed = uint64_t{position} << 20};
              Sampler sampler(options, size, scratch);
              const DrawKey key{.seed = options.seed, .choice = position % 3, .position = ++position};
              ASSERT_EQ(sampler.Sample(logits.data(), key), Plainly(options, logits, key))
                  << size << " " << deviation << " " << temperature << " " << top_k << " " << top_p << " " << min_p;
            }
          }
        }
      }
    }
  }
}

TEST(CheckSampling, NamesTheOptionThatIsOutOfRange) {
  EXPECT_TRUE(CheckSampling({.temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0.1}).ok());
  EXPECT_NE(CheckSampling({.top_k = -1}).message().find("top-k"), std::string::npos);
  EXPECT_NE(CheckSampling({.top_p = 0}).message().find("top-p"), std::string::npos);
  EXPECT_NE(CheckSampling({.top_p = 1.1}).message().find("top-p"), std::string::npos);
  EXPECT_NE(CheckSampling({.min_p = -0.1}).message().find("min-p"), std::string::npos);
  EXPECT_FALSE(CheckSampling({.temperature = std::nan("")}).ok());
}

TEST(Sampler, TypicalKeepsWhatIsAsSurprisingAsExpected) {
  // Probabilities 0.55 and three times 0.15: surprises 0.60 and 1.90, expected 1.18, which 0.60 is nearer to.
  const std::vector<float> logits = {std::log(0.15f), std::log(0.55f), std::log(0.15f), std::log(0.15f)};
  EXPECT_EQ(Shares({.temperature = 1, .typical_p = 0.5}, logits).size(), 1u);
  EXPECT_EQ(Shares({.temperature = 1, .typical_p = 0.99}, logits).size(), 4u);
  // One token of 0.4 among 60 of 0.01: the expected surprise, 3.1, is nearer to 4.6 than to 0.9, so the best goes.
  std::vector<float> flat(60, std::log(0.01f));
  flat.push_back(std::log(0.4f));
  const auto shares = Shares({.temperature = 1, .typical_p = 0.495}, flat);
  EXPECT_EQ(shares.count(60), 0u);
  EXPECT_EQ(shares.size(), 50u);
  // Behind top-k, and before top-p.
  EXPECT_EQ(Shares({.temperature = 1, .top_k = 10, .typical_p = 0.05}, flat).size(), 1u);
}

TEST(Sampler, TheBestOfADrawAreTheDrawWithoutReplacement) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.8}, SamplingOptions{.temperature = 1.2, .top_k = 20},
        SamplingOptions{.temperature = 1, .top_p = 0.9}, SamplingOptions{.temperature = 1, .min_p = 0.05}}) {
    std::vector<float> logits(300);
    for (float& logit : logits) logit = normal(random);
    SamplerScratch scratch;
    Sampler sampler(options, 300, scratch);
    const DrawKey key{.seed = 3, .choice = 1, .position = 7};
    int32_t winners[5] = {};
    ASSERT_EQ(sampler.SampleBest(logits.data(), key, winners), 5u);
    for (const int32_t winner : winners) {
      // What wins when those before it cannot.
      EXPECT_EQ(sampler.Sample(logits.data(), key), winner) << options.temperature;
      if (options.top_p < 1 || options.top_k > 0 || options.min_p > 0) break;  // else another token gets in
      logits[static_cast<size_t>(winner)] = -std::numeric_limits<float>::infinity();
    }
  }
  const std::vector<float> few = {1, 2, -std::numeric_limits<float>::infinity()};
  SamplerScratch scratch;
  Sampler sampler({.temperature = 1}, 3, scratch);
  int32_t winners[3] = {};
  EXPECT_EQ(sampler.SampleBest(few.data(), {}, winners), 2u);
}

TEST(Sampler, LogprobsAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {1, 3, 2, -4, 3};
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  SamplerScratch scratch;
  Sampler sampler({.temperature = 0.1, .top_k = 1}, 5, scratch);
  sampler.Reserve();
  TokenLogprob best[3];
  for (int32_t token = 0; token < 5; ++token) {
    EXPECT_NEAR(sampler.Logprobs(logits.data(), token, best), logits[static_cast<size_t>(token)] - std::log(total),
                1e-5);
  }
  EXPECT_EQ(best[0].token, 1);
  EXPECT_EQ(best[1].token, 4);
  EXPECT_EQ(best[2].token, 2);
  EXPECT_NEAR(best[2].logprob, 2 - std::log(total), 1e-5);
}

}  // namespace
}  // namespace nunspark
