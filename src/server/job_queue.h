// The jobs of the web application: a queue, a thread that runs it, and who listens.
//
// Jobs run in the order of submission. Up to eight that follow each other and agree in what matters are decoded
// together; each is streamed and cancelled by itself. What happens is on the drive before anybody is told: a job whose
// process ended is run again by the next one, and goes on in its output.
#ifndef NUNSPARK_SERVER_JOB_QUEUE_H_
#define NUNSPARK_SERVER_JOB_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "nunspark/engine.h"
#include "server/http.h"
#include "server/job.h"
#include "server/job_output.h"
#include "server/job_store.h"

namespace nunspark::server {

// Decoded together, at most.
inline constexpr int32_t kMostGrouped = 8;

// A model before its weights are read.
class TextModel {
 public:
  virtual ~TextModel() = default;
  // As one user message through the chat template; where that cannot be applied or is not wanted, the text as it is.
  virtual Result<std::vector<int32_t>> Encode(const std::string& prompt, bool chat_template) const = 0;
  virtual Result<std::unique_ptr<ModelFiles::TextStream>> NewTextStream() const = 0;
  virtual bool EndsOutput(int32_t token) const = 0;
  virtual int64_t max_context() const = 0;         // 0: not stated
  virtual int64_t kv_bytes_per_token() const = 0;  // as the limit of prompts counts them
};

// What some sequences need, in positions.
struct EngineRoom {
  int64_t context = 0;    // of the longest
  int64_t kv_tokens = 0;  // of all
};

// Where jobs get their engine. Called by the queue's thread alone, but for Stop; what it gives is good until the next
// call.
class EngineSource {
 public:
  virtual ~EngineSource() = default;
  // Errors: ModelFiles::Open's.
  virtual Result<const TextModel*> OpenModel(const std::string& path) = 0;
  // The one that is open, if its settings are these and it has the room. Errors: Engine::Start's.
  virtual Result<Scheduler*> OpenEngine(const EngineSettings& settings, const EngineRoom& room) = 0;
  virtual int64_t ram_bytes() const = 0;  // 0: unknown
  // Of "auto" or a size.
  virtual Result<int64_t> BudgetBytes(const std::string& budget) const = 0;
  // Between groups: whoever else wants an engine.
  virtual void BetweenGroups() {}
  // The queue ends: whoever holds the engine is not waited for any more. By any thread.
  virtual void Stop() {}
};

class JobQueue {
 public:
  // Reads what earlier processes left; nothing runs yet. `source` must outlive the queue.
  // Errors: JobStore's.
  static Result<std::unique_ptr<JobQueue>> Open(const std::string& folder, EngineSource& source);
  // Jobs that run are stopped where they are, and run by the next process.
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;

  void Start();

  // Everything below is thread-safe.

  Result<std::vector<StoredFile>> AddFiles(const std::vector<UploadedFile>& files) { return store_->AddFiles(files); }
  // A job for each file. Errors: kInvalidArgument for a file that was not uploaded; kResourceExhausted when too many
  // wait; JobStore's.
  Result<std::vector<Job>> Submit(JobRequest request);
  std::vector<Job> Jobs() const;
  // False: there is no such job. One that has ended stays as it is.
  bool Cancel(const std::string& id);
  // Where a job writes; the file is whole once it has ended. Errors: kNotFound without such a job or output.
  Result<std::string> OutputPath(const std::string& id) const;
  // Answers with the job's events from the first to the last, then closes. False: there is no such job.
  bool Subscribe(const std::string& id, const std::shared_ptr<Exchange>& exchange);
  // The same of all jobs from now on, those that run with what they have written so far; new ones as "queued". Does not
  // end. Browsers have only a few connections to a server.
  void SubscribeAll(const std::shared_ptr<Exchange>& exchange);
  // Forgets jobs that have ended; their outputs stay. Returns how many.
  Result<int64_t> Clear();
  // Makes the thread call EngineSource::BetweenGroups soon.
  void Wake();

 private:
  using Clock = std::chrono::steady_clock;
  struct Row;
  // A job, and what is known of it only while it runs.
  struct Entry {
    Job job;
    std::string text{};  // written so far
    bool cancel_wanted = false;
    std::vector<std::shared_ptr<Exchange>> listeners{};
    std::shared_ptr<Row> row{};
  };

  JobQueue(std::unique_ptr<JobStore> store, EngineSource& source) : store_(std::move(store)), source_(source) {}

  void Run();
  bool Stopping() const;
  std::vector<std::string> TakeGroup();
  void RunGroup(const std::vector<std::string>& ids);
  std::shared_ptr<Row> Begin(const std::string& id);
  Result<std::shared_ptr<Row>> MakeRow(const Job& job);
  // Returns the rows that the engine failed in a group: they are to be run alone.
  std::vector<std::shared_ptr<Row>> Decode(const std::vector<std::shared_ptr<Row>>& rows);
  void SubmitRow(Scheduler& scheduler, const std::shared_ptr<Row>& row, int32_t group_size);
  bool OnToken(Row& row, const Scheduler& scheduler, int32_t token);
  void EndRow(Row& row, const Scheduler& scheduler);
  Json MetricsOf(const Row& row, const Scheduler& scheduler) const;

  void End(const std::string& id, JobStatus status, const std::string& error);
  void Save(const std::string& id);
  Entry* Find(const std::string& id);
  void Tell(Entry& entry, const Json& event);
  static void WriteHistory(const Entry& entry, Exchange& exchange);

  const std::unique_ptr<JobStore> store_;
  EngineSource& source_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Entry> entries_;                    // by sequence
  std::unordered_map<std::string, int64_t> sequences_;  // by id
  std::vector<std::shared_ptr<Exchange>> listeners_;    // of all jobs
  bool stopping_ = false;
  bool nudged_ = false;
  std::mutex save_mutex_;  // the last write of a job is of its last state

  std::thread thread_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_JOB_QUEUE_H_
