// Sequences decoded together: each gets the very tokens that it gets alone, whatever it shares its steps with.

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "base/eventually_testing.h"
#include "base/sanitized_testing.h"
#include "integration/support.h"

namespace nunspark::test {
namespace {

constexpr int64_t kContext = 128;

// Prompts, lengths and samplers that differ from each other; request `i` is the same whatever is asked beside it. The
// longest begin below the length at which longrope changes its frequencies in the golden (64) and end above it.
SequenceRequest RequestOf(int i, int64_t vocab_size) {
  const int lengths[] = {5, 61, 1, 90, 17, 64, 33, 2};
  SequenceRequest request;
  for (int t = 0; t < lengths[i % 8]; ++t) {
    request.prompt.push_back(static_cast<int32_t>((t * 7919 + i * 104729 + 13) % vocab_size));
  }
  request.options.max_tokens = 4 + (i * 5) % 17;
  request.options.ignore_eos = i % 4 != 3;
  if (i % 3 != 0) {
    request.options.sampling = {.temperature = 0.5 + 0.25 * i,
                                .top_k = i % 2 == 0 ? 40 : 0,
                                .top_p = i % 4 == 1 ? 0.9 : 1,
                                .min_p = i % 5 == 4 ? 0.02 : 0,
                                .seed = static_cast<uint64_t>(i) * 77};
  }
  return request;
}

std::vector<SequenceRequest> RequestsOf(int count, int64_t vocab_size) {
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(RequestOf(i, vocab_size));
  return requests;
}

std::vector<GenerateResult> RunAlone(const std::string& folder, int count) {
  const Runner runner = Runner::Open(folder, {.context = kContext});
  std::vector<GenerateResult> results;
  for (const SequenceRequest& request : RequestsOf(count, runner.files->vocab_size())) {
    Result<GenerateResult> result =
        runner.session->Generate(request.prompt, request.options, [](int32_t) { return true; });
    EXPECT_TRUE(result.ok()) << result.status().message();
    results.push_back(std::move(result).value());
  }
  return results;
}

// Files, engine and scheduler.
struct Group {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Scheduler> scheduler;

  static Group Open(const std::string& folder, EngineOptions options, const SchedulerOptions& scheduling = {}) {
    options.context = kContext;
    Group group;
    group.files = ModelFiles::Open(folder).value();
    Result<std::unique_ptr<Engine>> engine = Engine::Start(*group.files, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return group;
    group.engine = std::move(engine).value();
    group.scheduler = group.engine->NewScheduler(scheduling).value();
    return group;
  }
};

using IndexedTokenCallback = std::function<bool(int32_t index, int32_t token)>;

// Submits all and waits for all.
std::vector<GenerateResult> RunTogether(Scheduler& scheduler, const std::vector<SequenceRequest>& requests,
                                        const IndexedTokenCallback& on_token, std::vector<uint64_t>* ids = nullptr) {
  std::vector<GenerateResult> results(requests.size());
  std::latch left(std::ssize(requests));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Result<uint64_t> id = scheduler.Submit(
        requests[i],
        {.on_token = [&, i](const GeneratedToken& token) { return on_token(static_cast<int32_t>(i), token.token); },
         .on_end =
             [&, i](Result<GenerateResult> result) {
               EXPECT_TRUE(result.ok()) << i << ": " << result.status().message();
               if (result.ok()) results[i] = std::move(result).value();
               left.count_down();
             }});
    EXPECT_TRUE(id.ok()) << id.status().message();
    if (!id.ok()) left.count_down();
    if (ids != nullptr && id.ok()) ids->push_back(*id);
  }
  left.wait();
  return results;
}

void ExpectSameAsAlone(const std::string& folder, EngineOptions options, int count,
                       const std::vector<GenerateResult>& alone, const std::string& what) {
  options.max_sequences = std::max(options.max_sequences, count);
  const Group group = Group::Open(folder, options);
  ASSERT_TRUE(group.scheduler != nullptr) << what;
  std::vector<std::vector<int32_t>> streamed(static_cast<size_t>(count));
  const std::vector<GenerateResult> together =
      RunTogether(*group.scheduler, RequestsOf(count, group.files->vocab_size()), [&](int32_t index, int32_t token) {
        streamed[static_cast<size_t>(index)].push_back(token);
        return true;
      });
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i].ids, alone[i].ids) << what << ", sequence " << i;
    EXPECT_EQ(together[i].finish_reason, alone[i].finish_reason) << what << ", sequence " << i;
    EXPECT_EQ(together[i].prompt_tokens, alone[i].prompt_tokens) << what << ", sequence " << i;
    EXPECT_EQ(streamed[i], together[i].ids) << what << ", sequence " << i;
  }
  EXPECT_LE(group.scheduler->engine_stats().kv.resident_peak_bytes, group.engine->plan().kv) << what;
}

class Groups : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return FolderOf(GetParam()); }
};

TEST_P(Groups, EachSequenceGetsWhatItGetsAlone) {
  const std::vector<GenerateResult> alone = RunAlone(folder(), 8);
  // The requests are not alike, so that one sequence in another's place would be seen.
  for (size_t i = 1; i < alone.size(); ++i) EXPECT_NE(alone[i].ids, alone[0].ids);
  for (const int count : {1, 2, 5, 8}) {
    ExpectSameAsAlone(folder(), {}, count, alone, std::to_string(count) + " sequences");
  }
  ExpectSameAsAlone(folder(), {.max_sequences = 11, .threads = 3}, 8, alone, "3 threads, room to spare");
  // Prompts that are still read while others are decoded, down to one row a step beside the others' rows.
  for (const int32_t chunk : {1, 7, 64}) {
    ExpectSameAsAlone(folder(), {.prefill_chunk = chunk}, 8, alone, "chunk " + std::to_string(chunk));
  }
}

TEST_P(Groups, WithSpilledKeysAndValuesToo) {
  const std::vector<GenerateResult> alone = RunAlone(folder(), 5);
  ExpectSameAsAlone(folder(), {.kv_budget_bytes = 1}, 5, alone, "1 byte");
  ExpectSameAsAlone(folder(), {.prefill_chunk = 16, .kv_budget_bytes = 100'000}, 5, alone, "100 kB, chunks of 16");
}

TEST_P(Groups, AtTheFloorBudgetToo) {
  int64_t floor = 0;
  {
    const Group group = Group::Open(folder(), {.max_sequences = 5});
    ASSERT_TRUE(group.engine != nullptr);
    floor = group.engine->plan().floor;
  }
  ExpectSameAsAlone(folder(), {.budget_bytes = floor}, 5, RunAlone(folder(), 5), "floor");
}

// Both attention kinds, windows, experts of both routers, rotation that changes with the length, per-layer inputs.
std::vector<std::string> Folders() {
#ifdef NUNSPARK_SANITIZED
  return {"qwen3_moe", "phi3_longrope", "youtu_llm"};  // slow there
#else
  return {"demo-moe-4bit", "qwen3_moe", "gpt_oss",         "mistral_sliding",
          "phi3_longrope", "youtu_llm", "gemma4_text_moe", "gemma4_e_mm_4bit"};
#endif
}

INSTANTIATE_TEST_SUITE_P(Models, Groups, testing::ValuesIn(Folders()), CaseName);

class GroupCalls : public testing::Test {
 protected:
  std::string folder_ = DataPath("goldens/qwen3_moe");
  Group group_ = Group::Open(folder_, {.max_sequences = 4});
  std::vector<SequenceRequest> requests_ = RequestsOf(4, group_.files->vocab_size());
  std::vector<GenerateResult> alone_ = RunAlone(folder_, 4);

  std::vector<GenerateResult> Run(const IndexedTokenCallback& on_token = [](int32_t, int32_t) { return true; }) {
    return RunTogether(*group_.scheduler, requests_, on_token);
  }

  void ExpectAlone(const GenerateResult& found, size_t i) {
    EXPECT_EQ(found.ids, alone_[i].ids) << i;
    EXPECT_EQ(found.finish_reason, alone_[i].finish_reason) << i;
  }
  void ExpectCutOff(const GenerateResult& found, size_t i, int64_t kept) {
    EXPECT_EQ(found.finish_reason, FinishReason::kCancelled) << i;
    EXPECT_EQ(found.ids, std::vector<int32_t>(alone_[i].ids.begin(), alone_[i].ids.begin() + kept)) << i;
  }
};

TEST_F(GroupCalls, ARefusingCallbackEndsItsRequestAlone) {
  int seen = 0;
  const std::vector<GenerateResult> results = Run([&](int32_t index, int32_t) { return index != 1 || ++seen < 3; });
  ExpectCutOff(results[1], 1, 3);
  for (const size_t i : {0u, 2u, 3u}) ExpectAlone(results[i], i);
}

TEST_F(GroupCalls, CancelEndsOneRequestWhetherItRunsOrWaits) {
  std::vector<uint64_t> ids;
  int seen = 0;
  std::vector<GenerateResult> results = RunTogether(
      *group_.scheduler, requests_,
      [&](int32_t index, int32_t) {
        // Ids follow each other from 1.
        if (index == 2 && ++seen == 2) group_.scheduler->Cancel(3);
        return true;
      },
      &ids);
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 3, 4}));
  ExpectCutOff(results[2], 2, 2);
  for (const size_t i : {0u, 1u, 3u}) ExpectAlone(results[i], i);

  // More than run together: the sixth waits while the first is read.
  requests_ = RequestsOf(8, group_.files->vocab_size());
  alone_ = RunAlone(folder_, 8);
  bool cancelled = false;
  results = Run([&](int32_t, int32_t) {
    if (std::exchange(cancelled, true)) return true;
    const auto known = [&] { return group_.scheduler->stats().running + group_.scheduler->stats().waiting; };
    EXPECT_TRUE(Eventually([&] { return known() >= 8; }));
    group_.scheduler->Cancel(4 + 8);
    return true;
  });
  EXPECT_EQ(results[7].finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(results[7].ids.empty());
  for (size_t i = 0; i < 7; ++i) ExpectAlone(results[i], i);
  group_.scheduler->Cancel(1);  // ended long ago
  group_.scheduler->Cancel(12345);
}

TEST_F(GroupCalls, ClosingEndsWhatRunsAndWhatWaits) {
  std::vector<FinishReason> reasons(6);
  std::latch begun(1);
  std::atomic<int> ended = 0;
  for (size_t i = 0; i < reasons.size(); ++i) {
    SequenceRequest request = requests_[0];
    request.options = {.max_tokens = 100, .sampling = {}, .ignore_eos = true};
    ASSERT_TRUE(group_.scheduler
                    ->Submit(request, {.on_token =
                                           [&, i, first = true](const GeneratedToken&) mutable {
                                             if (i == 0 && std::exchange(first, false)) begun.count_down();
                                             return true;
                                           },
                                       .on_end =
                                           [&, i](Result<GenerateResult> result) {
                                             reasons[i] = result.value().finish_reason;
                                             ++ended;
                                           }})
                    .ok());
  }
  begun.wait();
  group_.scheduler.reset();
  EXPECT_EQ(ended, 6);
  EXPECT_EQ(reasons[5], FinishReason::kCancelled);
  EXPECT_TRUE(group_.engine->NewSession().ok());
}

TEST_F(GroupCalls, BadRequestsAreRefusedAtOnce) {
  const std::vector<SequenceRequest> good = requests_;
  const auto refuse = [&](const std::string& part) {
    const Result<uint64_t> refused = group_.scheduler->Submit(
        requests_[1], {.on_end = [](Result<GenerateResult>) { ADD_FAILURE() << "something ran"; }});
    ASSERT_FALSE(refused.ok()) << part;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().message();
    requests_ = good;
  };
  requests_[1].prompt.clear();
  refuse("the prompt is empty");
  requests_[1].prompt.back() = 320;
  refuse("token id 320");
  requests_[1].options.max_tokens = 0;
  refuse("max-tokens");
  requests_[1].options.sampling.top_p = 2;
  refuse("top-p");
  requests_[1].options.max_tokens = 1000;
  refuse("61 prompt tokens and 1000 to generate do not fit the context of 128");

  const std::vector<GenerateResult> results = Run();
  for (size_t i = 0; i < 4; ++i) ExpectAlone(results[i], i);
}

TEST_F(GroupCalls, AFullQueueRefuses) {
  const Group group = Group::Open(folder_, {.max_sequences = 1}, {.queue = 2});
  std::latch begun(1), go_on(1);
  std::latch ended(3);
  const auto end = [&](Result<GenerateResult>) { ended.count_down(); };
  ASSERT_TRUE(group.scheduler
                  ->Submit(requests_[0], {.on_token =
                                              [&, first = true](const GeneratedToken&) mutable {
                                                if (!std::exchange(first, false)) return true;
                                                begun.count_down();
                                                go_on.wait();
                                                return true;
                                              },
                                          .on_end = end})
                  .ok());
  begun.wait();
  EXPECT_TRUE(group.scheduler->Submit(requests_[1], {.on_end = end}).ok());
  EXPECT_TRUE(group.scheduler->Submit(requests_[2], {.on_end = end}).ok());
  EXPECT_EQ(group.scheduler->stats().running, 1);
  EXPECT_EQ(group.scheduler->stats().waiting, 2);
  const Result<uint64_t> refused = group.scheduler->Submit(requests_[3], {.on_end = end});
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("2 requests wait already"), std::string::npos);
  go_on.count_down();
  ended.wait();
}

TEST_F(GroupCalls, KeysAndValuesOfAllSequencesAreInThePlan) {
  const Group one = Group::Open(folder_, {.max_sequences = 1});
  EXPECT_EQ(group_.engine->plan().kv, 4 * one.engine->plan().kv);
  // Every sequence as long as the context allows, at once.
  for (SequenceRequest& request : requests_) {
    request.prompt.assign(kContext - 1, 7);
    request.options = {.max_tokens = 2, .sampling = {}, .ignore_eos = true};
  }
  for (const GenerateResult& result : Run()) EXPECT_EQ(result.ids.size(), 2u);
  EXPECT_LE(group_.scheduler->engine_stats().kv.resident_peak_bytes, group_.engine->plan().kv);

  // One of either kind at a time.
  EXPECT_EQ(group_.engine->NewSession().status().code(), StatusCode::kResourceExhausted);
  group_.scheduler.reset();
  EXPECT_TRUE(group_.engine->NewSession().ok());
}

TEST_F(GroupCalls, SequencesWaitUntilThereIsRoomForTheirTokens) {
  // Room for two of 61 + 60 tokens.
  const Group group = Group::Open(folder_, {.max_sequences = 4, .kv_tokens = 256});
  const Group all = Group::Open(folder_, {.max_sequences = 4});
  EXPECT_EQ(2 * group.engine->plan().kv, all.engine->plan().kv);
  std::vector<SequenceRequest> requests(6, RequestOf(1, group.files->vocab_size()));
  for (SequenceRequest& request : requests) request.options.max_tokens = 60;
  int64_t most = 0;
  const std::vector<GenerateResult> results = RunTogether(*group.scheduler, requests, [&](int32_t, int32_t) {
    most = std::max(most, group.scheduler->stats().running);
    return true;
  });
  for (const GenerateResult& result : results) EXPECT_EQ(result.ids, results[0].ids);
  EXPECT_EQ(most, 2);
}

}  // namespace
}  // namespace nunspark::test
