// Sequences decoded together: each gets the very tokens that it gets alone, whatever it shares its steps with.

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

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

// Files, engine and group session.
struct Group {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GroupSession> session;

  static Group Open(const std::string& folder, EngineOptions options) {
    options.context = kContext;
    Group group;
    group.files = ModelFiles::Open(folder).value();
    Result<std::unique_ptr<Engine>> engine = Engine::Start(*group.files, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return group;
    group.engine = std::move(engine).value();
    group.session = group.engine->NewGroupSession().value();
    return group;
  }
};

void ExpectSameAsAlone(const std::string& folder, EngineOptions options, int count,
                       const std::vector<GenerateResult>& alone, const std::string& what) {
  options.max_sequences = std::max(options.max_sequences, count);
  const Group group = Group::Open(folder, options);
  ASSERT_TRUE(group.session != nullptr) << what;
  std::vector<std::vector<int32_t>> streamed(static_cast<size_t>(count));
  const Result<std::vector<GenerateResult>> together =
      group.session->Generate(RequestsOf(count, group.files->vocab_size()), [&](int32_t index, int32_t token) {
        streamed[static_cast<size_t>(index)].push_back(token);
        return true;
      });
  ASSERT_TRUE(together.ok()) << what << ": " << together.status().message();
  ASSERT_EQ(together->size(), static_cast<size_t>(count)) << what;
  for (size_t i = 0; i < together->size(); ++i) {
    const GenerateResult& found = (*together)[i];
    EXPECT_EQ(found.ids, alone[i].ids) << what << ", sequence " << i;
    EXPECT_EQ(found.finish_reason, alone[i].finish_reason) << what << ", sequence " << i;
    EXPECT_EQ(found.prompt_tokens, alone[i].prompt_tokens) << what << ", sequence " << i;
    EXPECT_EQ(streamed[i], found.ids) << what << ", sequence " << i;
  }
  EXPECT_LE(group.engine->stats().kv_peak_bytes, group.engine->plan().kv) << what;
}

class Groups : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const {
    return GetParam().starts_with("demo") ? ModelPath(GetParam()) : DataPath("goldens/" + GetParam());
  }
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

INSTANTIATE_TEST_SUITE_P(Models, Groups, testing::ValuesIn(Folders()),
                         [](const testing::TestParamInfo<std::string>& folder) {
                           std::string name = folder.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class GroupCalls : public testing::Test {
 protected:
  std::string folder_ = DataPath("goldens/qwen3_moe");
  Group group_ = Group::Open(folder_, {.max_sequences = 4});
  std::vector<SequenceRequest> requests_ = RequestsOf(4, group_.files->vocab_size());
  std::vector<GenerateResult> alone_ = RunAlone(folder_, 4);

  std::vector<GenerateResult> Run(const GroupTokenCallback& on_token = [](int32_t, int32_t) { return true; }) {
    Result<std::vector<GenerateResult>> results = group_.session->Generate(requests_, on_token);
    EXPECT_TRUE(results.ok()) << results.status().message();
    return results.ok() ? std::move(results).value() : std::vector<GenerateResult>(requests_.size());
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

TEST_F(GroupCalls, ARefusingCallbackEndsItsSequenceAlone) {
  int seen = 0;
  const std::vector<GenerateResult> results = Run([&](int32_t index, int32_t) { return index != 1 || ++seen < 3; });
  ExpectCutOff(results[1], 1, 3);
  for (const size_t i : {0u, 2u, 3u}) ExpectAlone(results[i], i);
}

TEST_F(GroupCalls, CancelOneEndsOneAndCancelEndsAllOfOneCall) {
  int seen = 0;
  std::vector<GenerateResult> results = Run([&](int32_t index, int32_t) {
    if (index == 2 && ++seen == 2) std::thread([&] { group_.session->CancelOne(2); }).join();
    return true;
  });
  ExpectCutOff(results[2], 2, 2);
  for (const size_t i : {0u, 1u, 3u}) ExpectAlone(results[i], i);

  // All have their first token when the last of them has it, with prompts this short.
  seen = 0;
  results = Run([&](int32_t index, int32_t) {
    if (index == 3 && ++seen == 2) group_.session->Cancel();
    return true;
  });
  for (size_t i = 0; i < 4; ++i) ExpectCutOff(results[i], i, 2);

  // Beforehand: for the next call, and no further.
  group_.session->CancelOne(0);
  results = Run();
  ExpectCutOff(results[0], 0, 0);
  for (const size_t i : {1u, 2u, 3u}) ExpectAlone(results[i], i);
  group_.session->Cancel();
  for (const GenerateResult& result : Run()) EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  results = Run();
  for (size_t i = 0; i < 4; ++i) ExpectAlone(results[i], i);
}

TEST_F(GroupCalls, BadRequestsAreRefusedByTheirIndexBeforeAnythingRuns) {
  const std::vector<SequenceRequest> good = requests_;
  const auto refuse = [&](StatusCode code, const std::string& part) {
    const Result<std::vector<GenerateResult>> refused = group_.session->Generate(requests_, [](int32_t, int32_t) {
      ADD_FAILURE() << "something ran";
      return true;
    });
    ASSERT_FALSE(refused.ok()) << part;
    EXPECT_EQ(refused.status().code(), code) << part;
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().message();
    requests_ = good;
  };
  requests_[2].prompt.clear();
  refuse(StatusCode::kInvalidArgument, "request 2: the prompt is empty");
  requests_[3].prompt.back() = 320;
  refuse(StatusCode::kInvalidArgument, "request 3: token id 320");
  requests_[1].options.max_tokens = 0;
  refuse(StatusCode::kInvalidArgument, "request 1: max-tokens");
  requests_[0].options.sampling.top_p = 2;
  refuse(StatusCode::kInvalidArgument, "request 0: top-p");
  requests_[1].options.max_tokens = 1000;
  refuse(StatusCode::kInvalidArgument,
         "request 1: 61 prompt tokens and 1000 to generate do not fit the context of 128");
  requests_.push_back(good[0]);
  refuse(StatusCode::kResourceExhausted, "5 sequences asked, 4 planned");

  const std::vector<GenerateResult> results = Run();
  for (size_t i = 0; i < 4; ++i) ExpectAlone(results[i], i);
  requests_.clear();
  EXPECT_TRUE(Run().empty());
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
  EXPECT_EQ(group_.engine->stats().kv_peak_bytes, group_.engine->plan().kv);

  // One session at a time, of either kind.
  EXPECT_EQ(group_.engine->NewSession().status().code(), StatusCode::kResourceExhausted);
  group_.session.reset();
  EXPECT_TRUE(group_.engine->NewSession().ok());
}

}  // namespace
}  // namespace nunspark::test
