#include "weights/speed_estimate.h"

#include <gtest/gtest.h>

#include "weights/fake_model.h"

namespace nunspark {
namespace {

// Slow, since the models here are small.
constexpr MachineRates kRates{.drive = 2e6, .memory = 20e6};

// A plan of a model at a budget, on a machine that has room for everything.
MemoryPlan PlanOf(const FakeModel& model, int64_t budget_bytes) {
  return MakeMemoryPlan(model.layout, model.index, {.budget_bytes = budget_bytes}, {}).value();
}

MemoryPlan FullPlan(const FakeModel& model) { return PlanOf(model, int64_t{1} << 40); }

// Published for models with 8 of 128 and 8 of 256 experts; the synthetic checkpoints' own simulation for 8 of 64.
TEST(TypicalHitRate, IsNearWhatOthersMeasured) {
  EXPECT_NEAR(TypicalHitRate(115, 768, 64, 8), 0.478, 0.05);
  EXPECT_NEAR(TypicalHitRate(256, 768, 64, 8), 0.786, 0.05);
  EXPECT_NEAR(TypicalHitRate(806, 6144, 128, 8), 0.53, 0.06);
  EXPECT_NEAR(TypicalHitRate(1612, 6144, 128, 8), 0.76, 0.06);
  EXPECT_NEAR(TypicalHitRate(24, 100, 256, 8), 0.85, 0.06);
}

TEST(TypicalHitRate, GrowsWithMemoryFromNothingToEverything) {
  EXPECT_EQ(TypicalHitRate(0, 100, 10, 2), 0);
  EXPECT_EQ(TypicalHitRate(100, 100, 10, 2), 1);
  for (int slots = 1; slots <= 100; ++slots) {
    EXPECT_GT(TypicalHitRate(slots, 100, 10, 2), TypicalHitRate(slots - 1, 100, 10, 2));
  }
  EXPECT_NEAR(TypicalHitRate(50, 100, 4, 4), 0.5, 1e-12) << "every expert is used: each is as likely as any other";
}

TEST(EstimateSpeed, WithEverythingInMemoryTheDriveHasNothingToDo) {
  const FakeModel model({.layers = 6, .experts = 8, .experts_per_token = 3});
  const SpeedEstimate estimate = EstimateSpeed(model.layout, model.index, FullPlan(model), kRates);
  EXPECT_EQ(estimate.read_bytes_per_token, 0);
  EXPECT_EQ(estimate.expert_hit_rate, 1);
  EXPECT_EQ(estimate.bound, "memory");
  EXPECT_NEAR(estimate.tokens_per_s, 1 / estimate.compute_s, 1e-6 * estimate.tokens_per_s);
}

TEST(EstimateSpeed, MissesAreReadAndOverlapWithExpertsOnly) {
  const FakeModel model({.layers = 6, .experts = 8, .experts_per_token = 3});
  MemoryPlan plan = FullPlan(model);
  plan.expert_slots /= 2;
  int64_t all_experts_bytes = 0;
  for (PieceId id = 0; id < model.index.size(); ++id) {
    const bool expert = model.layout.pieces[static_cast<size_t>(id)].kind == PieceKind::kExpert;
    all_experts_bytes += expert ? model.index.piece(id).read_bytes : 0;
  }
  const double expert_reads = 3.0 / 8 * static_cast<double>(all_experts_bytes);
  const SpeedEstimate estimate = EstimateSpeed(model.layout, model.index, plan, kRates, 0.25);
  EXPECT_EQ(estimate.expert_hit_rate, 0.25);
  EXPECT_NEAR(estimate.read_bytes_per_token, 0.75 * expert_reads, 1);
  EXPECT_EQ(estimate.bound, "drive");
  EXPECT_LT(estimate.tokens_per_s, 1 / estimate.drive_s);
  EXPECT_GT(estimate.tokens_per_s, 1 / (estimate.drive_s + estimate.compute_s));
}

// With a drive that takes as long as the experts' products: the last of them is computed when the drive has ended.
TEST(EstimateSpeed, WhatArrivesLastIsNotHidden) {
  const FakeModel model({.layers = 6, .experts = 8, .experts_per_token = 3});
  MemoryPlan plan = FullPlan(model);
  plan.expert_slots /= 2;
  const SpeedEstimate all_hit = EstimateSpeed(model.layout, model.index, plan, kRates, 1.0);
  const SpeedEstimate fast = EstimateSpeed(model.layout, model.index, plan, {.drive = 1e15, .memory = 20e6}, 0.5);
  EXPECT_NEAR(fast.tokens_per_s, all_hit.tokens_per_s, 1e-6 * all_hit.tokens_per_s);
  const double compute_s = all_hit.compute_s;
  const double rate = fast.read_bytes_per_token / compute_s;
  const SpeedEstimate even = EstimateSpeed(model.layout, model.index, plan, {.drive = rate, .memory = 20e6}, 0.5);
  EXPECT_LT(even.tokens_per_s, 1 / compute_s);
  EXPECT_GT(even.tokens_per_s, 0.5 / compute_s);
}

TEST(EstimateSpeed, CoresThatDoNotStayAreReadForEveryToken) {
  const FakeModel model({.layers = 6, .experts = 0});
  const MemoryPlan full = FullPlan(model);
  const MemoryPlan plan = PlanOf(model, full.full_bytes - 1);
  ASSERT_LT(plan.pinned_cores, 6);
  int64_t bytes = 0;
  for (size_t layer = static_cast<size_t>(plan.pinned_cores); layer < 6; ++layer) {
    bytes += model.index.piece(model.layout.core[layer]).read_bytes;
  }
  const SpeedEstimate estimate = EstimateSpeed(model.layout, model.index, plan, kRates);
  EXPECT_EQ(estimate.read_bytes_per_token, static_cast<double>(bytes));
  EXPECT_NEAR(estimate.tokens_per_s, 1 / std::max(estimate.drive_s, estimate.compute_s), 1e-6 * estimate.tokens_per_s);
}

TEST(EstimateSpeed, WithoutRatesThereIsNoSpeed) {
  const FakeModel model({});
  EXPECT_EQ(EstimateSpeed(model.layout, model.index, FullPlan(model), {}).tokens_per_s, 0);
}

TEST(KneeBudget, IsWhereDecodingIsNearlyAsFastAsInMemory) {
  const FakeModel model({.layers = 6, .experts = 32, .experts_per_token = 3});
  const MemoryPlan full = FullPlan(model);
  const auto share_at = [&](int64_t budget) {
    return EstimateSpeed(model.layout, model.index, PlanOf(model, budget), kRates).tokens_per_s /
           EstimateSpeed(model.layout, model.index, full, kRates).tokens_per_s;
  };
  const int64_t knee = KneeBudget(model.layout, model.index, full, kRates);
  EXPECT_GT(knee, full.floor_bytes);
  EXPECT_LT(knee, full.full_bytes);
  EXPECT_GE(share_at(knee), kKneeShare);
  EXPECT_LT(share_at(knee - full.full_bytes / 20), kKneeShare);
  EXPECT_EQ(KneeBudget(model.layout, model.index, full, {.drive = 1e15, .memory = 1e6}), full.floor_bytes);
}

}  // namespace
}  // namespace nunspark
