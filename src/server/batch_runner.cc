#include "server/batch_runner.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/answers.h"

namespace nunspark::server {
namespace {

// Between two looks at the scheduler while lines run, and at the store otherwise.
constexpr std::chrono::milliseconds kLookAtScheduler{20};
constexpr std::chrono::seconds kLookAtStore{1};

// After a failure of the drive, or a request that the scheduler had no room for.
constexpr std::chrono::seconds kPause{2};

// Between two looks at what has expired, or after a failure.
constexpr std::chrono::seconds kKeeperPause{10};

constexpr size_t kMostActive = 4;     // batches whose lines are taken at once
constexpr int64_t kTakenAtOnce = 64;  // lines from the store

// A line that was taken back so often runs to its end: it would never, beside requests that never cease.
constexpr int kMostWithdrawals = 3;
// A request that there is no room for so often is answered so.
constexpr int kMostRefusals = 100;

constexpr size_t kMostErrors = 100;  // of one input that are told
constexpr size_t kCheckedAtOnce = 500;

constexpr size_t kWrittenAtOnce = 1 << 20;  // bytes

void Log(const std::string& what) { std::fprintf(stderr, "Batches: %s\n", what.c_str()); }

// The same for a line however often it is run.
std::string RequestId(const BatchRecord& batch, int64_t line) {
  return fmt::format("batch_req_{}_{}", batch.id.substr(batch.id.find('_') + 1), line);
}

std::string AnswerText(const BatchRecord& batch, const BatchLine& line, const HttpResponse& response) {
  const std::string id = RequestId(batch, line.line);
  return fmt::format(
      R"({{"id":"{0}","custom_id":{1},"response":{{"status_code":{2},"request_id":"{0}","body":{3}}},"error":null}})",
      id, JsonQuote(line.custom_id), response.status, response.body);
}

std::string NotRunText(const BatchRecord& batch, int64_t line, std::string_view custom_id) {
  const bool expired = batch.ending == BatchStatus::kExpired;
  return WriteJson(Json::Object{
      {"id", RequestId(batch, line)},
      {"custom_id", custom_id},
      {"response", Json()},
      {"error",
       Json::Object{{"code", expired ? "batch_expired" : "batch_cancelled"},
                    {"message", expired ? "This request could not be executed before the completion window expired."
                                        : "This request was not executed because this batch was cancelled."}}}});
}

Json ErrorJson(const BatchLineError& error, int64_t line) {
  return Json::Object{{"code", error.code},
                      {"message", error.message},
                      {"param", error.param.empty() ? Json() : Json(error.param)},
                      {"line", line > 0 ? Json(line) : Json()}};
}

}  // namespace

// The way back of a line: into the inbox.
class BatchRunner::LineExchange : public Exchange {
 public:
  LineExchange(std::shared_ptr<Inbox> inbox, int64_t batch, int64_t line)
      : inbox_(std::move(inbox)), batch_(batch), line_(line) {}
  ~LineExchange() override {
    if (!ended_) Reply(OpenAiError(500, "the request was dropped"));
  }

  void Send(HttpResponse response) override { Reply(std::move(response)); }
  void Begin(int status, std::string, Headers, std::string) override { parts_.status = status; }
  void Write(std::string part) override { parts_.body += part; }
  void End() override { Reply(std::move(parts_)); }
  bool closed() const override { return closed_.load(std::memory_order_relaxed); }
  void OnClosed(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!closed()) {
        on_closed_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  bool background() const override { return true; }

  // As if a client left.
  void Leave() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      closed_.store(true, std::memory_order_relaxed);
      callback = std::exchange(on_closed_, nullptr);
    }
    if (callback) callback();
  }

 private:
  void Reply(HttpResponse response) {
    ended_ = true;
    const std::lock_guard lock(inbox_->mutex);
    inbox_->replies.push_back({.batch = batch_, .line = line_, .response = std::move(response)});
    inbox_->wake.notify_all();
  }

  const std::shared_ptr<Inbox> inbox_;
  const int64_t batch_, line_;
  HttpResponse parts_;
  bool ended_ = false;  // of who answers
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::function<void()> on_closed_;
};

BatchRunner::BatchRunner(BatchStore feeder_store, BatchStore keeper_store, BatchRunnerOptions options)
    : options_(std::move(options)), store_(std::move(feeder_store)), keeper_store_(std::move(keeper_store)) {
  feeder_ = std::thread([this] { Feed(); });
  keeper_ = std::thread([this] { Keep(); });
}

BatchRunner::~BatchRunner() { Stop(); }

void BatchRunner::Stop() {
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->stopping = true;
    inbox_->wake.notify_all();
  }
  if (feeder_.joinable()) feeder_.join();
  if (keeper_.joinable()) keeper_.join();
}

void BatchRunner::Wake() {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->feeder_woken = inbox_->keeper_woken = true;
  inbox_->wake.notify_all();
}

void BatchRunner::WakeKeeper() {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->keeper_woken = true;
  inbox_->wake.notify_all();
}

bool BatchRunner::Stopping() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->stopping;
}

BatchCounts BatchRunner::counts() const {
  const auto get = [](const std::atomic<int64_t>& value) { return value.load(std::memory_order_relaxed); };
  return {.open = get(open_),
          .lines_running = get(lines_running_),
          .lines_completed = get(lines_completed_),
          .lines_failed = get(lines_failed_),
          .lines_withdrawn = get(lines_withdrawn_)};
}

// ---- the feeder

void BatchRunner::Feed() {
  std::string told;
  bool stopping = false;
  while (!stopping || !running_.empty()) {
    {
      std::unique_lock lock(inbox_->mutex);
      const bool busy = !std::all_of(active_.begin(), active_.end(), [](const Active& a) { return a.done(); });
      inbox_->wake.wait_for(lock, busy ? std::chrono::milliseconds(kLookAtScheduler) : kLookAtStore, [&] {
        return inbox_->stopping != stopping || inbox_->feeder_woken || !inbox_->replies.empty();
      });
      stopping = inbox_->stopping;
      look_ |= std::exchange(inbox_->feeder_woken, false);
    }
    TakeReplies();
    if (stopping) {
      for (RunningLine& line : running_) Withdraw(line);
      continue;
    }
    MakeRoom(options_.stats());
    if (Clock::now() < pause_until_) continue;
    Status status = Record();
    if (status.ok()) status = LookAtBatches();
    while (status.ok()) {
      const Result<bool> started = StartOne();
      if (started.ok() && !*started) break;
      status = started.status();
    }
    lines_running_.store(std::ssize(running_), std::memory_order_relaxed);
    // A full disk stays full for a while: said once.
    if (!status.ok() && status.message() != told) Log(fmt::format("{}; trying again", status.message()));
    told = status.message();
    if (!status.ok()) pause_until_ = Clock::now() + kPause;
  }
  if (const Status status = Record(); !status.ok()) Log(status.message());
}

BatchRunner::Active* BatchRunner::Find(int64_t batch) {
  const auto at =
      std::find_if(active_.begin(), active_.end(), [batch](const Active& a) { return a.record.number == batch; });
  return at == active_.end() ? nullptr : &*at;
}

void BatchRunner::TakeReplies() {
  std::vector<Reply> replies;
  {
    const std::lock_guard lock(inbox_->mutex);
    replies.swap(inbox_->replies);
  }
  for (Reply& reply : replies) {
    const auto at = std::find_if(running_.begin(), running_.end(), [&reply](const RunningLine& line) {
      return line.batch == reply.batch && line.waiting.line.line == reply.line;
    });
    if (at == running_.end()) continue;
    RunningLine line = std::move(*at);
    running_.erase(at);
    Active& active = *Find(line.batch);
    --active.running;
    const int status = reply.response.status;
    if (line.withdrawn && status != 200) {
      ++line.waiting.withdrawn;
      active.lines.push_front(std::move(line.waiting));
    } else if (status == 429 && ++line.waiting.refused < kMostRefusals) {
      active.lines.push_front(std::move(line.waiting));
      pause_until_ = std::max(pause_until_, Clock::now() + std::chrono::milliseconds(200));
    } else {
      Answered(active, line.waiting.line, reply.response);
    }
  }
}

void BatchRunner::Answered(const Active& active, const BatchLine& line, const HttpResponse& response) {
  const bool failed = response.status != 200;
  answers_.push_back({.batch = active.record.number,
                      .line = line.line,
                      .failed = failed,
                      .text = AnswerText(active.record, line, response)});
  (failed ? lines_failed_ : lines_completed_).fetch_add(1, std::memory_order_relaxed);
}

Status BatchRunner::Record() {
  if (answers_.empty()) return Status();
  RETURN_IF_ERROR(store_.AddAnswers(answers_));
  answers_.clear();
  return Status();
}

void BatchRunner::Withdraw(RunningLine& line) {
  if (std::exchange(line.withdrawn, true)) return;
  if (const std::shared_ptr<LineExchange> exchange = line.exchange.lock()) exchange->Leave();
}

// Takes up what is new, lets go of what is cancelled or late, and gives up what has run.
Status BatchRunner::LookAtBatches() {
  const int64_t now = UnixTime();
  if (look_ || Clock::now() - looked_ >= kLookAtStore) {
    ASSIGN_OR_RETURN(const std::vector<BatchRecord> open, store_.OpenBatches());
    open_.store(std::ssize(open), std::memory_order_relaxed);
    for (const BatchRecord& record : open) {
      if (record.ending) continue;
      Active* const active = Find(record.number);
      const bool cancelled = record.status == BatchStatus::kCancelling;
      const bool late = record.expires_at <= now;
      if (active != nullptr) {
        active->record.status = record.status;
      } else if (cancelled || late) {
        RETURN_IF_ERROR(
            store_.SetEnding(record.number, cancelled ? BatchStatus::kCancelled : BatchStatus::kExpired, now));
        WakeKeeper();
      } else if (record.status == BatchStatus::kInProgress && active_.size() < kMostActive) {
        active_.push_back({.record = record, .input = store_.OpenFile(record.input_file_id)});
      }
    }
    looked_ = Clock::now();
    look_ = false;
  }
  for (auto active = active_.begin(); active != active_.end();) {
    BatchStatus ending = BatchStatus::kCompleted;
    if (active->record.status == BatchStatus::kCancelling) ending = BatchStatus::kCancelled;
    if (!active->done() && active->record.expires_at <= now) ending = BatchStatus::kExpired;
    if (ending != BatchStatus::kCompleted) {
      active->lines.clear();
      active->all_taken = true;
      for (RunningLine& line : running_) {
        if (line.batch == active->record.number) Withdraw(line);
      }
    }
    if (!active->done()) {
      ++active;
      continue;
    }
    // All answers have been recorded, before this was called.
    RETURN_IF_ERROR(store_.SetEnding(active->record.number, ending, now));
    active = active_.erase(active);
    look_ = true;
    WakeKeeper();
  }
  return Status();
}

// Takes lines back while requests wait that they leave no place for.
void BatchRunner::MakeRoom(const SchedulerStats& stats) {
  if (stats.waiting == 0) return;
  // Those that are on their way out still count as running.
  int64_t missing = stats.running + stats.waiting - options_.parallel -
                    std::count_if(running_.begin(), running_.end(), [](const RunningLine& l) { return l.withdrawn; });
  for (auto line = running_.rbegin(); line != running_.rend() && missing > 0; ++line) {
    if (line->withdrawn || line->waiting.withdrawn >= kMostWithdrawals) continue;
    Withdraw(*line);
    lines_withdrawn_.fetch_add(1, std::memory_order_relaxed);
    --missing;
  }
}

Result<bool> BatchRunner::StartOne() {
  const SchedulerStats stats = options_.stats();
  if (std::ssize(running_) >= options_.parallel || stats.waiting > 0 ||
      stats.running + stats.background_waiting >= options_.parallel) {
    return false;
  }
  for (Active& active : active_) {
    if (active.lines.empty() && !active.all_taken) {
      ASSIGN_OR_RETURN(std::vector<BatchLine> lines,
                       store_.LinesToDo(active.record.number, active.after, kTakenAtOnce));
      active.all_taken = lines.empty();
      if (!lines.empty()) active.after = lines.back().line;
      for (BatchLine& line : lines) active.lines.push_back({.line = std::move(line)});
    }
    if (active.lines.empty()) continue;
    WaitingLine waiting = std::move(active.lines.front());
    active.lines.pop_front();
    StartLine(active, std::move(waiting));
    return true;
  }
  return false;
}

void BatchRunner::StartLine(Active& active, WaitingLine waiting) {
  const BatchLine& line = waiting.line;
  std::string text(static_cast<size_t>(line.bytes), '\0');
  const Status read = active.input.ok()
                          ? active.input->ReadAt(line.offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()})
                          : active.input.status();
  if (!read.ok())
    return Answered(active, line, OpenAiError(500, "the batch's input cannot be read: " + read.message()));
  BatchLineRequest request;
  BatchLineError error;
  if (!ParseBatchLine(text, active.record.endpoint, request, error)) {
    return Answered(active, line, OpenAiError(400, error.message, error.code));
  }
  const Json* const stream = request.body.Find("stream");
  if (stream != nullptr && !stream->is_null() && *stream != Json(false)) {
    return Answered(active, line, OpenAiError(400, "\"stream\" must be false in a batch"));
  }
  HttpRequest http{.method = "POST", .path = active.record.endpoint, .query = {}, .headers = {}, .body = {}};
  http.body = WriteJson(request.body);
  const auto exchange = std::make_shared<LineExchange>(inbox_, active.record.number, line.line);
  ++active.running;
  running_.push_back({.batch = active.record.number, .waiting = std::move(waiting), .exchange = exchange});
  options_.answer(std::move(http), exchange);
}

// ---- the keeper

void BatchRunner::Keep() {
  std::string told;
  while (true) {
    {
      std::unique_lock lock(inbox_->mutex);
      inbox_->wake.wait_for(lock, kKeeperPause, [this] { return inbox_->stopping || inbox_->keeper_woken; });
      if (inbox_->stopping) return;
      inbox_->keeper_woken = false;
    }
    const Status status = KeepOnce();
    if (!status.ok() && status.message() != told) Log(fmt::format("{}; trying again", status.message()));
    told = status.message();
  }
}

Status BatchRunner::KeepOnce() {
  ASSIGN_OR_RETURN(const std::vector<BatchRecord> open, keeper_store_.OpenBatches());
  // One batch that cannot go on holds up no other.
  Status status;
  const auto keep_first = [&status](const BatchRecord& batch, const Status& its) {
    if (status.ok()) status = its.WithContext(batch.id);
    return its.ok();
  };
  for (const BatchRecord& batch : open) {
    if (Stopping()) return Status();
    if (batch.ending) {
      keep_first(batch, WriteFiles(batch));
    } else if (batch.status == BatchStatus::kValidating && keep_first(batch, Validate(batch))) {
      const std::lock_guard lock(inbox_->mutex);
      inbox_->feeder_woken = true;
      inbox_->wake.notify_all();
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> expired, keeper_store_.FilesExpiredBy(UnixTime()));
  for (const std::string& id : expired) {
    const Result<BatchStore::Deletion> deleted = keeper_store_.DeleteFile(id);
    RETURN_IF_ERROR(deleted.status());
  }
  while (!Stopping()) {
    ASSIGN_OR_RETURN(const bool more, keeper_store_.CleanSome());
    if (!more) break;
  }
  return status;
}

Status BatchRunner::Validate(const BatchRecord& batch) {
  RETURN_IF_ERROR(keeper_store_.ForgetLines(batch.number));
  Json::Array errors;
  const auto add_error = [&errors](const BatchLineError& error, int64_t line) {
    if (errors.size() < kMostErrors) errors.push_back(ErrorJson(error, line));
  };
  std::vector<BatchLine> lines;
  int64_t total = 0;
  const auto add_lines = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::vector<BatchLine> again, keeper_store_.AddLines(batch.number, lines));
    for (const BatchLine& line : again) {
      add_error({.code = "duplicate_custom_id",
                 .message = "The custom_id for this request is a duplicate of another request. The custom_id parameter "
                            "must be unique for each request in a batch.",
                 .param = "custom_id"},
                line.line);
    }
    lines.clear();
    return Status();
  };
  const Result<File> file = keeper_store_.OpenFile(batch.input_file_id);
  if (!file.ok()) {
    add_error({.code = "file_not_readable", .message = file.status().message(), .param = "input_file_id"}, 0);
  } else {
    BatchLineReader reader(*file);
    while (errors.size() < kMostErrors) {
      if (Stopping()) return Status();
      ASSIGN_OR_RETURN(const bool more, reader.Next());
      if (!more) break;
      if (!reader.too_long() && reader.text().find_first_not_of(" \t\r") == std::string_view::npos) continue;
      BatchLineRequest request;
      BatchLineError error{.code = "invalid_json_line",
                           .message = fmt::format("This line is longer than {} bytes.", kMostBatchLineBytes),
                           .param = {}};
      if (++total > kMostBatchLines) {
        add_error({.code = "too_many_tasks",
                   .message = fmt::format("The file has more than {} requests.", kMostBatchLines),
                   .param = {}},
                  0);
        break;
      }
      if (reader.too_long() || !ParseBatchLine(reader.text(), batch.endpoint, request, error)) {
        add_error(error, reader.line());
        continue;
      }
      lines.push_back({.line = reader.line(),
                       .custom_id = std::move(request.custom_id),
                       .offset = reader.offset(),
                       .bytes = reader.bytes()});
      if (lines.size() >= kCheckedAtOnce) RETURN_IF_ERROR(add_lines());
    }
    RETURN_IF_ERROR(add_lines());
    if (total == 0) add_error({.code = "empty_file", .message = "The file has no request.", .param = {}}, 0);
  }
  if (errors.empty()) return keeper_store_.StartBatch(batch.number, total, UnixTime());
  std::stable_sort(errors.begin(), errors.end(), [](const Json& a, const Json& b) {
    const auto line_of = [](const Json& error) {
      const Json& line = *error.Find("line");
      return line.is_int() ? line.as_int() : 0;
    };
    return line_of(a) < line_of(b);
  });
  return keeper_store_.FailBatch(
      batch.number, WriteJson(Json(Json::Object{{"object", "list"}, {"data", std::move(errors)}})), UnixTime());
}

Status BatchRunner::WriteFiles(const BatchRecord& batch) {
  // What clients download: one file of answers, one of errors, each only where there is one.
  struct Output {
    const char* suffix;
    FileRecord record{};
    std::optional<AtomicFile> file{};
    std::string pending{};
    bool any = false;
  };
  Output outputs[] = {{.suffix = "output"}, {.suffix = "error"}};
  const int64_t now = UnixTime();
  const auto flush = [&](Output& output) -> Status {
    if (!output.file) {
      output.record = {.id = "file-" + NewId(32),
                       .created_at = now,
                       .filename = fmt::format("{}_{}.jsonl", batch.id, output.suffix),
                       .purpose = "batch_output"};
      if (batch.output_expires_after_s) output.record.expires_at = now + *batch.output_expires_after_s;
      ASSIGN_OR_RETURN(output.file, keeper_store_.CreateFile(output.record.id));
    }
    RETURN_IF_ERROR(output.file->Append(output.pending));
    output.record.bytes += std::ssize(output.pending);
    output.pending.clear();
    return Status();
  };
  // One that was cancelled before it began has not run, whatever is known of its lines.
  if (batch.in_progress_at) {
    ASSIGN_OR_RETURN(Statement rows, keeper_store_.Answers(batch.number));
    while (true) {
      if (Stopping()) return Status();
      ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      const bool answered = !rows.IsNull(2);
      Output& output = outputs[!answered || rows.Int64(2) != 0 ? 1 : 0];
      output.pending += answered ? std::string(rows.Text(3)) : NotRunText(batch, rows.Int64(0), rows.Text(1));
      output.pending += '\n';
      output.any = true;
      if (output.pending.size() >= kWrittenAtOnce) RETURN_IF_ERROR(flush(output));
    }
  }
  std::optional<FileRecord> records[2];
  Status status;
  for (size_t i = 0; i < 2 && status.ok(); ++i) {
    if (!outputs[i].any) continue;
    status = flush(outputs[i]);
    if (status.ok()) status = outputs[i].file->Commit();
    if (status.ok()) records[i] = outputs[i].record;
  }
  if (status.ok()) status = keeper_store_.EndBatch(batch, records[0], records[1], now);
  if (status.ok()) return status;
  for (const std::optional<FileRecord>& record : records) {
    if (record) keeper_store_.DiscardFile(record->id);
  }
  return status;
}

}  // namespace nunspark::server
