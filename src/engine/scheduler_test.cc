#include "nunspark/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized_testing.h"
#include "nunspark/engine.h"

namespace nunspark {
namespace {

#ifdef NUNSPARK_SANITIZED
constexpr int kRequestsPerThread = 40;
#else
constexpr int kRequestsPerThread = 400;
#endif
constexpr int kThreads = 4;

SequenceRequest RequestOf(int kind) {
  SequenceRequest request;
  for (int i = 0; i < 3 + kind * 9; ++i) request.prompt.push_back((i * 31 + kind * 7) % 320);
  request.options = {.max_tokens = 2 + kind * 3, .sampling = {}, .ignore_eos = true};
  if (kind % 2 == 1) request.options.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(kind)};
  return request;
}

TEST(Scheduler, TakesRequestsAndCancelsFromManyThreadsAndEndsEachOnce) {
  const std::string folder = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/qwen3_moe";
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
  std::vector<std::vector<int32_t>> alone;
  {
    const std::unique_ptr<Engine> engine = Engine::Start(*files, {.context = 96}).value();
    const std::unique_ptr<Session> session = engine->NewSession().value();
    for (int kind = 0; kind < 8; ++kind) {
      const SequenceRequest request = RequestOf(kind);
      alone.push_back(session->Generate(request.prompt, request.options, [](int32_t) { return true; })->ids);
    }
  }
  const std::unique_ptr<Engine> engine = Engine::Start(*files, {.context = 96,
                                                                .max_sequences = 6,
                                                                .kv_tokens = 384,
                                                                .reuse_prefixes = true,
                                                                .threads = 2,
                                                                .drafter = {.ngram = true, .tokens = 4}})
                                             .value();
  std::unique_ptr<Scheduler> scheduler = engine->NewScheduler({.step_target_s = 0.001}).value();
  std::atomic<int> ended = 0, whole = 0, wrong = 0;
  std::latch left(kThreads * kRequestsPerThread);
  std::vector<std::thread> clients;
  for (int client = 0; client < kThreads; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = 0; i < kRequestsPerThread; ++i) {
        const int kind = static_cast<int>(random() % 8);
        const bool refuses = random() % 5 == 0;
        const Result<uint64_t> id = scheduler->Submit(
            RequestOf(kind), {.on_token = [refuses](const GeneratedToken&) { return !refuses; },
                              .on_prompt = {},
                              .on_end =
                                  [&, kind](Result<GenerateResult> result) {
                                    ++ended;
                                    const std::vector<int32_t>& want = alone[static_cast<size_t>(kind)];
                                    const bool cut = !result.ok() || result->finish_reason == FinishReason::kCancelled;
                                    if (!cut) ++whole;
                                    if (!cut && result->ids != want) ++wrong;
                                    left.count_down();
                                  }});
        if (!id.ok()) ADD_FAILURE() << id.status().message();
        if (random() % 4 == 0) scheduler->Cancel(*id);
        if (random() % 8 == 0) (void)scheduler->stats();
        if (random() % 16 == 0) (void)scheduler->engine_stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  left.wait();
  EXPECT_EQ(ended, kThreads * kRequestsPerThread);
  EXPECT_GT(whole, kRequestsPerThread);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(scheduler->stats().waiting, 0);
  scheduler.reset();
  EXPECT_TRUE(engine->NewSession().ok());
}

TEST(Scheduler, RequestsThatFillTheContextToTheLastPositionRunTogether) {
  const std::string folder = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/qwen3_moe";
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
  const std::unique_ptr<Engine> engine = Engine::Start(*files, {.context = 64, .max_sequences = 2}).value();
  const std::unique_ptr<Scheduler> scheduler = engine->NewScheduler({}).value();
  const SequenceRequest request{.prompt = std::vector<int32_t>(33, 7),
                                .options = {.max_tokens = 32, .sampling = {}, .ignore_eos = true}};
  std::string order;  // of the scheduler's thread, until both have ended
  std::latch left(2);
  const auto submit = [&](char name, const std::function<void()>& then) {
    const Result<uint64_t> id =
        scheduler->Submit(request, {.on_token =
                                        [&order, name, then, first = true](const GeneratedToken&) mutable {
                                          if (std::exchange(first, false)) {
                                            order += name;
                                            then();
                                          }
                                          return true;
                                        },
                                    .on_prompt = {},
                                    .on_end =
                                        [&, name](Result<GenerateResult> result) {
                                          EXPECT_TRUE(result.ok());
                                          order += static_cast<char>(name - 'a' + 'A');
                                          left.count_down();
                                        }});
    EXPECT_TRUE(id.ok());
  };
  submit('a', [&] { submit('b', [] {}); });
  left.wait();
  EXPECT_EQ(order, "abAB") << "the second begins before the first has ended";
}

TEST(Scheduler, EndsARequestThatWaitsTooLong) {
  const std::string folder = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/qwen3_moe";
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
  const std::unique_ptr<Engine> engine = Engine::Start(*files, {.context = 96}).value();
  const std::unique_ptr<Scheduler> scheduler = engine->NewScheduler({}).value();
  std::vector<int> ended;  // of the scheduler's thread
  std::latch left(3);
  const auto submit = [&](int number, std::function<void()> on_token, Scheduler::TimePoint start_by) {
    const Result<uint64_t> id = scheduler->Submit(RequestOf(7),
                                                  {.on_token =
                                                       [on_token = std::move(on_token)](const GeneratedToken&) {
                                                         if (on_token) on_token();
                                                         return true;
                                                       },
                                                   .on_prompt = {},
                                                   .on_end =
                                                       [&, number](const Result<GenerateResult>& result) {
                                                         const bool cut =
                                                             result->finish_reason == FinishReason::kCancelled;
                                                         EXPECT_EQ(cut, number == 2);
                                                         ended.push_back(number);
                                                         left.count_down();
                                                       }},
                                                  Urgency::kNormal, start_by);
    EXPECT_TRUE(id.ok());
  };
  bool first = true;
  submit(
      1,
      [&] {
        if (!std::exchange(first, false)) return;
        submit(2, {}, std::chrono::steady_clock::now());
        submit(3, {}, std::chrono::steady_clock::now() + std::chrono::hours(1));
      },
      Scheduler::TimePoint::max());
  left.wait();
  EXPECT_EQ(ended, (std::vector<int>{2, 1, 3}));
}

TEST(Scheduler, RunsBackgroundRequestsWhenNoOtherWaits) {
  const std::string folder = std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/qwen3_moe";
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
  const std::unique_ptr<Engine> engine = Engine::Start(*files, {.context = 96, .max_sequences = 1}).value();
  const std::unique_ptr<Scheduler> scheduler = engine->NewScheduler({.queue = 3}).value();
  std::string order;  // of the scheduler's thread, until all have ended
  std::latch begun(1), queued(1), left(6);
  const auto submit = [&](char name, Urgency urgency) {
    return scheduler
        ->Submit(RequestOf(2),
                 {.on_token =
                      [&, name, first = true](const GeneratedToken&) mutable {
                        if (!std::exchange(first, false)) return true;
                        order += name;
                        // The first request holds the only place until all others wait.
                        if (name != 'a') return true;
                        begun.count_down();
                        queued.wait();
                        return true;
                      },
                  .on_prompt = {},
                  .on_end =
                      [&](Result<GenerateResult> result) {
                        EXPECT_TRUE(result.ok());
                        left.count_down();
                      }},
                 urgency)
        .status();
  };
  ASSERT_TRUE(submit('a', Urgency::kBackground).ok());
  begun.wait();
  EXPECT_EQ(scheduler->stats().background_running, 1);
  for (const char name : {'x', 'y', 'z'}) EXPECT_TRUE(submit(name, Urgency::kBackground).ok());
  for (const char name : {'b', 'c'}) EXPECT_TRUE(submit(name, Urgency::kNormal).ok());
  EXPECT_EQ(submit('!', Urgency::kBackground).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(scheduler->stats().waiting, 2);
  EXPECT_EQ(scheduler->stats().background_waiting, 3);
  queued.count_down();
  left.wait();
  EXPECT_EQ(order, "abcxyz");
}

}  // namespace
}  // namespace nunspark
