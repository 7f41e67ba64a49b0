#include "server/batch_runner.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "io/test_folder.h"
#include "server/answers.h"

namespace nunspark::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// In the place of service and scheduler: what it is asked waits until a test says what becomes of it.
class FakeServer {
 public:
  explicit FakeServer(int64_t parallel) : parallel_(parallel) {}

  BatchRunnerOptions Options() {
    return {.parallel = parallel_,
            .stats = [this] { return Stats(); },
            .answer = [this](const HttpRequest& request,
                             const std::shared_ptr<Exchange>& exchange) { Take(request, exchange); }};
  }

  // Bodies of lines, in the order in which they came.
  std::vector<std::string> Asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  int64_t Running() {
    const std::lock_guard lock(mutex_);
    return std::ssize(running_);
  }
  void SetOthersWaiting(int64_t count) {
    const std::lock_guard lock(mutex_);
    waiting_ = count;
  }
  // Answers one that runs. Its exchange ends with this.
  void Answer(const std::string& body, HttpResponse response) { Find(body)->Send(std::move(response)); }
  void Drop(const std::string& body) { (void)Find(body); }

 private:
  SchedulerStats Stats() {
    const std::lock_guard lock(mutex_);
    return {.running = std::ssize(running_),
            .waiting = waiting_,
            .background_running = std::ssize(running_),
            .background_waiting = 0};
  }
  void Take(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    EXPECT_TRUE(exchange->background());
    EXPECT_EQ(request.path, "/v1/completions");
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(request.body);
      running_[request.body] = exchange;
    }
    // As the scheduler does: one that is cancelled ends with an error.
    exchange->OnClosed([this, body = request.body] {
      std::thread([this, body] { Find(body)->Send(OpenAiError(504, "the request was cancelled")); }).detach();
    });
  }
  std::shared_ptr<Exchange> Find(const std::string& body) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Exchange> exchange = running_.at(body);
    running_.erase(body);
    return exchange;
  }

  const int64_t parallel_;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::map<std::string, std::shared_ptr<Exchange>> running_;
  int64_t waiting_ = 0;
};

struct Runner {
  TestFolder test;
  DataFolder folder = DataFolder::Open(test.path()).value();
  BatchStore store = BatchStore::Open(folder).value();
  std::unique_ptr<BatchRunner> runner;

  // A batch of lines with the bodies {"n":0}, {"n":1}, ..
  Runner(int lines, int64_t window_s = 1000) {
    std::string input;
    for (int i = 0; i < lines; ++i) {
      input += R"({"custom_id": "id )" + std::to_string(i) +
               R"(", "method": "POST", "url": "/v1/completions", "body": )" + Body(i) + "}\n";
    }
    AtomicFile file = store.CreateFile("in").value();
    EXPECT_TRUE(file.Append(input).ok() && file.Commit().ok());
    EXPECT_TRUE(store.AddFile({.id = "in", .filename = "in", .purpose = "batch"}).ok());
    BatchRecord batch;
    batch.id = "batch_1";
    batch.endpoint = "/v1/completions";
    batch.input_file_id = "in";
    batch.created_at = UnixTime();
    batch.expires_at = batch.created_at + window_s;
    EXPECT_TRUE(store.AddBatch(batch).ok());
  }
  void Start(FakeServer& server) {
    runner = std::make_unique<BatchRunner>(BatchStore::Open(folder).value(), BatchStore::Open(folder).value(),
                                           server.Options());
  }

  static std::string Body(int line) { return "{\"n\":" + std::to_string(line) + "}"; }
  BatchRecord Batch() { return store.FindBatch("batch_1").value().value(); }
  std::string Content(const std::optional<std::string>& id) const {
    return id ? ReadRegularFile(JoinPath(store.files_folder(), *id)).value() : "none";
  }
};

std::string OutputLine(int line, int status, const std::string& body) {
  return "{\"id\":\"batch_req_1_" + std::to_string(line + 1) + "\",\"custom_id\":\"id " + std::to_string(line) +
         "\",\"response\":{\"status_code\":" + std::to_string(status) + ",\"request_id\":\"batch_req_1_" +
         std::to_string(line + 1) + "\",\"body\":" + body + "},\"error\":null}\n";
}

TEST(BatchRunner, RunsAsManyLinesAsThereArePlacesAndWritesThemInOrder) {
  FakeServer server(2);
  Runner batch(3);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  EXPECT_THAT(server.Asked(), ElementsAre(Runner::Body(0), Runner::Body(1)));
  server.Answer(Runner::Body(1), {.body = "{\"b\":1}"});
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  EXPECT_EQ(batch.Batch().status, BatchStatus::kInProgress);
  server.Answer(Runner::Body(2), {.status = 400, .body = "{\"e\":2}"});
  server.Answer(Runner::Body(0), {.body = "{\"b\":0}"});
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kCompleted; }));
  EXPECT_EQ(batch.Content(batch.Batch().output_file_id),
            OutputLine(0, 200, "{\"b\":0}") + OutputLine(1, 200, "{\"b\":1}"));
  EXPECT_EQ(batch.Content(batch.Batch().error_file_id), OutputLine(2, 400, "{\"e\":2}"));
  EXPECT_EQ(batch.runner->counts().lines_completed, 2);
  EXPECT_EQ(batch.runner->counts().lines_failed, 1);
}

TEST(BatchRunner, TakesTheYoungestBackForWhoWaitsButNotForEver) {
  FakeServer server(2);
  Runner batch(2);
  batch.Start(server);
  for (int64_t times = 1; times <= 3; ++times) {
    ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
    server.SetOthersWaiting(1);
    ASSERT_TRUE(Eventually([&] { return server.Running() == 1 && batch.runner->counts().lines_withdrawn == times; }));
    server.SetOthersWaiting(0);
  }
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  // The other one gives way now, as often.
  server.SetOthersWaiting(1);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 1; }));
  EXPECT_THAT(server.Asked(),
              ElementsAre(Runner::Body(0), Runner::Body(1), Runner::Body(1), Runner::Body(1), Runner::Body(1)));
  server.Answer(Runner::Body(1), {.body = "1"});
  EXPECT_EQ(server.Running(), 0);
  server.SetOthersWaiting(0);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 1; }));
  server.Answer(Runner::Body(0), {.body = "0"});
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kCompleted; }));
  EXPECT_EQ(batch.Content(batch.Batch().output_file_id), OutputLine(0, 200, "0") + OutputLine(1, 200, "1"));
}

TEST(BatchRunner, StartsNothingWhileOthersWait) {
  FakeServer server(1);
  Runner batch(1);
  server.SetOthersWaiting(1);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kInProgress; }));
  ASSERT_TRUE(Eventually([&] { return batch.runner->counts().open == 1; }));
  EXPECT_TRUE(server.Asked().empty());
  server.SetOthersWaiting(0);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 1; }));
}

TEST(BatchRunner, TriesAgainWhatThereWasNoRoomForAndTellsWhatWasDropped) {
  FakeServer server(2);
  Runner batch(2);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  server.Answer(Runner::Body(0), OpenAiError(429, "the queue is full"));
  server.Drop(Runner::Body(1));
  ASSERT_TRUE(Eventually([&] { return server.Asked().size() == 3; }));
  server.Answer(Runner::Body(0), {.body = "0"});
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kCompleted; }));
  EXPECT_EQ(batch.Content(batch.Batch().output_file_id), OutputLine(0, 200, "0"));
  EXPECT_THAT(batch.Content(batch.Batch().error_file_id), HasSubstr("\"status_code\":500"));
}

TEST(BatchRunner, GoesOnAfterAStopWithWhatHasNoAnswer) {
  Runner batch(3);
  {
    FakeServer server(2);
    batch.Start(server);
    ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
    server.Answer(Runner::Body(0), {.body = "0"});
    ASSERT_TRUE(Eventually([&] { return batch.Batch().completed == 1; }));
    batch.runner->Stop();
    EXPECT_EQ(server.Running(), 0);
  }
  EXPECT_EQ(batch.Batch().status, BatchStatus::kInProgress);
  FakeServer server(2);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  EXPECT_THAT(server.Asked(), ElementsAre(Runner::Body(1), Runner::Body(2)));
  for (const int line : {1, 2}) server.Answer(Runner::Body(line), {.body = "x"});
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kCompleted; }));
  EXPECT_EQ(batch.Batch().completed, 3);
  batch.runner.reset();
}

TEST(BatchRunner, ACancelledBatchKeepsWhatHasRun) {
  FakeServer server(2);
  Runner batch(4);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2; }));
  server.Answer(Runner::Body(0), {.body = "0"});
  ASSERT_TRUE(Eventually([&] { return server.Running() == 2 && batch.Batch().completed == 1; }));
  ASSERT_TRUE(batch.store.CancelBatch("batch_1", UnixTime()).value());
  batch.runner->Wake();
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kCancelled; }));
  EXPECT_EQ(server.Running(), 0);
  EXPECT_EQ(batch.Content(batch.Batch().output_file_id), OutputLine(0, 200, "0"));
  EXPECT_THAT(batch.Content(batch.Batch().error_file_id),
              HasSubstr(R"("custom_id":"id 1","response":null,"error":{"code":"batch_cancelled")"));
  // And leaves no lines.
  ASSERT_TRUE(Eventually([&] { return batch.store.LinesToDo(batch.Batch().number, 0, 9).value().empty(); }));
}

TEST(BatchRunner, ABatchThatIsLateExpires) {
  FakeServer server(2);
  Runner batch(2, -1);
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kExpired; }));
  EXPECT_TRUE(batch.Batch().expired_at.has_value());
}

TEST(BatchRunner, AnInputThatIsGoneFailsTheBatch) {
  FakeServer server(1);
  Runner batch(1);
  batch.store.DiscardFile("in");
  batch.Start(server);
  ASSERT_TRUE(Eventually([&] { return batch.Batch().status == BatchStatus::kFailed; }));
  EXPECT_THAT(batch.Batch().errors, HasSubstr("file_not_readable"));
}

}  // namespace
}  // namespace nunspark::server
