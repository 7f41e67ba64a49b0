// Runs batches beside everything else: their lines only where the scheduler has a place that nobody else wants.
//
// Two threads. The feeder hands lines to the server's own routes, each as if it had come over HTTP, and records the
// answers; when other requests wait it takes lines back, youngest first. The keeper does what takes long and hurries
// nobody: it checks new inputs, writes the files of batches that end, deletes what expired. What a batch's state is
// stands in the store alone, so a process that is killed goes on where it was.
#ifndef NUNSPARK_SERVER_BATCH_RUNNER_H_
#define NUNSPARK_SERVER_BATCH_RUNNER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nunspark/scheduler.h"
#include "server/batch_input.h"
#include "server/batch_store.h"
#include "server/http.h"

namespace nunspark::server {

struct BatchRunnerOptions {
  int64_t parallel = 1;  // sequences that the scheduler runs at once
  std::function<SchedulerStats()> stats;
  // Answers a request through its exchange, now or later, from any thread. The exchange is a background one.
  std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)> answer;
};

struct BatchCounts {
  int64_t open = 0;  // batches that have not ended
  int64_t lines_running = 0;
  // Since the server began.
  int64_t lines_completed = 0, lines_failed = 0;
  int64_t lines_withdrawn = 0;  // taken back for other requests; run again later
};

class BatchRunner {
 public:
  // Goes on with what the stores' folder holds. The two stores are of one folder that has been recovered.
  BatchRunner(BatchStore feeder_store, BatchStore keeper_store, BatchRunnerOptions options);
  ~BatchRunner();
  BatchRunner(const BatchRunner&) = delete;

  // A batch was made or cancelled.
  void Wake();
  // Takes back what runs, which the scheduler must still be there for, and ends both threads.
  void Stop();
  BatchCounts counts() const;

 private:
  using Clock = std::chrono::steady_clock;

  class LineExchange;
  struct Reply {
    int64_t batch = 0, line = 0;
    HttpResponse response;
  };
  // Shared with exchanges, which may outlive the runner.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<Reply> replies;
    bool feeder_woken = true, keeper_woken = true;
    bool stopping = false;
  };
  struct WaitingLine {
    BatchLine line;
    int withdrawn = 0;  // times
    int refused = 0;    // times that the scheduler had no room
  };
  // A batch in progress.
  struct Active {
    BatchRecord record;
    Result<File> input;
    std::deque<WaitingLine> lines{};
    int64_t after = 0;  // lines up to here have been taken from the store
    bool all_taken = false;
    int64_t running = 0;

    bool done() const { return all_taken && lines.empty() && running == 0; }
  };
  struct RunningLine {
    int64_t batch = 0;
    WaitingLine waiting;
    std::weak_ptr<LineExchange> exchange;  // of whoever is to answer: one that nobody holds has answered
    bool withdrawn = false;
  };

  // Of the feeder.
  void Feed();
  void TakeReplies();
  void Withdraw(RunningLine& line);
  Status Record();
  Status LookAtBatches();
  void MakeRoom(const SchedulerStats& stats);
  // Starts a line where there is room; false: there is none, or no line.
  Result<bool> StartOne();
  void StartLine(Active& active, WaitingLine waiting);
  void Answered(const Active& active, const BatchLine& line, const HttpResponse& response);
  Active* Find(int64_t batch);

  // Of the keeper.
  void Keep();
  Status KeepOnce();
  Status Validate(const BatchRecord& batch);
  Status WriteFiles(const BatchRecord& batch);

  bool Stopping() const;
  void WakeKeeper();

  const BatchRunnerOptions options_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();

  BatchStore store_;  // the feeder's
  std::deque<Active> active_;
  std::deque<RunningLine> running_;  // the youngest last
  std::vector<LineAnswer> answers_;  // to be recorded
  Clock::time_point looked_{}, pause_until_{};
  bool look_ = true;

  BatchStore keeper_store_;

  std::atomic<int64_t> open_{0}, lines_running_{0}, lines_completed_{0}, lines_failed_{0}, lines_withdrawn_{0};
  std::thread feeder_, keeper_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_BATCH_RUNNER_H_
