// The gates over thousands of tokens: past every window, many blocks deep, over several rotations of what gives blocks
// back. Slow by nature.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "integration/program.h"
#include "integration/support.h"

namespace nunspark::test {
namespace {

constexpr int32_t kTokens = 2000;
constexpr int64_t kContext = 4096;

// Repeats itself, so that prompt lookup has something to propose.
std::vector<int32_t> PromptOf(int64_t vocab_size, int i) {
  std::vector<int32_t> prompt;
  for (int t = 0; t < 40 + 25 * i; ++t) {
    prompt.push_back(static_cast<int32_t>((t % 11 * 7919 + t / 40 * 31 + i * 104729 + 13) % vocab_size));
  }
  return prompt;
}

GenerateOptions OptionsOf(int i) {
  GenerateOptions options{.max_tokens = kTokens, .sampling = {}, .ignore_eos = true};
  if (i % 2 == 1) options.sampling = {.temperature = 0.9, .top_k = 50, .top_p = 0.95, .seed = 5};
  return options;
}

class SlowLongGates : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return DataPath("goldens/" + GetParam()); }

  std::vector<int32_t> Run(EngineOptions options, int i) const {
    options.context = options.context_limit = kContext;
    const Runner runner = Runner::Open(folder(), options);
    if (runner.session == nullptr) return {};
    const Result<GenerateResult> result =
        runner.session->Generate(PromptOf(runner.files->vocab_size(), i), OptionsOf(i), [](int32_t) { return true; });
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? result->ids : std::vector<int32_t>();
  }
};

TEST_P(SlowLongGates, HoldForTwoThousandTokens) {
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 4; ++i) {
    alone.push_back(Run({}, i));
    ASSERT_EQ(alone.back().size(), static_cast<size_t>(kTokens));
  }
  for (int i = 0; i < 2; ++i) {
    const auto& plain = alone[static_cast<size_t>(i)];
    EXPECT_EQ(Run({.kv_budget_bytes = 1}, i), plain) << "1 byte of keys and values in memory, request " << i;
    EXPECT_EQ(Run({.prefill_chunk = 3, .threads = 1, .io = IoChoice::kPread}, i), plain)
        << "chunks of 3, request " << i;
    EngineOptions drafting;
    drafting.drafter.ngram = true;
    drafting.drafter.tokens = 8;
    drafting.drafter.adaptive = false;
    EXPECT_EQ(Run(drafting, i), plain) << "prompt lookup, request " << i;
  }
}

// Requests that join one after the other while earlier ones are decoded, and leave at different times.
TEST_P(SlowLongGates, HoldForSequencesThatJoinOnTheWay) {
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder()).value();
  std::vector<std::vector<int32_t>> alone, together(4);
  for (int i = 0; i < 4; ++i) alone.push_back(Run({}, i));
  EngineOptions options;
  options.context = options.context_limit = kContext;
  options.max_sequences = 3;
  options.reuse_prefixes = true;
  options.prefix_tokens = 1024;
  const std::unique_ptr<Engine> engine = Engine::Start(*files, options).value();
  const std::unique_ptr<Scheduler> scheduler = engine->NewScheduler({}).value();
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  std::function<void(int)> submit;
  submit = [&](int i) {
    int count = 0;
    const Result<uint64_t> id = scheduler->Submit({.prompt = PromptOf(files->vocab_size(), i), .options = OptionsOf(i)},
                                                  {.on_token =
                                                       [&submit, i, count](const GeneratedToken&) mutable {
                                                         if (++count == 300 && i < 3) submit(i + 1);
                                                         return true;
                                                       },
                                                   .on_end =
                                                       [&, i](Result<GenerateResult> result) {
                                                         EXPECT_TRUE(result.ok()) << result.status().message();
                                                         const std::lock_guard lock(mutex);
                                                         if (result.ok())
                                                           together[static_cast<size_t>(i)] = result->ids;
                                                         ++ended;
                                                         changed.notify_all();
                                                       }});
    EXPECT_TRUE(id.ok()) << id.status().message();
  };
  submit(0);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == 4; });
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i;
}

TEST_P(SlowLongGates, HoldOnEveryInstructionSet) {
  const std::string run = "generate " + folder() +
                          " --prompt-ids 5,9,2,5,9,2,5 --ignore-eos --context 4096 --max-tokens " +
                          std::to_string(kTokens) + " --json";
  const Json best = JsonOf(Nunspark(run));
  const Json scalar = JsonOf(Nunspark(run, "NUNSPARK_ISA=scalar "));
  ASSERT_EQ(MemberOf(best, {"ids"}).as_array().size(), static_cast<size_t>(kTokens));
  EXPECT_TRUE(MemberOf(best, {"ids"}) == MemberOf(scalar, {"ids"}));
}

// One of each kind of attention: full, sinks and windows, global and local layers, shared keys, latent, longrope,
// experts.
INSTANTIATE_TEST_SUITE_P(Attention, SlowLongGates,
                         testing::Values("llama", "gpt_oss", "gemma3_text", "gemma4_text", "mistral_sliding",
                                         "youtu_llm", "phi3_longrope", "qwen3_moe"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace nunspark::test
