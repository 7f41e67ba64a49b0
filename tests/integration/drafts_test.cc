// The promise of speculation: whatever drafts, and however much, the tokens are those of plain decoding.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/read_file.h"
#include "base/sanitized_testing.h"
#include "decode/model_drafter.h"
#include "formats/safetensors.h"
#include "integration/draft_case.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

constexpr int64_t kContext = 192;

// A prompt with repetitions in it, so that prompt lookup finds something, right and wrong.
std::vector<int32_t> PromptOf(int64_t vocab_size, int length) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i)
    prompt.push_back(static_cast<int32_t>((i % 11 * 7919 + i / 40 * 31 + 13) % vocab_size));
  return prompt;
}

GenerateResult RunOnce(const std::string& folder, EngineOptions options, const GenerateOptions& generate,
                       int prompt_length = 45) {
  options.context = std::max<int64_t>(kContext, prompt_length + generate.max_tokens);
  const Runner runner = Runner::Open(folder, options);
  if (runner.session == nullptr) return {};
  const Result<GenerateResult> result = runner.session->Generate(PromptOf(runner.files->vocab_size(), prompt_length),
                                                                 generate, [](int32_t) { return true; });
  EXPECT_TRUE(result.ok()) << result.status().message();
  EXPECT_LE(runner.engine->stats().kv.resident_peak_bytes, runner.engine->plan().kv);
  return result.ok() ? *result : GenerateResult{};
}

GenerateOptions Greedy(int32_t tokens) { return {.max_tokens = tokens, .sampling = {}, .ignore_eos = true}; }

GenerateOptions Sampled(int32_t tokens) {
  return {.max_tokens = tokens,
          .sampling = {.temperature = 0.9, .top_k = 50, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 5},
          .ignore_eos = true};
}

class Drafts : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return FolderOf(GetParam()); }

  void ExpectPlain(const EngineOptions& options, const std::string& what) {
    for (const GenerateOptions& generate : {Greedy(60), Sampled(60)}) {
      const std::vector<int32_t>& plain = generate.sampling.temperature > 0 ? sampled_ : greedy_;
      EXPECT_EQ(RunOnce(folder(), options, generate).ids, plain)
          << what << ", temperature " << generate.sampling.temperature;
    }
  }

  void SetUp() override {
    greedy_ = RunOnce(folder(), {}, Greedy(60)).ids;
    sampled_ = RunOnce(folder(), {}, Sampled(60)).ids;
    ASSERT_EQ(greedy_.size(), 60u);
    ASSERT_EQ(sampled_.size(), 60u);
  }

  std::vector<int32_t> greedy_, sampled_;
};

// Checklist items 50, 54 and 57.
TEST_P(Drafts, OfPromptLookupLeaveNoTrace) {
  for (const int32_t tokens : {1, 4, 16}) {
    for (const bool adaptive : {true, false}) {
      ExpectPlain({.drafter = {.ngram = true, .tokens = tokens, .adaptive = adaptive}},
                  "n-gram, " + std::to_string(tokens) + (adaptive ? ", adaptive" : ""));
    }
  }
}

// Checklist items 48 to 50.
TEST_P(Drafts, OfAModelLeaveNoTrace) {
  ExpectPlain({.drafter = {.draft_model = folder(), .tokens = 4, .adaptive = false}}, "itself, 4");
  ExpectPlain({.drafter = {.draft_model = folder(), .tokens = 1, .adaptive = false}}, "itself, 1");
  ExpectPlain({.drafter = {.draft_model = folder(), .tokens = 8}}, "itself, governed");
  if (GetParam().starts_with("demo")) return;
  // Of random weights, and of the same vocabulary: hardly ever right.
  const std::string other = DataPath(GetParam() == "llama" ? "goldens/qwen3" : "goldens/llama");
  ExpectPlain({.drafter = {.draft_model = other, .tokens = 5, .adaptive = false}}, "another model");
  ExpectPlain({.drafter = {.draft_model = other, .tokens = 5}}, "another model, governed");
}

TEST_P(Drafts, ThatAreTreesLeaveNoTrace) {
  const std::string other = GetParam().starts_with("demo") ? folder()
                            : GetParam() == "llama"        ? DataPath("goldens/qwen3")
                                                           : DataPath("goldens/llama");
  for (const std::string& draft : {folder(), other}) {
    for (const std::vector<int32_t>& tree : {std::vector<int32_t>{3, 2, 1}, {2, 2, 2, 1}, {1, 1}, {5}}) {
      ExpectPlain({.drafter = {.draft_model = draft, .tree = tree, .adaptive = false}},
                  draft + ", a tree of " + std::to_string(tree.size()));
    }
    ExpectPlain({.drafter = {.draft_model = draft, .tree = {4, 2, 2, 1}}}, draft + ", a governed tree");
  }
}

// Paths of trees are forks whose blocks come and go.
TEST_P(Drafts, WithSpilledKeysAndValuesToo) {
  const DrafterOptions tree{.draft_model = folder(), .tree = {2, 2, 1}, .adaptive = false};
  ExpectPlain({.kv_budget_bytes = 1, .drafter = tree}, "a tree, 1 byte");
  ExpectPlain({.kv_budget_bytes = 1, .drafter = {.ngram = true, .tokens = 4}}, "n-gram, 1 byte");
}

TEST_P(Drafts, AtTheFloorBudgetToo) {
  int64_t floor = 0;
  {
    const Runner runner = Runner::Open(folder(), {.context = kContext});
    ASSERT_TRUE(runner.engine != nullptr);
    floor = runner.engine->plan().floor;
  }
  ExpectPlain({.budget_bytes = floor, .drafter = {.ngram = true, .tokens = 6, .adaptive = false}}, "n-gram");
  ExpectPlain({.budget_bytes = floor, .drafter = {.draft_model = folder(), .tokens = 4, .adaptive = false}}, "model");
}

// A draft model may have a long prompt to catch up with.
TEST(ModelDrafts, EndBetweenLayersWhenTheyAreCancelled) {
  const auto files = ModelFilesImpl::OpenFolder(FolderOf("llama")).value();
  const ModelLayout& layout = files->layout();
  const Weights weights = LoadWeights(layout, files->checkpoint());
  const auto pool = ThreadPool::Create(1).value();
  const auto model = Model::Create(layout, *pool, 64, Numerics::kF32).value();
  const auto kv = KvPool::Create(Model::KvShapes(layout.hparams), kContext).value();
  ModelDrafter drafter({.model = *model,
                        .weights = *weights.source,
                        .kv = *kv,
                        .context = kContext,
                        .target_vocab = files->vocab_size()});
  const std::vector<int32_t> tokens = PromptOf(files->vocab_size(), 45);
  const SamplingOptions sampling;
  const TreeShape shape = TreeShape::Chain(2);
  Draft draft;
  const DraftRequest request{.tokens = tokens, .sampling = &sampling, .shape = &shape, .draft = &draft};
  drafter.Begin(0);
  std::atomic<bool> cancelled = true;
  EXPECT_EQ(drafter.Propose({&request, 1}, cancelled).code(), StatusCode::kCancelled);
  cancelled = false;
  draft.Clear();
  EXPECT_TRUE(drafter.Propose({&request, 1}, cancelled).ok());
  EXPECT_EQ(draft.size(), 2);
}

// Every attention kind, windows shorter than the prompt, experts, rotation that changes on the way (at 64).
std::vector<std::string> Folders() {
#ifdef NUNSPARK_SANITIZED
  return {"qwen3_moe", "phi3_longrope"};  // slow there
#else
  return {"demo-moe-4bit", "llama",     "qwen3_moe",   "gpt_oss",         "mistral_sliding",
          "phi3_longrope", "youtu_llm", "gemma3_text", "gemma4_text_moe", "gemma4_e_mm_4bit"};
#endif
}

INSTANTIATE_TEST_SUITE_P(Models, Drafts, testing::ValuesIn(Folders()), CaseName);

// Checklist item 48.
TEST(DraftFigures, AModelThatDraftsForItselfIsAlwaysRight) {
  const GenerateResult result = RunOnce(
      FolderOf("llama"), {.drafter = {.draft_model = FolderOf("llama"), .tokens = 4, .adaptive = false}}, Greedy(61));
  EXPECT_EQ(result.drafts.passes, 12);
  EXPECT_EQ(result.drafts.accepted, result.drafts.proposed);
  EXPECT_EQ(result.drafts.accepted, 48);
  EXPECT_EQ(result.drafts.off_path, 0);
  EXPECT_EQ(result.drafts.tokens, 61);
}

TEST(DraftFigures, SampledDraftsOfTheSameModelAreAlwaysRightToo) {
  const GenerateResult result =
      RunOnce(FolderOf("llama"), {.drafter = {.draft_model = FolderOf("llama"), .tokens = 4, .adaptive = false}},
              {.max_tokens = 61, .sampling = {.temperature = 1.3, .seed = 9}, .ignore_eos = true});
  EXPECT_EQ(result.drafts.accepted, result.drafts.proposed);
}

// Checklist item 54: nothing is ever accepted, and what was rejected is never seen.
TEST(DraftFigures, ADrafterThatIsNeverRightCostsPassesAndNothingElse) {
  const std::string folder = FolderOf("mistral_sliding");
  const std::vector<int32_t> plain = RunOnce(folder, {}, Greedy(60)).ids;
  const GenerateResult result = RunOnce(
      folder, {.drafter = {.draft_model = FolderOf("gemma4_text_moe"), .tokens = 3, .adaptive = false}}, Greedy(60));
  EXPECT_EQ(result.ids, plain);
  EXPECT_LT(result.drafts.accepted, 12);
  EXPECT_GT(result.drafts.proposed, 120);
}

// Checklist items 51 and 52.
TEST(DraftFigures, OutputsEndInsideABlockAtTheLimitAndAtAnEnd) {
  const std::string folder = FolderOf("llama");
  const EngineOptions drafted{.drafter = {.draft_model = folder, .tokens = 8, .adaptive = false}};
  const std::vector<int32_t> plain = RunOnce(folder, {}, Greedy(40)).ids;
  for (const int32_t tokens : {1, 2, 3, 9, 10, 11, 17}) {
    EXPECT_EQ(RunOnce(folder, drafted, Greedy(tokens)).ids,
              std::vector<int32_t>(plain.begin(), plain.begin() + tokens));
  }
  for (size_t at = 0; at < 14; ++at) {
    GenerateOptions options = Greedy(40);
    options.stop_ids = {plain[at]};
    const size_t end = static_cast<size_t>(std::find(plain.begin(), plain.end(), plain[at]) - plain.begin()) + 1;
    const GenerateResult result = RunOnce(folder, drafted, options);
    EXPECT_EQ(result.ids, std::vector<int32_t>(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(end)));
    EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  }
}

// Checklist item 53.
TEST(DraftFigures, FastModeKeepsWhatIsLikelyEnough) {
  const std::string folder = FolderOf("qwen3_moe");
  const std::vector<int32_t> plain = RunOnce(folder, {}, Greedy(60)).ids;
  const auto run = [&](int32_t accept) {
    return RunOnce(
        folder, {.drafter = {.draft_model = FolderOf("llama"), .tokens = 4, .adaptive = false, .accept_top_k = accept}},
        Greedy(60));
  };
  const GenerateResult lossless = run(1), some = run(40), all = run(100000);
  EXPECT_EQ(lossless.ids, plain);
  EXPECT_EQ(lossless.drafts.off_path, 0);
  EXPECT_NE(all.ids, plain);
  EXPECT_EQ(all.drafts.accepted, all.drafts.proposed);
  EXPECT_EQ(all.drafts.passes, 12);
  EXPECT_GT(all.drafts.off_path, 0);
  EXPECT_GT(some.drafts.accepted, lossless.drafts.accepted);
  EXPECT_LT(some.drafts.accepted, some.drafts.proposed);
  EXPECT_EQ(some.ids.size(), 60u);

  const Runner runner = Runner::Open(
      folder, {.context = 64, .drafter = {.draft_model = FolderOf("llama"), .tokens = 4, .accept_top_k = 2}});
  const Result<GenerateResult> sampled =
      runner.session->Generate(PromptOf(320, 5), Sampled(4), [](int32_t) { return true; });
  EXPECT_EQ(sampled.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(sampled.status().message().find("temperature 0"), std::string::npos);
}

// Checklist items 59 and 60: rounds of the original, from the same two models.
TEST(DraftTrees, GoTheWayOfTheOriginal) {
  const TempFolder temp;
  std::filesystem::copy(FolderOf("llama"), temp.path(), std::filesystem::copy_options::recursive);
  const std::string weights = JoinPath(temp.path(), "model.safetensors");
  std::filesystem::permissions(weights, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  {
    TensorIndex index, head_index;
    ASSERT_TRUE(AddSafetensorsFile(weights, index).ok());
    const std::string head_file = DataPath("drafts/tree/target_head.safetensors");
    ASSERT_TRUE(AddSafetensorsFile(head_file, head_index).ok());
    const TensorInfo* const to = index.Find("lm_head.weight");
    const TensorInfo* const from = head_index.Find("lm_head.weight");
    ASSERT_TRUE(to != nullptr && from != nullptr && to->dtype == from->dtype && to->bytes == from->bytes);
    std::string all = ReadWholeFile(weights).value();
    const std::string head = ReadWholeFile(head_file).value();
    all.replace(static_cast<size_t>(to->offset), static_cast<size_t>(to->bytes), head,
                static_cast<size_t>(from->offset), static_cast<size_t>(from->bytes));
    std::FILE* const file = std::fopen(weights.c_str(), "wb");
    ASSERT_EQ(std::fwrite(all.data(), 1, all.size(), file), all.size());
    std::fclose(file);
  }
  const std::string path = DataPath("drafts/tree/run.json");
  const Json golden = ParseJson(ReadWholeFile(path).value(), path).value();
  const std::vector<int32_t> prompt = ReadI32(JoinPath(FolderOf("llama"), "golden.safetensors"), "prompt");
  for (const Json& run : golden.Find("runs")->as_array()) {
    std::vector<int32_t> branching, tokens;
    for (const Json& children : run.Find("branching")->as_array()) {
      branching.push_back(static_cast<int32_t>(children.as_int()));
    }
    for (const Json& token : run.Find("tokens")->as_array()) tokens.push_back(static_cast<int32_t>(token.as_int()));
    int64_t accepted = 0;
    for (const Json& round : run.Find("rounds")->as_array()) accepted += std::ssize(round.Find("accepted")->as_array());
    const Runner runner = Runner::Open(
        temp.path(), {.context = 128,
                      .kv = KvType::kF32,
                      .numerics = Numerics::kF32,
                      .drafter = {.draft_model = FolderOf("llama"), .tree = branching, .adaptive = false}});
    ASSERT_TRUE(runner.session != nullptr);
    const Result<GenerateResult> result =
        runner.session->Generate(prompt, Greedy(static_cast<int32_t>(tokens.size())), [](int32_t) { return true; });
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->ids, tokens);
    const std::string what = "a tree of " + std::to_string(branching.size()) + " levels";
    // The original's last round may go beyond the end of the output; ours drafts no further than it.
    EXPECT_GE(result->drafts.passes, std::ssize(run.Find("rounds")->as_array())) << what;
    EXPECT_LE(result->drafts.passes, std::ssize(run.Find("rounds")->as_array()) + 2) << what;
    EXPECT_LE(result->drafts.accepted, accepted) << what;
    EXPECT_GE(result->drafts.accepted, accepted - 3) << what;
  }
}

// Checklist item 69: what is computed for a prefix is what a cold run computes, with drafts or without.
class ReusedPrefixes : public testing::TestWithParam<std::string> {};

TEST_P(ReusedPrefixes, LeaveNoTraceInMemoryAndThroughAFile) {
  const std::string folder = FolderOf(GetParam());
  const TempFolder temp;
  EngineOptions options{.context = 512,
                        .context_limit = 512,
                        .reuse_prefixes = true,
                        .prefix_tokens = 1024,
                        .prefix_file = temp.path() + "/kept"};
  options.drafter = {.ngram = true, .tokens = 4, .adaptive = false};
  const Runner cold = Runner::Open(folder, {.context = 512, .context_limit = 512});
  const int64_t vocab = cold.files->vocab_size();
  // Prompts that share their beginnings: the same, longer, shorter, one token off, and one of the answers in it.
  const std::vector<int32_t> all = PromptOf(vocab, 300);
  std::vector<std::vector<int32_t>> prompts;
  for (const ptrdiff_t length : {200, 200, 300, 130, 64, 65, 1})
    prompts.emplace_back(all.begin(), all.begin() + length);
  prompts.push_back(prompts[2]);
  prompts.back()[140] = (prompts.back()[140] + 1) % static_cast<int32_t>(vocab);
  const auto run = [](const Runner& runner, const std::vector<int32_t>& prompt, bool sampled) {
    const Result<GenerateResult> result =
        runner.session->Generate(prompt, sampled ? Sampled(40) : Greedy(40), [](int32_t) { return true; });
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : GenerateResult{};
  };
  std::vector<std::vector<int32_t>> want;
  for (size_t i = 0; i < prompts.size(); ++i) want.push_back(run(cold, prompts[i], i % 2 == 1).ids);
  {
    Runner warm = Runner::Open(folder, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const GenerateResult result = run(warm, prompts[i], i % 2 == 1);
      EXPECT_EQ(result.ids, want[i]) << i;
      EXPECT_EQ(result.cached_tokens % 64, 0);
      EXPECT_LT(result.cached_tokens, std::ssize(prompts[i]));
      // The same again, and one token off.
      if (i == 1 || i == 7) {
        EXPECT_EQ(result.cached_tokens, i == 1 ? 192 : 128);
      }
    }
    // What was said and answered is the beginning of what is said next.
    std::vector<int32_t> conversation = prompts[2];
    const std::vector<int32_t> answer = run(warm, conversation, false).ids;
    conversation.insert(conversation.end(), answer.begin(), answer.end());
    conversation.insert(conversation.end(), all.begin(), all.begin() + 30);
    const GenerateResult next = run(warm, conversation, false);
    EXPECT_EQ(next.cached_tokens, 320);
    EXPECT_EQ(next.ids, run(cold, conversation, false).ids);
    warm.session.reset();
    ASSERT_TRUE(warm.engine->SavePrefixes().ok());
  }
  {
    const Runner restored = Runner::Open(folder, options);
    EXPECT_EQ(restored.engine->prefix_note(), "");
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(run(restored, prompts[i], i % 2 == 1).ids, want[i]) << i;
    EXPECT_GT(restored.engine->stats().prefix_tokens_found, 700);
  }
  {
    EngineOptions spilled_options = options;
    spilled_options.kv_budget_bytes = 1;
    const Runner spilled = Runner::Open(folder, spilled_options);
    EXPECT_EQ(spilled.engine->prefix_note(), "");
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(run(spilled, prompts[i], i % 2 == 1).ids, want[i]) << i;
    EXPECT_GT(spilled.engine->stats().prefix_tokens_found, 700);
    EXPECT_GT(spilled.engine->stats().kv.reloaded_bytes, 0);
    EXPECT_LE(spilled.engine->stats().kv.resident_peak_bytes, spilled.engine->plan().kv);
  }
  {
    // Files that were written anew may hold other weights.
    std::filesystem::copy(folder, temp.path() + "/model");
    const Runner copied = Runner::Open(temp.path() + "/model", options);
    EXPECT_NE(copied.engine->prefix_note(), "");
  }
  // Of other numerics it is not used.
  options.numerics = Numerics::kI8;
  options.kv = KvType::kF32;
  const Runner other = Runner::Open(folder, options);
  EXPECT_NE(other.engine->prefix_note(), "");
  EXPECT_EQ(run(other, prompts[0], false).cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ReusedPrefixes,
                         testing::Values("qwen3_moe", "mistral_sliding", "youtu_llm", "gemma3_text"));

TEST(PrefixRotations, ThatChangeAreKeptApart) {
  const std::string folder = FolderOf("phi3_longrope");  // changes at 64
  const Runner cold = Runner::Open(folder, {.context = 128});
  const Runner warm = Runner::Open(folder, {.context = 128, .reuse_prefixes = true, .prefix_tokens = 512});
  const std::vector<int32_t> all = PromptOf(cold.files->vocab_size(), 100);
  for (const ptrdiff_t length : {40, 64, 100, 64, 90, 65, 64}) {
    const std::vector<int32_t> prompt(all.begin(), all.begin() + length);
    const auto run = [&](const Runner& runner) {
      return runner.session->Generate(prompt, Greedy(20), [](int32_t) { return true; }).value().ids;
    };
    EXPECT_EQ(run(warm), run(cold)) << length;
  }
  EXPECT_GT(warm.engine->stats().prefix_tokens_found, 0);
}

TEST(DraftErrors, AreToldBeforeAnythingRuns) {
  const auto refuse = [](const DrafterOptions& drafter, const std::string& part) {
    const std::unique_ptr<ModelFiles> files = ModelFiles::Open(FolderOf("llama")).value();
    const Result<std::unique_ptr<Engine>> engine = Engine::Start(*files, {.context = 64, .drafter = drafter});
    ASSERT_FALSE(engine.ok()) << part;
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().message();
  };
  refuse({.ngram = true, .ngram_longest = 0}, "--ngram-max must be at least 1");
  refuse({.ngram = true, .tokens = 0}, "--num-draft-tokens must be from 1 to");
  refuse({.ngram = true, .tree = {2, 2}}, "--tree does not go with --ngram-draft");
  refuse({.draft_model = FolderOf("llama"), .tree = {2, 0}}, "found 0");
  refuse({.tree = {2}}, "--tree needs a drafter");
  refuse({.draft_model = FolderOf("llama"), .accept_top_k = 0}, "--accept-top-k must be at least 1");
  refuse({.draft_model = ModelPath("demo-moe-4bit")}, "there are no tokenizers to compare");
  refuse({.draft_model = DataPath("no-such-folder")}, "--draft-model");
}

}  // namespace
}  // namespace nunspark::test
