#include "weights/memory_plan.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "io/test_folder.h"
#include "weights/fake_model.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

// Checklist item 37.
TEST(AutoBudget, IsThreeQuartersOfRamLessTwoGiB) {
  for (const auto& [ram, budget] : {std::pair{16, 10}, {32, 22}, {64, 46}, {128, 94}}) {
    const AutoBudget automatic = ComputeAutoBudget({.physical_bytes = ram * kGiB});
    EXPECT_EQ(automatic.bytes, budget * kGiB) << ram;
    EXPECT_EQ(automatic.bound_by, "ram");
  }
}

TEST(AutoBudget, HasAFloorAndAValueForUnknownRam) {
  EXPECT_EQ(ComputeAutoBudget({.physical_bytes = 4 * kGiB}).bytes, 2 * kGiB);
  EXPECT_EQ(ComputeAutoBudget({}).bytes, 4'000'000'000);
  EXPECT_EQ(ComputeAutoBudget({}).bound_by, "unknown-ram");
}

TEST(AutoBudget, IsLoweredNeverRaised) {
  const AutoBudget free = ComputeAutoBudget({.physical_bytes = 16 * kGiB, .available_bytes = 15 * kGiB});
  EXPECT_EQ(free.bytes, 10 * kGiB);
  EXPECT_EQ(free.bound_by, "ram");
  const AutoBudget busy = ComputeAutoBudget({.physical_bytes = 16 * kGiB, .available_bytes = 6 * kGiB});
  EXPECT_EQ(busy.bytes, 5 * kGiB);
  EXPECT_EQ(busy.bound_by, "available");
  const AutoBudget group =
      ComputeAutoBudget({.physical_bytes = 16 * kGiB, .available_bytes = 15 * kGiB, .cgroup_limit_bytes = 3 * kGiB});
  EXPECT_EQ(group.bytes, 3 * kGiB);
  EXPECT_EQ(group.bound_by, "cgroup");
  const AutoBudget both =
      ComputeAutoBudget({.physical_bytes = 16 * kGiB, .available_bytes = 2 * kGiB, .cgroup_limit_bytes = 3 * kGiB});
  EXPECT_EQ(both.bytes, kGiB);
  EXPECT_EQ(both.bound_by, "available");
  EXPECT_EQ(ComputeAutoBudget({.physical_bytes = 16 * kGiB, .available_bytes = kGiB / 2}).bytes, 0);
  const AutoBudget crowded = ComputeAutoBudget({.cgroup_limit_bytes = kGiB, .cgroup_share_bytes = kGiB / 2});
  EXPECT_EQ(crowded.bytes, kGiB) << "the contract's rule knows the limit alone; the ceiling is another matter";
  const AutoBudget unknown = ComputeAutoBudget({.cgroup_limit_bytes = kGiB});
  EXPECT_EQ(unknown.bytes, kGiB);
  EXPECT_EQ(unknown.bound_by, "cgroup");
}

TEST(SystemMemory, IsMeasured) {
  const SystemMemory system = MeasureSystemMemory();
  EXPECT_GT(system.physical_bytes, system.process_bytes);
  EXPECT_GT(system.process_bytes, kMiB / 2);
  EXPECT_GT(system.process_virtual_bytes, system.process_bytes);
}

TEST(SystemMemory, WhatAnotherEngineHasPlannedIsNotAvailable) {
  const TestFolder folder;
  const SystemMemory before = MeasureSystemMemory(folder.path());
  const int64_t planned = before.process_bytes + before.available_bytes / 2;
  const MemoryReservation first = MemoryReservation::Take(planned, folder.path());
  const SystemMemory after = MeasureSystemMemory(folder.path());
  // Others use the machine too.
  EXPECT_NEAR(static_cast<double>(after.available_bytes), static_cast<double>(before.available_bytes) / 2,
              static_cast<double>(before.available_bytes) / 8);
  const MemoryReservation second = MemoryReservation::Take(before.available_bytes * 2, folder.path());
  EXPECT_EQ(MeasureSystemMemory(folder.path()).available_bytes, 1) << "nothing is left, which is not unknown";
}

// Plans a model on a machine that leaves it `room`.
class Planner {
 public:
  explicit Planner(const FakeModelOptions& options) : model(options) {}

  Result<MemoryPlan> Plan(std::optional<int64_t> budget, double fraction = -1) const {
    return MakeMemoryPlan(
        model.layout, model.index,
        {.budget_bytes = budget, .expert_fraction = fraction, .kv_bytes = 5000, .scratch_bytes = 7000}, system);
  }
  int64_t Core(int layer) const { return model.index.piece(model.layout.core[static_cast<size_t>(layer)]).slot_bytes; }
  int64_t AllCores() const {
    int64_t bytes = 0;
    for (const PieceId core : model.layout.core) bytes += model.index.piece(core).slot_bytes;
    return bytes;
  }

  int64_t LargestCore() const {
    int64_t bytes = 0;
    for (size_t layer = 0; layer < model.layout.core.size(); ++layer) {
      bytes = std::max(bytes, Core(static_cast<int>(layer)));
    }
    return bytes;
  }

  FakeModel model;
  SystemMemory system{.physical_bytes = 16 * kGiB, .process_bytes = 3 * kMiB};
};

TEST(MemoryPlan, FloorIsOneTokensExpertsAndTwoCores) {
  const Planner planner({.layers = 6, .experts = 8, .experts_per_token = 3, .first_moe_layer = 2});
  const MemoryPlan plan = planner.Plan(kGiB).value();
  EXPECT_EQ(plan.floor_bytes, 3 * 4 * plan.expert_slot_bytes + 2 * planner.LargestCore());
  EXPECT_EQ(plan.full_bytes, 8 * 4 * plan.expert_slot_bytes + planner.AllCores());

  const MemoryPlan smallest = planner.Plan(plan.floor_bytes).value();
  EXPECT_EQ(smallest.expert_slots, 12);
  EXPECT_EQ(smallest.ring_slots, 2);
  EXPECT_LE(smallest.core_region_bytes + smallest.expert_region_bytes, plan.floor_bytes);

  const Result<MemoryPlan> refused = planner.Plan(plan.floor_bytes - 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("is below the floor of"));
  EXPECT_THAT(refused.status().message(), HasSubstr("fake_moe (3 experts x 4 layers and two cores)"));
}

TEST(MemoryPlan, DenseModelsNeedTwoLayers) {
  const Planner planner({.layers = 5, .experts = 0});
  const MemoryPlan plan = planner.Plan(kGiB).value();
  EXPECT_EQ(plan.floor_bytes, 2 * planner.LargestCore());
  EXPECT_EQ(plan.expert_slots, 0);
  EXPECT_EQ(plan.pinned_cores, 5);
  EXPECT_EQ(plan.ring_slots, 0);
  const Planner one({.layers = 1, .experts = 0});
  EXPECT_EQ(one.Plan(kGiB).value().floor_bytes, one.Core(0));
}

TEST(MemoryPlan, TakesOnlyWhatTheModelNeeds) {
  const Planner planner({});
  const MemoryPlan plan = planner.Plan(8 * kGiB).value();
  EXPECT_EQ(plan.budget_bytes, 8 * kGiB);
  EXPECT_EQ(plan.core_region_bytes + plan.expert_region_bytes, plan.full_bytes);
  EXPECT_EQ(plan.expert_slots, 16);
  EXPECT_LT(plan.total_bytes, 32 * kMiB);
}

TEST(MemoryPlan, AResidentModelHoldsEveryPiece) {
  const Planner planner({.layers = 4, .experts = 8});
  const MemoryPlan plan = MakeResidentPlan(planner.model.layout, planner.model.index, 5000, 7000);
  EXPECT_EQ(plan.pinned_cores, 4);
  EXPECT_EQ(plan.expert_slots, 32);
  EXPECT_EQ(plan.kv_bytes, 5000);
  EXPECT_EQ(plan.scratch_bytes, 7000);
  EXPECT_GE(plan.total_bytes, planner.AllCores() + plan.expert_region_bytes + plan.embed_bytes + plan.norm_head_bytes);
}

TEST(MemoryPlan, PinsCoresBeforeItAddsExperts) {
  const Planner planner({.layers = 6, .experts = 8, .experts_per_token = 2});
  const MemoryPlan full = planner.Plan(kGiB).value();
  const int64_t floor_experts = 12 * full.expert_slot_bytes;
  const MemoryPlan pinned = planner.Plan(planner.AllCores() + floor_experts).value();
  EXPECT_EQ(pinned.pinned_cores, 6);
  EXPECT_EQ(pinned.expert_slots, 12);
  const MemoryPlan ring = planner.Plan(planner.AllCores() + floor_experts - 1).value();
  EXPECT_LT(ring.pinned_cores, 6);
  EXPECT_EQ(ring.ring_slots, 2);
  const MemoryPlan more = planner.Plan(planner.AllCores() + floor_experts + 3 * full.expert_slot_bytes).value();
  EXPECT_EQ(more.expert_slots, 15);
}

TEST(MemoryPlan, EveryBudgetFromFloorToAllIsFilledAndKept) {
  for (const bool moe : {true, false}) {
    const Planner planner({.layers = 7, .experts = moe ? 5 : 0, .experts_per_token = 2, .core_bytes = 50000});
    const MemoryPlan full = planner.Plan(kGiB).value();
    int32_t pinned_before = 0;
    for (int64_t budget = full.floor_bytes; budget <= full.full_bytes; budget += 1777) {
      const MemoryPlan plan = planner.Plan(budget).value();
      const int64_t used = plan.core_region_bytes + plan.expert_region_bytes;
      ASSERT_LE(used, budget);
      ASSERT_EQ(plan.expert_region_bytes, plan.expert_slots * plan.expert_slot_bytes);
      int64_t cores = plan.ring_slots * plan.core_slot_bytes;
      for (int layer = 0; layer < plan.pinned_cores; ++layer) cores += planner.Core(layer);
      ASSERT_EQ(plan.core_region_bytes, cores);
      ASSERT_GE(plan.pinned_cores, pinned_before);
      pinned_before = plan.pinned_cores;
      ASSERT_EQ(plan.total_bytes, used + plan.embed_bytes + plan.norm_head_bytes + plan.read_buffer_bytes +
                                      plan.kv_bytes + plan.scratch_bytes + plan.process_bytes + plan.reserve_bytes);
      if (budget < full.full_bytes) {
        ASSERT_GT(used + std::max(planner.LargestCore(), full.expert_slot_bytes), budget);
      }
    }
    EXPECT_EQ(planner.Plan(full.full_bytes).value().pinned_cores, 7);
  }
}

TEST(MemoryPlan, ExpertFractionIsTakenWithinBounds) {
  const Planner planner({.layers = 4, .experts = 16, .experts_per_token = 2});
  const MemoryPlan full = planner.Plan(kGiB).value();
  const int64_t budget = full.full_bytes / 2;
  const MemoryPlan half = planner.Plan(budget, 0.5).value();
  EXPECT_EQ(half.expert_slots, budget / 2 / half.expert_slot_bytes);
  EXPECT_EQ(planner.Plan(budget, 0.0).value().expert_slots, 8) << "the floor";
  const MemoryPlan most = planner.Plan(budget, 1.0).value();
  EXPECT_EQ(most.expert_slots, (budget - 2 * planner.LargestCore()) / most.expert_slot_bytes) << "two cores stay";
  EXPECT_EQ(most.ring_slots, 2);
  EXPECT_EQ(planner.Plan(kGiB, 1.0).value().expert_slots, 64);
  const Result<MemoryPlan> wrong = planner.Plan(budget, 1.5);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
}

TEST(MemoryPlan, TiedEmbeddingStaysInMemory) {
  const Planner tied({.tied = true, .vocab = 100000});
  EXPECT_EQ(tied.Plan(kGiB).value().embed_bytes, tied.model.index.piece(tied.model.layout.embed).slot_bytes);
  const Planner untied({.tied = false, .vocab = 100000});
  EXPECT_LE(untied.Plan(kGiB).value().embed_bytes, 4 * kMiB);
}

// The value a message suggests.
std::string Suggested(const Status& status) {
  std::smatch match;
  const std::string message = status.message();
  return std::regex_search(message, match, std::regex("try --budget ([^ ,;]+)")) ? match[1].str() : "";
}

TEST(MemoryPlan, EveryRefusalOfABudgetSuggestsOneThatWorks) {
  Planner planner(
      {.layers = 9, .experts = 12, .experts_per_token = 3, .core_bytes = 400000, .expert_part_bytes = 70000});
  const MemoryPlan full = planner.Plan(kGiB).value();
  const int64_t outside = full.total_bytes - full.core_region_bytes - full.expert_region_bytes;
  int refused = 0;
  for (int64_t limit = outside + full.floor_bytes + kMiB / 16; limit < full.total_bytes + kMiB; limit += 123457) {
    planner.system.cgroup_limit_bytes = limit;
    for (const int64_t budget :
         {int64_t{1}, full.floor_bytes - 1, full.floor_bytes, full.full_bytes - 1, full.full_bytes}) {
      const Result<MemoryPlan> plan = planner.Plan(budget);
      if (plan.ok()) {
        ASSERT_LE(plan->total_bytes, limit);
        continue;
      }
      ++refused;
      ASSERT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
      const Result<int64_t> suggested = ParseSize(Suggested(plan.status()));
      ASSERT_TRUE(suggested.ok()) << plan.status().message();
      ASSERT_TRUE(planner.Plan(*suggested).ok()) << plan.status().message();
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(MemoryPlan, ModelThatNeverFitsIsRefusedWithTheNumbers) {
  Planner planner({});
  planner.system.cgroup_limit_bytes = 3 * kMiB;
  for (const std::optional<int64_t> budget : {std::optional<int64_t>(), std::optional<int64_t>(kGiB)}) {
    const Result<MemoryPlan> plan = planner.Plan(budget);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(plan.status().message(), HasSubstr("fake_moe needs"));
    EXPECT_THAT(plan.status().message(), HasSubstr("3.1 MB of the cgroup limit"));
    EXPECT_THAT(plan.status().message(), HasSubstr("KV cache 5.0 KB"));
  }
}

TEST(MemoryPlan, AutomaticBudgetStaysBelowTheCeiling) {
  Planner planner({.layers = 9, .experts = 12, .core_bytes = 400000, .expert_part_bytes = 70000});
  const MemoryPlan full = planner.Plan(std::nullopt).value();
  EXPECT_EQ(full.budget_bound, "ram");
  EXPECT_EQ(full.pinned_cores, 9);
  planner.system.cgroup_limit_bytes = full.total_bytes - kMiB;
  const MemoryPlan lower = planner.Plan(std::nullopt).value();
  EXPECT_EQ(lower.budget_bound, "cgroup");
  EXPECT_LE(lower.total_bytes, planner.system.cgroup_limit_bytes);
  EXPECT_GT(lower.total_bytes, planner.system.cgroup_limit_bytes - kMiB / 2);
}

TEST(MemoryPlan, AutomaticBudgetBelowTheFloorIsRefused) {
  Planner planner({});
  planner.system.available_bytes = kGiB;
  planner.system.physical_bytes = 2 * kGiB;
  const Result<MemoryPlan> plan = planner.Plan(std::nullopt);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(),
              HasSubstr("the automatic budget of 0 B (bound by available) is below the floor"));
  EXPECT_TRUE(planner.Plan(ParseSize(Suggested(plan.status())).value()).ok());
}

TEST(MemoryPlan, CeilingIsTheSmallestBound) {
  Planner planner({});
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bound, "physical");
  planner.system.available_bytes = 8 * kGiB;
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bound, "available");
  planner.system.cgroup_limit_bytes = 2 * kGiB;
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bytes, 2 * kGiB);
  planner.system.cgroup_share_bytes = 3 * kGiB / 2;
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bytes, 3 * kGiB / 2) << "others use the rest of the group's limit";
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bound, "cgroup");
  planner.system.address_space_bytes = kGiB;
  planner.system.process_virtual_bytes = 103 * kMiB;
  const MemoryPlan plan = planner.Plan(kGiB).value();
  EXPECT_EQ(plan.ceiling_bound, "address space");
  EXPECT_EQ(plan.ceiling_bytes, kGiB - 100 * kMiB);
  planner.system = {};
  EXPECT_EQ(planner.Plan(kGiB).value().ceiling_bytes, 0) << "nothing is known";
}

class WholeProcess : public ::testing::Test {
 protected:
  Result<MemoryPlan> Plan(int64_t memory, int64_t drafter = 0) const {
    return MakeMemoryPlan(
        planner_.model.layout, planner_.model.index,
        {.budget_bytes = std::nullopt, .memory_bytes = memory, .kv_bytes = 5000, .drafter_bytes = drafter},
        planner_.system);
  }

  Planner planner_{{.layers = 9, .experts = 12, .core_bytes = 400000, .expert_part_bytes = 70000}};
};

TEST_F(WholeProcess, WeightsGetWhatTheRestLeaves) {
  const MemoryPlan full = Plan(kGiB).value();
  EXPECT_EQ(full.budget_bound, "all weights");
  EXPECT_EQ(full.budget_bytes, full.full_bytes);
  int32_t slots = full.expert_slots + 1;
  for (int64_t memory = full.total_bytes - 1; memory > full.total_bytes / 2; memory -= kMiB) {
    const Result<MemoryPlan> plan = Plan(memory);
    if (!plan.ok()) break;
    EXPECT_LE(plan->total_bytes, memory);
    EXPECT_EQ(plan->budget_bound, "--memory");
    EXPECT_EQ(plan->ceiling_bytes, memory);
    EXPECT_LT(plan->expert_slots, slots);
    slots = plan->expert_slots;
    // Nothing is left over that one more expert would fit in.
    EXPECT_GT(plan->total_bytes + plan->expert_slot_bytes * 257 / 256 + 1, memory);
  }
  EXPECT_LT(slots, full.expert_slots);
}

TEST_F(WholeProcess, ADrafterTakesItsMemoryFromTheExperts) {
  const int64_t memory = Plan(kGiB).value().total_bytes - 2 * kMiB;
  const MemoryPlan plain = Plan(memory).value();
  const MemoryPlan drafting = Plan(memory, kMiB).value();
  EXPECT_LE(drafting.total_bytes, memory);
  EXPECT_EQ(drafting.drafter_bytes, kMiB);
  EXPECT_GE(plain.expert_slots - drafting.expert_slots, kMiB / plain.expert_slot_bytes);
  EXPECT_LE(plain.expert_slots - drafting.expert_slots, kMiB / plain.expert_slot_bytes + 1);
  const Result<MemoryPlan> refused = Plan(memory, memory);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("drafter "));
  EXPECT_THAT(Plan(4 * kMiB).status().message(), testing::Not(HasSubstr("drafter")));
}

TEST_F(WholeProcess, BelowTheFloorIsRefusedWithTheNumbers) {
  const Result<MemoryPlan> plan = Plan(4 * kMiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(plan.status().message(), HasSubstr("--memory 4.2 MB is below the "));
  EXPECT_THAT(plan.status().message(), HasSubstr("fake_moe needs at least (weights "));
  EXPECT_THAT(plan.status().message(), HasSubstr("KV cache 5.0 KB"));
  const std::string flag = plan.status().message().substr(plan.status().message().rfind(' ') + 1);
  EXPECT_TRUE(Plan(ParseSize(flag).value()).ok()) << flag;
}

TEST_F(WholeProcess, MoreThanTheSystemHasIsRefused) {
  planner_.system.available_bytes = kGiB;
  const Result<MemoryPlan> plan = Plan(2 * kGiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("--memory 2.15 GB is more than the"));
  EXPECT_THAT(plan.status().message(), HasSubstr("available memory"));
  const std::string flag = plan.status().message().substr(plan.status().message().rfind(' ') + 1);
  EXPECT_TRUE(Plan(ParseSize(flag).value()).ok()) << flag;
}

TEST_F(WholeProcess, IsNotGivenTogetherWithABudget) {
  const Result<MemoryPlan> plan = MakeMemoryPlan(planner_.model.layout, planner_.model.index,
                                                 {.budget_bytes = kGiB, .memory_bytes = kGiB}, planner_.system);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nunspark
