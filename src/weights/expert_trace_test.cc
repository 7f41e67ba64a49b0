#include "weights/expert_trace.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "io/test_folder.h"
#include "weights/cache_harness.h"

namespace nunspark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FakeModelOptions kModel{.layers = 4, .experts = 6, .experts_per_token = 2, .first_moe_layer = 1};

// A trace of passes with one row each, with some locality.
ExpertTrace RandomTrace(const FakeModelOptions& model, int passes, uint32_t seed) {
  std::mt19937 random(seed);
  ExpertTrace trace;
  for (int pass = 0; pass < passes; ++pass) {
    for (int layer = model.first_moe_layer; layer < model.layers; ++layer) {
      ExpertCall call{.layer = layer, .batch_tokens = 1, .fired = {}, .last_rows = {0, 0}};
      const auto first = static_cast<int32_t>(random() % 3 * random() % 3);
      call.fired = {first, first + 1 + static_cast<int32_t>(random() % 2)};
      trace.push_back(std::move(call));
    }
  }
  return trace;
}

MemoryPlan PlanOf(const FakeModel& model, int32_t slots) {
  MemoryPlan plan = MakeMemoryPlan(model.layout, model.index, {.budget_bytes = int64_t{1} << 40}, {}).value();
  plan.expert_slots = slots;
  plan.expert_region_bytes = slots * plan.expert_slot_bytes;
  return plan;
}

class ExpertTraceTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& text) {
    const Result<ExpertTrace> trace = LoadExpertTrace(folder_.Write("bad", text), model_.layout);
    EXPECT_FALSE(trace.ok()) << text;
    return trace.ok() ? "" : trace.status().message();
  }
  PieceId Expert(int layer, int expert) const {
    return model_.layout.first_expert[static_cast<size_t>(layer)] + expert;
  }

  const FakeModel model_{kModel};
  const TestFolder folder_;
};

TEST_F(ExpertTraceTest, LinesHaveTheContractsFields) {
  auto writer = ExpertTraceWriter::Create(folder_.Path("trace"), model_.layout).value();
  const std::vector<PieceId> one = {Expert(1, 4), Expert(1, 2)}, several = {Expert(3, 5), Expert(3, 0), Expert(3, 1)};
  const std::vector<int32_t> one_rows = {0, 0}, several_rows = {1, 3, 6};
  writer->Add({.layer = 1, .pieces = one, .last_rows = one_rows}, {.rows = 1});
  writer->Add({.layer = 3, .pieces = several, .last_rows = several_rows}, {.rows = 7});
  const std::vector<int32_t> counts = {1, 4, 2};
  writer->Add({.layer = 3, .pieces = several, .last_rows = several_rows, .row_counts = counts},
              {.rows = 7, .sequences = 2});
  ASSERT_TRUE(writer->Flush().ok());
  EXPECT_EQ(ReadRegularFile(folder_.Path("trace")).value(),
            "{\"t\":0,\"layer\":1,\"fired\":[2,4],\"batch_tokens\":1}\n"
            "{\"t\":1,\"layer\":3,\"fired\":[0,1,5],\"batch_tokens\":7,\"last_rows\":[3,6,1]}\n"
            "{\"t\":2,\"layer\":3,\"fired\":[0,1,5],\"batch_tokens\":7,\"last_rows\":[3,6,1],"
            "\"sequences\":2,\"row_counts\":[4,2,1]}\n");
  const ExpertTrace trace = LoadExpertTrace(folder_.Path("trace"), model_.layout).value();
  ASSERT_EQ(trace.size(), 3U);
  EXPECT_THAT(trace[0].fired, ElementsAre(2, 4));
  EXPECT_THAT(trace[0].last_rows, ElementsAre(0, 0));
  EXPECT_EQ(trace[1].batch_tokens, 7);
  EXPECT_THAT(trace[1].last_rows, ElementsAre(3, 6, 1));
  EXPECT_EQ(trace[1].sequences, 1);
  EXPECT_EQ(trace[2].sequences, 2);
  EXPECT_THAT(trace[2].row_counts, ElementsAre(4, 2, 1));
}

TEST_F(ExpertTraceTest, ALostWriteIsReported) {
  auto writer = ExpertTraceWriter::Create("/dev/full", model_.layout);
  if (!writer.ok()) GTEST_SKIP() << "no /dev/full here";
  const std::vector<PieceId> pieces = {Expert(1, 0)};
  const std::vector<int32_t> rows = {0};
  (*writer)->Add({.layer = 1, .pieces = pieces, .last_rows = rows}, {.rows = 1});
  EXPECT_FALSE((*writer)->Flush().ok());
  EXPECT_FALSE((*writer)->Flush().ok()) << "also later";
}

TEST_F(ExpertTraceTest, TracesWithoutLastRowsAreRead) {
  const std::string path = folder_.Write("t", R"({"t":0,"layer":2,"fired":[0,3],"batch_tokens":5})"
                                              "\n");
  EXPECT_THAT(LoadExpertTrace(path, model_.layout).value()[0].last_rows, ElementsAre(4, 4));
}

TEST_F(ExpertTraceTest, RefusesWhatDoesNotFitTheModel) {
  EXPECT_THAT(Refusal(""), HasSubstr("no calls"));
  for (const char* bad :
       {R"({"t":0,"layer":0,"fired":[0],"batch_tokens":1})", R"({"t":0,"layer":4,"fired":[0],"batch_tokens":1})",
        R"({"t":0,"layer":1,"fired":[6],"batch_tokens":1})", R"({"t":0,"layer":1,"fired":[2,1],"batch_tokens":1})",
        R"({"t":0,"layer":1,"fired":[],"batch_tokens":1})", R"({"t":0,"layer":1,"fired":[0],"batch_tokens":0})",
        R"({"t":0,"layer":1,"fired":[0]})", R"({"t":0,"layer":1,"fired":[0],"batch_tokens":2,"last_rows":[2]})",
        R"({"t":0,"layer":1,"fired":[0],"batch_tokens":2,"last_rows":[0,1]})",
        R"({"t":0,"layer":1,"fired":[0],"batch_tokens":2,"sequences":2})",
        R"({"t":0,"layer":1,"fired":[0],"batch_tokens":2,"sequences":3,"row_counts":[1]})",
        R"({"t":0,"layer":1,"fired":[0],"batch_tokens":2,"sequences":2,"row_counts":[3]})", "{}"}) {
    EXPECT_THAT(Refusal(std::string(bad) + "\n"), HasSubstr("line 1")) << bad;
  }
  EXPECT_FALSE(LoadExpertTrace(folder_.Path("nothing"), model_.layout).ok());
}

// The reads come late and in any order, as from a drive; the simulator's come at once.
TEST(TraceReplay, MissesAreThoseOfACacheThatReads) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const ExpertTrace trace = RandomTrace(kModel, 40, seed);
    const int32_t slots = 6 + static_cast<int32_t>(seed % 9);
    Harness h({.model = kModel, .expert_slots = slots, .cache = {.prefetch = false}, .shuffle_seed = seed});
    for (const ExpertCall& call : trace) {
      if (call.layer == kModel.first_moe_layer) h.cache->BeginPass({});
      (void)h.Pass(call.layer, h.Experts(call.layer, {call.fired.begin(), call.fired.end()}));
    }
    const CacheStats real = h.cache->stats();
    const ReplayedTrace replayed = ReplayLru(h.model.layout, h.model.index, h.plan, trace).value();
    EXPECT_EQ(replayed.all.misses, real.expert.misses) << seed;
    EXPECT_EQ(replayed.all.hits, real.expert.hits) << seed;
    EXPECT_EQ(replayed.all.tokens, 40);
    EXPECT_EQ(replayed.decode.misses, replayed.all.misses);
  }
}

TEST(TraceReplay, TheOptimumNeverMissesMoreAndWithRoomForAllNobodyMissesTwice) {
  const FakeModel model(kModel);
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const ExpertTrace trace = RandomTrace(kModel, 30, seed);
    int64_t least = 1 << 30;
    for (int32_t slots = 6; slots <= 18; slots += 3) {
      const MemoryPlan plan = PlanOf(model, slots);
      const int64_t lru = ReplayLru(model.layout, model.index, plan, trace)->all.misses;
      const int64_t optimum = ReplayOptimum(model.layout, model.index, plan, trace)->all.misses;
      EXPECT_LE(optimum, lru);
      EXPECT_LE(optimum, least) << "more slots never miss more";
      least = optimum;
      if (slots < 18) continue;
      EXPECT_EQ(lru, optimum);
      EXPECT_EQ(ReplayLru(model.layout, model.index, plan, trace)->all.bytes_read,
                ReplayOptimum(model.layout, model.index, plan, trace)->all.bytes_read);
    }
  }
}

TEST(TraceReplay, TheOptimumKeepsWhatIsUsedSoonest) {
  const FakeModelOptions options{.layers = 1, .experts = 4, .experts_per_token = 1};
  const FakeModel model(options);
  ExpertTrace trace;
  for (const int expert : {0, 1, 2, 0, 1, 3, 0, 1}) trace.push_back({0, 1, {expert}, {0}});
  // 2 and 3 come once: with two slots they pass, and 0 and 1 stay.
  EXPECT_EQ(ReplayOptimum(model.layout, model.index, PlanOf(model, 2), trace)->all.misses, 4);
  EXPECT_EQ(ReplayLru(model.layout, model.index, PlanOf(model, 2), trace)->all.misses, 8);
}

TEST(TraceReplay, CoresThatDoNotStayAreReadInEveryPass) {
  const FakeModel model(kModel);
  const MemoryPlan full = PlanOf(model, 18);
  const MemoryPlan plan = MakeMemoryPlan(model.layout, model.index, {.budget_bytes = full.floor_bytes}, {}).value();
  ASSERT_LT(plan.pinned_cores, 3);
  const ExpertTrace trace = RandomTrace(kModel, 10, 1);
  const ReplayedTrace lru = ReplayLru(model.layout, model.index, plan, trace).value();
  EXPECT_GT(lru.all.bytes_read, lru.all.misses * model.index.piece(model.layout.first_expert[1]).read_bytes);
  EXPECT_NEAR(lru.all.bytes_per_token(), static_cast<double>(lru.all.bytes_read) / 10, 1e-9);
}

}  // namespace
}  // namespace nunspark
