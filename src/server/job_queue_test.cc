#include "server/job_queue.h"

#include <condition_variable>
#include <functional>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/eventually_testing.h"
#include "io/test_folder.h"

namespace nunspark::server {
namespace {

constexpr int32_t kEnd = 0;

// A token is a byte; the answer to a prompt says it again, and more.
std::string AnswerTo(const std::string& prompt) {
  return "You said: " + prompt + ". That is so, and here are some more words.";
}

class FakeStream : public ModelFiles::TextStream {
 public:
  std::string Push(int32_t token) override { return std::string(1, static_cast<char>(token)); }
  std::string Finish() override { return ""; }
  bool stopped() const override { return false; }
  const std::string& stop() const override { return none_; }

 private:
  const std::string none_;
};

class FakeModel : public TextModel {
 public:
  Result<std::vector<int32_t>> Encode(const std::string& prompt, bool) const override {
    return std::vector<int32_t>(prompt.begin(), prompt.end());
  }
  Result<std::unique_ptr<ModelFiles::TextStream>> NewTextStream() const override {
    return std::unique_ptr<ModelFiles::TextStream>(std::make_unique<FakeStream>());
  }
  bool EndsOutput(int32_t token) const override { return token == kEnd; }
  int64_t max_context() const override { return 10'000; }
  int64_t kv_bytes_per_token() const override { return 1000; }
};

// Decodes what is submitted, a token of each in a step; as many steps as are allowed.
class FakeEngine : public Scheduler {
 public:
  FakeEngine() : thread_([this] { Run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Result<uint64_t> Submit(SequenceRequest request, RequestCallbacks callbacks, Urgency,
                          TimePoint /*start_by*/) override {
    const std::lock_guard lock(mutex_);
    prompts.emplace_back(request.prompt.begin(), request.prompt.end());
    waiting_.push_back({.id = ++last_id_, .request = std::move(request), .callbacks = std::move(callbacks)});
    wake_.notify_all();
    return last_id_;
  }
  void Cancel(uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(id);
    wake_.notify_all();
  }
  SchedulerStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  EngineStats engine_stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.cache.expert.hits = 3 * stats_.tokens;
    stats.cache.expert.misses = stats_.tokens;
    stats.cache.expert.bytes_read = 1'000'000 * stats_.tokens;
    return stats;
  }

  void Allow(int64_t steps) {
    const std::lock_guard lock(mutex_);
    allowed_ = steps;
    wake_.notify_all();
  }
  size_t submitted() const {
    const std::lock_guard lock(mutex_);
    return prompts.size();
  }
  // A step in which so many sequences run fails them all.
  std::atomic<size_t> fails_at{1000};
  std::vector<std::string> prompts;  // as submitted
  size_t most_together = 0;

 private:
  struct Sequence {
    uint64_t id = 0;
    SequenceRequest request{};
    RequestCallbacks callbacks{};
    std::string answer{};
    GenerateResult result{};
  };

  void Run() {
    std::vector<Sequence> running;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] {
          return stopping_ || !cancelled_.empty() || (allowed_ > 0 && (!waiting_.empty() || !running.empty()));
        });
        if (stopping_) return;
        for (Sequence& sequence : waiting_) running.push_back(std::move(sequence));
        waiting_.clear();
        for (Sequence& sequence : running) {
          if (cancelled_.contains(sequence.id)) sequence.result.finish_reason = FinishReason::kCancelled;
        }
        cancelled_.clear();
        most_together = std::max(most_together, running.size());
      }
      std::erase_if(running, [](Sequence& sequence) {
        if (sequence.result.finish_reason != FinishReason::kCancelled) return false;
        sequence.callbacks.on_end(sequence.result);
        return true;
      });
      {
        const std::lock_guard lock(mutex_);
        if (running.empty() || allowed_ == 0) continue;
        --allowed_;
      }
      Step(running);
    }
  }

  void Step(std::vector<Sequence>& running) {
    const bool fails = running.size() >= fails_at;
    int64_t tokens = 0;
    std::erase_if(running, [&](Sequence& sequence) {
      if (fails) {
        sequence.callbacks.on_end(IoError("the drive is gone"));
        return true;
      }
      if (sequence.answer.empty()) {
        sequence.answer = AnswerTo({sequence.request.prompt.begin(), sequence.request.prompt.end()});
      }
      std::vector<int32_t>& ids = sequence.result.ids;
      ids.push_back(ids.size() < sequence.answer.size() ? sequence.answer[ids.size()] : kEnd);
      ++tokens;
      bool ends = !sequence.callbacks.on_token({.token = ids.back()});
      if (ends) {
        sequence.result.finish_reason = FinishReason::kCancelled;
      } else if (ids.back() == kEnd) {
        sequence.result.finish_reason = FinishReason::kStop;
        ends = true;
      } else {
        ends = std::ssize(ids) >= sequence.request.options.max_tokens;
      }
      if (ends) sequence.callbacks.on_end(sequence.result);
      return ends;
    });
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.tokens += tokens;
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Sequence> waiting_;
  std::set<uint64_t> cancelled_;
  uint64_t last_id_ = 0;
  int64_t allowed_ = INT64_MAX;
  bool stopping_ = false;
  SchedulerStats stats_;
  std::thread thread_;
};

class FakeSource : public EngineSource {
 public:
  Result<const TextModel*> OpenModel(const std::string& path) override {
    ++models_opened;
    if (path == "/gone") return NotFoundError("/gone is not there");
    return &model;
  }
  Result<Scheduler*> OpenEngine(const EngineSettings& settings, const EngineRoom& room) override {
    opened.push_back(settings);
    rooms.push_back(room);
    if (settings.budget == "1b") return ResourceExhaustedError("--budget 1 B is below the floor");
    if (!is_held) return &engine;
    waits = true;
    stopped.wait(false);
    return CancelledError("stopped");
  }
  void Stop() override {
    stopped = true;
    stopped.notify_all();
  }
  int64_t ram_bytes() const override { return int64_t{8} << 30; }
  Result<int64_t> BudgetBytes(const std::string&) const override { return int64_t{6} << 30; }

  FakeModel model;
  FakeEngine engine;
  std::atomic<int> models_opened{0};
  std::atomic<bool> is_held{false}, waits{false}, stopped{false};  // of an engine that somebody else has
  std::vector<EngineSettings> opened;
  std::vector<EngineRoom> rooms;
};

class FakeExchange : public Exchange {
 public:
  void Send(HttpResponse) override { FAIL(); }
  void Begin(int status, std::string type, Headers, std::string) override {
    EXPECT_EQ(status, 200);
    EXPECT_EQ(type, "text/event-stream");
  }
  void Write(std::string part) override {
    const std::lock_guard lock(mutex_);
    text_ += part;
  }
  void End() override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  bool closed() const override { return false; }
  void OnClosed(std::function<void()>) override {}

  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::vector<Json> Events() const {
    const std::lock_guard lock(mutex_);
    std::vector<Json> events;
    for (size_t at = 0; (at = text_.find("data: ", at)) != std::string::npos;) {
      const size_t end = text_.find("\n\n", at);
      events.push_back(ParseJson(std::string_view(text_).substr(at + 6, end - at - 6), "event").value());
      at = end;
    }
    return events;
  }
  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    for (const Json& event : Events()) types.push_back(event.Find("type")->as_string());
    return types;
  }
  std::string Text() const {
    std::string text;
    for (const Json& event : Events()) {
      if (event.Find("type")->as_string() == "token") text += event.Find("text")->as_string();
    }
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  bool ended_ = false;
};

std::string Content(const std::string& path) {
  const Result<std::string> text = ReadRegularFile(path);
  return text.ok() ? *text : "(" + text.status().message() + ")";
}

class JobQueueTest : public testing::Test {
 protected:
  JobQueueTest() { Open(); }
  void Open() {
    Result<std::unique_ptr<JobQueue>> opened = JobQueue::Open(folder_.Path("state"), source_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    queue_ = std::move(*opened);
  }
  JobRequest Request(const std::vector<std::string>& contents) {
    JobRequest request;
    request.model = "/model";
    request.output_dir = folder_.Path("out");
    std::vector<UploadedFile> files;
    for (size_t i = 0; i < contents.size(); ++i) {
      files.push_back({.name = "f" + std::to_string(i) + ".txt", .content = contents[i]});
    }
    const std::vector<StoredFile> stored = queue_->AddFiles(files).value();
    for (const StoredFile& file : stored) request.file_ids.push_back(file.id);
    return request;
  }
  std::vector<Job> Submit(const std::vector<std::string>& contents) {
    return queue_->Submit(Request(contents)).value();
  }
  // Lets the first `count` jobs run together for so many steps.
  void StartWith(size_t count, int64_t steps) {
    source_.engine.Allow(0);
    queue_->Start();
    Until([&] { return source_.engine.submitted() == count; });
    source_.engine.Allow(steps);
  }
  Job Find(const std::string& id) const {
    for (const Job& job : queue_->Jobs()) {
      if (job.id == id) return job;
    }
    ADD_FAILURE() << "no job " << id;
    return {};
  }
  void Until(const std::function<bool()>& condition) const { ASSERT_TRUE(Eventually(condition)); }
  void UntilAllEnd() const {
    Until([&] {
      for (const Job& job : queue_->Jobs()) {
        if (!Ended(job.status)) return false;
      }
      return true;
    });
  }

  const TestFolder folder_;
  FakeSource source_;
  std::unique_ptr<JobQueue> queue_;
};

// Checklist items 81 and 84.
TEST_F(JobQueueTest, RunsAJobForEachFileAndLeavesAnOutputAndASidecar) {
  JobRequest request = Request({"one", "two"});
  request.instruction = " Repeat. ";
  const std::vector<Job> jobs = queue_->Submit(std::move(request)).value();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].request_id, jobs[1].request_id);
  EXPECT_EQ(jobs[0].status, JobStatus::kQueued);
  queue_->Start();
  UntilAllEnd();
  EXPECT_EQ(source_.engine.prompts, (std::vector<std::string>{"Repeat.\n\none", "Repeat.\n\ntwo"}));
  const Job job = Find(jobs[1].id);
  EXPECT_EQ(job.status, JobStatus::kDone);
  EXPECT_EQ(job.output_path, folder_.Path("out/f1.txt.out.txt"));
  EXPECT_EQ(Content(job.output_path), AnswerTo("Repeat.\n\ntwo"));
  EXPECT_EQ(job.tokens_done, std::ssize(AnswerTo("Repeat.\n\ntwo")) + 1);
  const Json sidecar = ParseJson(Content(folder_.Path("out/f1.txt.meta.json")), "sidecar").value();
  EXPECT_EQ(sidecar.Find("status")->as_string(), "done");
  EXPECT_EQ(sidecar.Find("instruction")->as_string(), " Repeat. ");
  EXPECT_TRUE(sidecar.Find("error")->is_null());
  EXPECT_GT(sidecar.Find("metrics")->Find("tok_per_s")->as_double(), 0);
  EXPECT_EQ(sidecar.Find("metrics")->Find("expert_hit_pct")->as_double(), 75);
  EXPECT_EQ(sidecar.Find("metrics")->Find("mb_per_token")->as_double(), 1);
  EXPECT_EQ(sidecar.Find("metrics")->Find("finish_reason")->as_string(), "stop");
}

// Checklist item 83.
TEST_F(JobQueueTest, TellsWhatHappensFromTheStartAndWhoComesLateGetsItAll) {
  const std::string id = Submit({"text"})[0].id;
  const auto early = std::make_shared<FakeExchange>();
  ASSERT_TRUE(queue_->Subscribe(id, early));
  EXPECT_FALSE(queue_->Subscribe("nobody", early));
  const auto all = std::make_shared<FakeExchange>();
  queue_->SubscribeAll(all);
  source_.engine.Allow(20);
  queue_->Start();
  Until([&] { return Find(id).tokens_done == 20; });
  const auto between = std::make_shared<FakeExchange>();
  ASSERT_TRUE(queue_->Subscribe(id, between));
  source_.engine.Allow(1000);
  Until([&] { return early->ended() && between->ended(); });
  const auto late = std::make_shared<FakeExchange>();
  ASSERT_TRUE(queue_->Subscribe(id, late));
  EXPECT_TRUE(late->ended());
  for (const auto& exchange : {early, between, late, all}) {
    const std::vector<std::string> types = exchange->Types();
    EXPECT_EQ(types.front(), "started");
    EXPECT_EQ(types.back(), "done");
    EXPECT_EQ(exchange->Text(), AnswerTo("text"));
    EXPECT_EQ(exchange->Events().back().Find("job")->Find("status")->as_string(), "done");
    EXPECT_TRUE(std::find(types.begin(), types.end(), "metrics") != types.end());
  }
  EXPECT_FALSE(all->ended());
  int64_t last = 0;
  for (const Json& event : early->Events()) {
    if (event.Find("type")->as_string() != "metrics") continue;
    EXPECT_EQ(event.Find("metrics")->Find("tokens")->as_int(), last + 8);
    last += 8;
  }
  EXPECT_GT(last, 40);
}

// Checklist items 82 and 85.
TEST_F(JobQueueTest, AJobIsCancelledBeforeItRunsAndWhileItDoesAndKeepsWhatItHas) {
  const std::vector<Job> jobs = Submit({"a", "b", "c"});
  ASSERT_TRUE(queue_->Cancel(jobs[1].id));
  EXPECT_FALSE(queue_->Cancel("nobody"));
  EXPECT_EQ(Find(jobs[1].id).status, JobStatus::kCancelled);
  const Json sidecar = ParseJson(Content(folder_.Path("out/f1.txt.meta.json")), "sidecar").value();
  EXPECT_EQ(sidecar.Find("status")->as_string(), "cancelled");
  StartWith(2, 10);
  Until([&] { return Find(jobs[0].id).tokens_done == 10; });
  ASSERT_TRUE(queue_->Cancel(jobs[0].id));
  Until([&] { return Find(jobs[0].id).status == JobStatus::kCancelled; });
  // The other row of the group goes on.
  EXPECT_EQ(Find(jobs[2].id).status, JobStatus::kRunning);
  source_.engine.Allow(1000);
  UntilAllEnd();
  EXPECT_EQ(Find(jobs[2].id).status, JobStatus::kDone);
  EXPECT_EQ(Content(folder_.Path("out/f0.txt.out.txt")), AnswerTo("a").substr(0, 10));
  EXPECT_EQ(Content(folder_.Path("out/f2.txt.out.txt")), AnswerTo("c"));
  EXPECT_TRUE(queue_->Cancel(jobs[2].id));
  EXPECT_EQ(Find(jobs[2].id).status, JobStatus::kDone);
  EXPECT_EQ(source_.engine.prompts.size(), 2u);
}

// Checklist items 87, 88 and 89.
TEST_F(JobQueueTest, WhatCannotRunIsAnErrorOfItsJobAlone) {
  JobRequest bad_folder = Request({"x"});
  folder_.Write("file", "");
  bad_folder.output_dir = folder_.Path("file/below");
  const std::string folder_id = queue_->Submit(std::move(bad_folder)).value()[0].id;
  const std::string pdf_id = Submit({"%PDF-1.4"})[0].id;
  JobRequest short_prompt = Request({"a text that is too long"});
  short_prompt.max_prompt_tokens = 5;
  const std::string long_id = queue_->Submit(std::move(short_prompt)).value()[0].id;
  JobRequest no_model = Request({"x"});
  no_model.model = "/gone";
  const std::string gone_id = queue_->Submit(std::move(no_model)).value()[0].id;
  JobRequest small = Request({"x"});
  small.budget = "1b";
  const std::string small_id = queue_->Submit(std::move(small)).value()[0].id;
  const std::string good_id = Submit({"good"})[0].id;
  queue_->Start();
  UntilAllEnd();
  const auto expect = [&](const std::string& id, const std::string& part) {
    EXPECT_EQ(Find(id).status, JobStatus::kError);
    EXPECT_NE(Find(id).error.find(part), std::string::npos) << Find(id).error;
  };
  expect(folder_id, folder_.Path("file/below"));
  expect(pdf_id, "PDF");
  expect(long_id, "max_prompt_tokens");
  expect(gone_id, "/gone is not there");
  expect(small_id, "below the floor");
  EXPECT_EQ(Find(good_id).status, JobStatus::kDone);
  EXPECT_EQ(source_.engine.prompts, std::vector<std::string>{"good"});
  EXPECT_EQ(source_.models_opened, 5);  // for all but the PDF
}

// Checklist item 90.
TEST_F(JobQueueTest, JobsThatAgreeAreDecodedTogetherUpToEight) {
  std::vector<std::string> contents;
  for (int i = 0; i < 10; ++i) contents.push_back("text " + std::to_string(i));
  contents[3] = "GIF89a";
  const std::vector<Job> jobs = Submit(contents);
  JobRequest other = Request({"other"});
  other.temperature = 1;
  const std::string other_id = queue_->Submit(std::move(other)).value()[0].id;
  StartWith(7, INT64_MAX);
  UntilAllEnd();
  EXPECT_EQ(source_.engine.most_together, 7u);  // eight were taken, one of them left
  ASSERT_EQ(source_.opened.size(), 3u);
  EXPECT_EQ(source_.rooms[0].kv_tokens, 7 * source_.rooms[0].context);
  EXPECT_EQ(Find(jobs[0].id).metrics.Find("batched")->as_bool(), true);
  EXPECT_EQ(Find(jobs[0].id).metrics.Find("batch_size")->as_int(), 7);
  EXPECT_EQ(Find(jobs[9].id).metrics.Find("batch_size")->as_int(), 2);
  EXPECT_EQ(Find(other_id).metrics.Find("batched"), nullptr);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(Find(jobs[i].id).status, i == 3 ? JobStatus::kError : JobStatus::kDone);
    if (i == 3) continue;
    EXPECT_EQ(Content(Find(jobs[i].id).output_path), AnswerTo(contents[i]));
  }
}

TEST_F(JobQueueTest, ADraftOrTheWishToBeAloneKeepsJobsApart) {
  JobRequest draft = Request({"a", "b"});
  draft.draft = "/draft";
  draft.preset = "fast";
  ASSERT_TRUE(queue_->Submit(std::move(draft)).ok());
  JobRequest alone = Request({"c", "d"});
  alone.together = false;
  ASSERT_TRUE(queue_->Submit(std::move(alone)).ok());
  queue_->Start();
  UntilAllEnd();
  EXPECT_EQ(source_.engine.most_together, 1u);
  ASSERT_EQ(source_.opened.size(), 4u);
  EXPECT_EQ(source_.opened[0], source_.opened[1]);
  EXPECT_EQ(source_.opened[0].draft_tokens, 24);
  EXPECT_EQ(source_.opened[0].accept_top_k, 3);
  EXPECT_EQ(source_.opened[2].draft_tokens, 16);
}

TEST_F(JobQueueTest, AGroupThatFailsIsRunOneByOneAndGoesOnInItsOutputs) {
  const std::vector<Job> jobs = Submit({"a", "b", "c"});
  const auto listener = std::make_shared<FakeExchange>();
  ASSERT_TRUE(queue_->Subscribe(jobs[1].id, listener));
  StartWith(3, 10);
  Until([&] { return Find(jobs[2].id).tokens_done == 10; });
  source_.engine.fails_at = 2;
  source_.engine.Allow(1000);
  UntilAllEnd();
  EXPECT_EQ(source_.engine.prompts, (std::vector<std::string>{"a", "b", "c", "a", "b", "c"}));
  for (const Job& job : jobs) {
    EXPECT_EQ(Find(job.id).status, JobStatus::kDone) << Find(job.id).error;
    EXPECT_EQ(Find(job.id).metrics.Find("batched"), nullptr);
  }
  EXPECT_EQ(Content(folder_.Path("out/f1.txt.out.txt")), AnswerTo("b"));
  EXPECT_EQ(listener->Text(), AnswerTo("b"));
  source_.engine.fails_at = 1;
  const std::string id = Submit({"d"})[0].id;
  UntilAllEnd();
  EXPECT_EQ(Find(id).error, "the drive is gone");
}

TEST_F(JobQueueTest, TheNextProcessGoesOnWithWhatTheLastOneHad) {
  const std::vector<Job> jobs = Submit({"a", "b"});
  JobRequest later = Request({"c"});
  later.temperature = 1;
  const std::string later_id = queue_->Submit(std::move(later)).value()[0].id;
  StartWith(2, 15);
  Until([&] { return Find(jobs[1].id).tokens_done == 15; });
  queue_.reset();
  EXPECT_EQ(Content(folder_.Path("out/f1.txt.out.txt")), AnswerTo("b").substr(0, 15));
  Open();
  EXPECT_EQ(Find(jobs[0].id).status, JobStatus::kQueued);
  const auto listener = std::make_shared<FakeExchange>();
  ASSERT_TRUE(queue_->Subscribe(jobs[0].id, listener));
  source_.engine.Allow(1000);
  queue_->Start();
  UntilAllEnd();
  EXPECT_EQ(Content(folder_.Path("out/f0.txt.out.txt")), AnswerTo("a"));
  EXPECT_EQ(Content(folder_.Path("out/f1.txt.out.txt")), AnswerTo("b"));
  EXPECT_EQ(listener->Text(), AnswerTo("a"));
  EXPECT_FALSE(FileExists(folder_.Path("out/f1.txt.1.out.txt")));
  EXPECT_EQ(Find(later_id).status, JobStatus::kDone);
  queue_.reset();
  Open();
  EXPECT_EQ(queue_->Jobs().size(), 3u);
  EXPECT_EQ(queue_->Clear().value(), 3);
  queue_.reset();
  Open();
  EXPECT_TRUE(queue_->Jobs().empty());
}

TEST_F(JobQueueTest, AnEngineThatSomebodyElseHasHoldsItsEndNotUp) {
  source_.is_held = true;
  const std::string id = Submit({"a"})[0].id;
  queue_->Start();
  Until([&] { return source_.waits.load(); });
  queue_.reset();
  Open();
  EXPECT_EQ(Find(id).status, JobStatus::kQueued);
  source_.is_held = false;
  queue_->Start();
  UntilAllEnd();
  EXPECT_EQ(Content(folder_.Path("out/f0.txt.out.txt")), AnswerTo("a"));
}

TEST_F(JobQueueTest, OnlyFilesThatWereUploadedAreTaken) {
  JobRequest request = Request({"a"});
  request.file_ids.push_back("/etc/passwd");
  const Result<std::vector<Job>> jobs = queue_->Submit(std::move(request));
  ASSERT_FALSE(jobs.ok());
  EXPECT_EQ(jobs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(jobs.status().message().find("/etc/passwd"), std::string::npos);
  EXPECT_TRUE(queue_->Jobs().empty());
}

}  // namespace
}  // namespace nunspark::server
