// Whole runs with drafters that work on the target's hidden state: as recorded, and lossless.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/json.h"
#include "base/read_file.h"
#include "decode/hidden_drafter.h"
#include "decode/sequence_group.h"
#include "integration/draft_case.h"
#include "integration/support.h"
#include "nunspark/engine.h"

namespace nunspark {
namespace {

using test::DataPath;
using test::DraftCase;
using test::kCompactDraftCases;
using test::kOtherDraftCases;
using test::ModelPath;
using test::ReadI32;
using test::SharedPath;

// One round of a run: a draft and what became of it.
struct Round {
  int64_t prefix_len = 0;  // tokens that the target had processed
  int32_t bootstrap = 0;   // the token after them
  std::vector<int32_t> drafted;
  int32_t accepted = 0;
};

// Passes everything on to a drafter and remembers the rounds.
class RecordingDrafter : public Drafter {
 public:
  explicit RecordingDrafter(Drafter& drafter) : drafter_(drafter) {}

  bool WantsHidden() const override { return drafter_.WantsHidden(); }
  bool DraftsTrees() const override { return drafter_.DraftsTrees(); }
  void Begin(int32_t slot) override { drafter_.Begin(slot); }
  int32_t WantedLength(int32_t slot, int32_t most) override { return drafter_.WantedLength(slot, most); }
  Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) override {
    RETURN_IF_ERROR(drafter_.Propose(requests, cancelled));
    for (const DraftRequest& request : requests) {
      rounds.push_back({.prefix_len = std::ssize(request.tokens) - 1,
                        .bootstrap = request.tokens.back(),
                        .drafted = request.draft->tokens});
    }
    return Status();
  }
  void Observe(int32_t slot, int32_t proposed, int32_t accepted) override {
    rounds.back().accepted = accepted;
    drafter_.Observe(slot, proposed, accepted);
  }

  std::vector<Round> rounds;

 private:
  Drafter& drafter_;
};

std::vector<int32_t> Numbers(const Json& list) {
  std::vector<int32_t> numbers;
  for (const Json& number : list.as_array()) numbers.push_back(static_cast<int32_t>(number.as_int()));
  return numbers;
}

void CheckRounds(const std::string& folder) {
  SCOPED_TRACE(folder);
  const Json recorded = ParseJson(ReadRegularFile(folder + "/rounds.json").value(), "rounds.json").value();
  const Json::Array& rounds = recorded.Find("rounds")->as_array();
  const std::vector<int32_t> greedy = Numbers(*recorded.Find("greedy"));
  const int32_t length = static_cast<int32_t>(recorded.Find("num_draft_tokens")->as_int());

  DraftCase the_case(folder, 1);
  const ModelLayout& layout = the_case.target().layout();
  constexpr int64_t kContext = 128;
  const std::unique_ptr<Model> model = Model::Create(layout, the_case.pool(), 64, Numerics::kF32).value();
  const std::unique_ptr<KvPool> kv =
      KvPool::Create(Model::KvShapes(layout.hparams, {.type = FloatType::kF32}), kContext).value();
  HiddenDrafter hidden(the_case.network());
  RecordingDrafter drafter(hidden);
  const std::atomic<bool> cancelled{false};
  std::vector<int32_t> ids;
  SequenceGroup group({.model = *model,
                       .weights = the_case.target_weights(),
                       .kv = *kv,
                       .context = kContext,
                       .max_sequences = 1,
                       .prefill_chunk = 64,
                       .cancelled = cancelled,
                       .stop_ids = {},
                       .bytes_read = [] { return int64_t{0}; },
                       .drafter = &drafter,
                       .shape = TreeShape::Chain(length),
                       .governed = false},
                      {.on_token =
                           [&](int32_t, const GeneratedToken& token) {
                             ids.push_back(token.token);
                             return true;
                           },
                       .on_prompt = {},
                       .on_end = [](int32_t, Result<GenerateResult>) {}});
  ASSERT_TRUE(
      group.Join(0, {.prompt = ReadI32(the_case.golden(), "prompt"), .options = {.max_tokens = 80, .ignore_eos = true}})
          .ok());
  while (drafter.rounds.size() < rounds.size()) {
    const Status status = group.Step();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  size_t made = 1;  // by the prompt
  for (size_t i = 0; i < rounds.size(); ++i) {
    SCOPED_TRACE(i);
    const Round& found = drafter.rounds[i];
    EXPECT_EQ(found.prefix_len, rounds[i].Find("prefix_len")->as_int());
    EXPECT_EQ(found.bootstrap, rounds[i].Find("bootstrap")->as_int());
    EXPECT_EQ(found.drafted, Numbers(*rounds[i].Find("drafted")));
    EXPECT_EQ(found.accepted, rounds[i].Find("accepted")->as_int());
    made += static_cast<size_t>(found.accepted) + 1;
    ASSERT_LE(made, ids.size());
    EXPECT_EQ(ids[made - 1], rounds[i].Find("bonus")->as_int());
  }
  ASSERT_GE(ids.size(), greedy.size());
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + std::ssize(greedy)), greedy);
}

TEST(HiddenDrafter, DraftsRoundForRoundWhatTheReferenceDoes) {
  for (const char* name : kCompactDraftCases) CheckRounds(DataPath(std::string("drafts/") + name));
}

TEST(HiddenDrafter, DraftsRoundForRoundWhatTheReferenceDoesOnTheFullSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const char* name : kCompactDraftCases) CheckRounds(SharedPath(std::string("goldens/draft/") + name));
  for (const char* name : kOtherDraftCases) CheckRounds(SharedPath(std::string("goldens/draft/") + name));
}

// ---- lossless, through the engine

DrafterOptions DrafterOf(const std::string& folder) {
  DrafterOptions drafter;
  if (std::filesystem::exists(folder + "/eagle")) {
    drafter.eagle_dir = folder + "/eagle";
  } else {
    drafter.draft_model = folder + "/assistant";
  }
  return drafter;
}

struct Generated {
  GenerateResult result;
  int64_t floor = 0;
};

Generated Generate(const std::string& target, EngineOptions options, const std::vector<int32_t>& prompt,
                   const GenerateOptions& generate) {
  options.context = static_cast<int64_t>(prompt.size()) + generate.max_tokens;
  test::Runner runner = test::Runner::Open(target, options);
  Result<GenerateResult> result = runner.session->Generate(prompt, generate, [](int32_t) { return true; });
  EXPECT_TRUE(result.ok()) << result.status().message();
  return {.result = result.ok() ? *result : GenerateResult(), .floor = runner.engine->plan().floor};
}

class LosslessTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = DataPath(std::string("drafts/") + GetParam());
    prompt_ = ReadI32(folder_ + "/golden.safetensors", "prompt");
  }

  // Drafts of each kind leave every token as it is without; returns the accepted tokens of all.
  int64_t CheckAgainstPlain(const SamplingOptions& sampling) {
    const GenerateOptions generate{.max_tokens = 60, .sampling = sampling, .ignore_eos = true};
    const Generated plain = Generate(folder_ + "/target", {}, prompt_, generate);
    EXPECT_EQ(plain.result.ids.size(), 60u);
    int64_t accepted = 0;
    for (const int32_t tokens : {1, 4, 16}) {
      for (const bool adaptive : {false, true}) {
        EngineOptions options{.drafter = DrafterOf(folder_)};
        options.drafter.tokens = tokens;
        options.drafter.adaptive = adaptive;
        if (tokens == 4) options.budget_bytes = plain.floor;
        if (tokens == 1) options.kv_budget_bytes = 1;  // an assistant's keys too have to be read back
        const Generated run = Generate(folder_ + "/target", options, prompt_, generate);
        EXPECT_EQ(run.result.ids, plain.result.ids) << tokens << " drafted" << (adaptive ? ", governed" : "");
        accepted += run.result.drafts.accepted;
      }
    }
    EngineOptions options{.drafter = DrafterOf(folder_)};
    options.drafter.tree = {3, 2, 1};
    options.drafter.adaptive = false;
    const Generated tree = Generate(folder_ + "/target", options, prompt_, generate);
    EXPECT_EQ(tree.result.ids, plain.result.ids);
    EXPECT_GT(tree.result.drafts.accepted, 0);
    return accepted;
  }

  std::string folder_;
  std::vector<int32_t> prompt_;
};

TEST_P(LosslessTest, GreedyOutputIsThatOfPlainDecoding) { EXPECT_GT(CheckAgainstPlain({}), 0); }

TEST_P(LosslessTest, SampledOutputIsThatOfPlainDecoding) {
  int64_t accepted = 0;
  // So hot that the keyed noise, which both share, decides: these heads know their greedy texts and no others.
  for (const uint64_t seed : {1, 2}) accepted += CheckAgainstPlain({.temperature = 3, .seed = seed});
  EXPECT_GT(accepted, 0);
}

TEST_P(LosslessTest, ManySequencesGetWhatEachGetsAlone) {
  const GenerateOptions generate{.max_tokens = 30, .sampling = {}, .ignore_eos = true};
  std::vector<std::vector<int32_t>> prompts, alone;
  for (const int64_t length : {40, 1, 17, 33}) {
    prompts.emplace_back(prompt_.begin(), prompt_.begin() + length);
    alone.push_back(Generate(folder_ + "/target", {}, prompts.back(), generate).result.ids);
  }
  EngineOptions options{.context = 80, .max_sequences = 3, .drafter = DrafterOf(folder_)};
  options.drafter.tokens = 4;
  options.drafter.adaptive = false;
  test::Runner runner = test::Runner::Open(folder_ + "/target", options);
  runner.session.reset();
  std::vector<std::vector<int32_t>> together(prompts.size());
  {
    const std::unique_ptr<Scheduler> scheduler = runner.engine->NewScheduler({}).value();
    std::atomic<size_t> ended{0};
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto submitted = scheduler->Submit({.prompt = prompts[i], .options = generate},
                                               {.on_end = [&, i](Result<GenerateResult> result) {
                                                 if (result.ok()) together[i] = result->ids;
                                                 ++ended;
                                                 ended.notify_all();
                                               }});
      ASSERT_TRUE(submitted.ok()) << submitted.status().message();
    }
    for (size_t seen = 0; seen < prompts.size(); seen = ended.load()) ended.wait(seen);
  }
  EXPECT_EQ(together, alone);
}

// Of a prompt that is kept only the end is computed anew, and drafts begin with its state.
TEST_P(LosslessTest, AfterAKeptPrefixToo) {
  std::vector<int32_t> prompt = prompt_;
  prompt.insert(prompt.end(), prompt_.begin(), prompt_.end());
  const GenerateOptions generate{.max_tokens = 30, .sampling = {}, .ignore_eos = true};
  const std::vector<int32_t> plain = Generate(folder_ + "/target", {}, prompt, generate).result.ids;
  EngineOptions options{.context = 128, .reuse_prefixes = true, .drafter = DrafterOf(folder_)};
  options.prefix_tokens = 512;
  options.drafter.tokens = 4;
  options.drafter.adaptive = false;
  test::Runner runner = test::Runner::Open(folder_ + "/target", options);
  const auto run = [&] { return runner.session->Generate(prompt, generate, [](int32_t) { return true; }).value(); };
  const GenerateResult cold = run(), kept = run();
  EXPECT_EQ(cold.cached_tokens, 0);
  EXPECT_EQ(kept.cached_tokens, 64);
  EXPECT_EQ(cold.ids, plain);
  EXPECT_EQ(kept.ids, plain);
  EXPECT_EQ(kept.drafts.accepted, cold.drafts.accepted);
}

INSTANTIATE_TEST_SUITE_P(HiddenDrafter, LosslessTest, testing::ValuesIn(kCompactDraftCases),
                         [](const auto& param) { return std::string(param.param); });

TEST(HiddenDrafter, ItsMemoryIsPartOfThePlan) {
  const std::string folder = DataPath("drafts/eagle");
  const auto plan = [&](const DrafterOptions& drafter) {
    return test::Runner::Open(folder + "/target", {.context = 64, .drafter = drafter}).engine->plan();
  };
  DrafterOptions drafter = DrafterOf(folder);
  const PlanSummary chain = plan(drafter);
  // The head's weights but for queries and keys, in whole pages.
  EXPECT_GT(chain.drafter, 180'000);
  EXPECT_GT(chain.total, plan({}).total + 180'000);
  drafter.tree = {4, 4, 1};
  EXPECT_GT(plan(drafter).drafter, chain.drafter) << "a level of sixteen nodes runs at once";
}

TEST(HiddenDrafter, WhatCannotDraftIsRefusedByTheFlagThatNamesIt) {
  const auto files = ModelFiles::Open(DataPath("drafts/eagle/target")).value();
  const auto refusal = [&](const DrafterOptions& drafter) {
    const auto engine = Engine::Start(*files, {.context = 64, .drafter = drafter});
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.status().message();
  };
  EXPECT_THAT(refusal({.eagle_dir = DataPath("nowhere")}),
              testing::AllOf(testing::StartsWith("--eagle-drafter: "), testing::HasSubstr("is no folder")));
  EXPECT_THAT(refusal({.eagle_dir = ModelPath("demo-eagle")}), testing::HasSubstr("hidden_size: expected 64"));
  EXPECT_THAT(refusal({.draft_model = DataPath("drafts/gemma4_assistant/assistant")}),
              testing::AllOf(testing::StartsWith("--draft-model: "), testing::HasSubstr("sliding")));
}

// A head that was trained on its target, on texts that it has not seen.
TEST(HiddenDrafter, TheDemoHeadSavesPassesAndChangesNothing) {
  const std::string target = ModelPath("demo-moe-4bit");
  const Json golden = ParseJson(ReadRegularFile(target + "/golden.json").value(), "golden.json").value();
  const GenerateOptions generate{.max_tokens = static_cast<int32_t>(golden.Find("max_new_tokens")->as_int())};
  const EngineOptions options{.context = 512,
                              .drafter = {.eagle_dir = ModelPath("demo-eagle"), .tokens = 4, .adaptive = false}};
  test::Runner runner = test::Runner::Open(target, options);
  double tokens = 0, passes = 0, per_pass = 0, prompts = 0;
  for (const Json& the_case : golden.Find("cases")->as_array()) {
    const Result<GenerateResult> result =
        runner.session->Generate(Numbers(*the_case.Find("prompt_ids")), generate, [](int32_t) { return true; });
    ASSERT_TRUE(result.ok()) << result.status().message();
    const double made = static_cast<double>(result->ids.size()), in = static_cast<double>(result->drafts.passes);
    tokens += made;
    passes += in;
    per_pass += made / in;
    prompts += 1;
  }
  EXPECT_GE(per_pass / prompts, 1.8);
  EXPECT_GE(tokens / passes, 1.5) << tokens << " tokens in " << passes << " passes";

  const std::vector<int32_t> prompt = Numbers(*golden.Find("cases")->as_array().front().Find("prompt_ids"));
  const GenerateOptions sampled{.max_tokens = 96, .sampling = {.temperature = 0.8, .seed = 7}};
  const Result<GenerateResult> drafted = runner.session->Generate(prompt, sampled, [](int32_t) { return true; });
  EXPECT_GT(drafted->drafts.accepted, 0);
  EXPECT_EQ(drafted->ids, Generate(target, {}, prompt, sampled).result.ids);
}

}  // namespace
}  // namespace nunspark
