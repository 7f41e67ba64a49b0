#include "decode/draft_governor.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace nunspark {
namespace {

// A machine where a pass of so many rows takes so long, a drafted token costs step_s, and each is right with a chance.
struct Machine {
  std::function<double(int64_t)> pass_s;
  double step_s = 0;
  double chance = 0;
};

struct Outcome {
  double governed_s = 0;  // per token
  double plain_s = 0;
};

Outcome Simulate(const Machine& machine, int32_t most, int passes, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  DraftGovernor governor(TreeShape::Chain(most));
  AcceptanceRate acceptance;
  double time = 0;
  int64_t tokens = 0;
  for (int i = 0; i < passes; ++i) {
    const int32_t length = governor.Length(1, acceptance);
    EXPECT_LE(length, most);
    int32_t accepted = 0;
    while (accepted < length && uniform(random) < machine.chance) ++accepted;
    // Passes are not alike: some wait for the drive.
    const double noise = 0.9 + 0.2 * uniform(random);
    const DraftGovernor::Pass pass{.sequences = 1,
                                   .rows = 1 + length,
                                   .tokens = 1 + accepted,
                                   .pass_s = machine.pass_s(1 + length) * noise,
                                   .draft_s = machine.step_s * length,
                                   .steps = length};
    governor.Record(pass);
    if (length > 0) acceptance.Observe(length, accepted);
    time += pass.pass_s + pass.draft_s;
    tokens += pass.tokens;
  }
  return {.governed_s = time / static_cast<double>(tokens), .plain_s = machine.pass_s(1)};
}

// The best fixed length's seconds per token.
double Best(const Machine& machine, std::initializer_list<int32_t> lengths) {
  double best = 1e9;
  for (const int32_t length : lengths) {
    double tokens = 1, reached = 1;
    for (int32_t i = 0; i < length; ++i) tokens += reached *= machine.chance;
    best = std::min(best, (machine.pass_s(1 + length) + machine.step_s * length) / tokens);
  }
  return best;
}

TEST(DraftGovernor, WithoutAcceptanceItIsHardlySlowerThanPlain) {
  for (const double per_row : {0.02, 0.3, 1.0}) {
    const Machine machine{.pass_s = [=](int64_t rows) { return 1 + per_row * static_cast<double>(rows - 1); },
                          .step_s = 0.2,
                          .chance = 0};
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      const Outcome outcome = Simulate(machine, 16, 400, seed);
      EXPECT_LT(outcome.governed_s, 1.03 * outcome.plain_s) << per_row;
    }
  }
}

TEST(DraftGovernor, FindsALengthThatIsNearlyTheBest) {
  for (const double chance : {0.5, 0.8, 0.97}) {
    for (const double per_row : {0.01, 0.1, 0.4}) {
      for (const double step_s : {0.0, 0.05, 0.3}) {
        const Machine machine{.pass_s = [=](int64_t rows) { return 1 + per_row * static_cast<double>(rows - 1); },
                              .step_s = step_s,
                              .chance = chance};
        const double best = Best(machine, {0, 1, 2, 4, 8, 16});
        const Outcome outcome = Simulate(machine, 16, 2000);
        EXPECT_LT(outcome.governed_s, best / 0.93) << "chance " << chance << ", row " << per_row << ", step " << step_s;
      }
    }
  }
}

TEST(DraftGovernor, TakesUpDraftsAgainWhenTheTextTurns) {
  DraftGovernor governor(TreeShape::Chain(8));
  AcceptanceRate acceptance;
  const auto run = [&](int passes, bool right) {
    int64_t drafted = 0;
    for (int i = 0; i < passes; ++i) {
      const int32_t length = governor.Length(1, acceptance);
      const int32_t accepted = right ? length : 0;
      governor.Record({.sequences = 1,
                       .rows = 1 + length,
                       .tokens = 1 + accepted,
                       .pass_s = 1 + 0.05 * length,
                       .draft_s = 0.01 * length,
                       .steps = length});
      if (length > 0) acceptance.Observe(length, accepted);
      drafted += length;
    }
    return drafted;
  };
  EXPECT_LT(run(500, false), 60);
  run(700, true);
  EXPECT_GT(run(100, true), 600);
  run(100, false);
  EXPECT_LT(run(500, false), 60);
}

TEST(DraftGovernor, DraftsATreeWholeOrNotAtAll) {
  const TreeShape shape = TreeShape::Create({4, 2}).value();
  DraftGovernor governor(shape);
  AcceptanceRate acceptance;
  int drafted = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t levels = governor.Length(1, acceptance);
    EXPECT_TRUE(levels == 0 || levels == 2) << levels;
    governor.Record({.sequences = 1,
                     .rows = 1 + (levels > 0 ? shape.nodes() : 0),
                     .tokens = 1 + levels,
                     .pass_s = levels > 0 ? 1.5 : 1,
                     .draft_s = 0.1 * levels,
                     .steps = levels});
    if (levels > 0) acceptance.Observe(levels, levels);
    drafted += levels > 0 ? 1 : 0;
  }
  EXPECT_GT(drafted, 90);
}

}  // namespace
}  // namespace nunspark
