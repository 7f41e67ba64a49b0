#include "server/job_queue.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "server/answers.h"
#include "server/event_stream.h"

namespace nunspark::server {
namespace {

constexpr int64_t kMetricsEvery = 8;  // tokens
constexpr size_t kMostWaiting = 100'000;
constexpr size_t kMostEnded = 10'000;

// Positions of keys and values come in blocks.
constexpr int64_t kBlock = 64;

// Between two looks at whether the scheduler has counted a step.
constexpr std::chrono::milliseconds kLook{1};
constexpr int kMostLooks = 300;

// To whoever listens while nothing happens.
constexpr const char* kKeepAlive = ":\n\n";

Json JobEvent(std::string_view type, const Job& job) { return Json::Object{{"type", type}, {"job", ToJson(job)}}; }

Json TokenEvent(const std::string& id, std::string text) {
  return Json::Object{{"type", "token"}, {"job_id", id}, {"text", std::move(text)}};
}

Json MetricsEvent(const std::string& id, Json metrics) {
  return Json::Object{{"type", "metrics"}, {"job_id", id}, {"metrics", std::move(metrics)}};
}

void DropClosed(std::vector<std::shared_ptr<Exchange>>& listeners) {
  std::erase_if(listeners, [](const std::shared_ptr<Exchange>& listener) { return listener->closed(); });
}

void NoteUnsaved(const Job& job, const Status& status) {
  std::fprintf(stderr, "Note: the state of job %s is not kept: %s\n", job.id.c_str(), status.message().c_str());
}

double Seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// A job on its way through an engine. Its thread is the queue's, but between Submit and `ended` the scheduler's.
struct JobQueue::Row {
  std::string id;
  std::shared_ptr<const JobRequest> request;
  const TextModel* model = nullptr;
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  JobOutput output;
  std::unique_ptr<ModelFiles::TextStream> stream{};
  std::atomic<bool> cancelled{false};

  // Of one attempt.
  int32_t group_size = 1;
  EngineStats before{};
  int64_t steps_before = 0, tokens_before = 0;
  int64_t tokens = 0;
  Clock::time_point first{}, last{};
  Status failure{};  // of the output

  // Guarded by the queue's mutex.
  Scheduler* scheduler = nullptr;
  uint64_t request_id = 0;
  bool ended = false;
  int64_t ended_at_step = 0;
  std::optional<Result<GenerateResult>> result{};
};

Result<std::unique_ptr<JobQueue>> JobQueue::Open(const std::string& folder, EngineSource& source) {
  ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Open(folder));
  std::unique_ptr<JobQueue> queue(new JobQueue(std::move(store), source));
  ASSIGN_OR_RETURN(std::vector<Job> jobs, queue->store_->LoadJobs());
  for (Job& job : jobs) {
    if (job.status == JobStatus::kRunning) {
      job.status = JobStatus::kQueued;
      job.tokens_done = 0;
    }
    queue->sequences_[job.id] = job.sequence;
    queue->entries_[job.sequence].job = std::move(job);
  }
  return queue;
}

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  source_.Stop();
  if (thread_.joinable()) thread_.join();
  // Whoever listens hears nothing more.
  for (auto& [sequence, entry] : entries_) {
    for (const std::shared_ptr<Exchange>& listener : entry.listeners) listener->End();
  }
  for (const std::shared_ptr<Exchange>& listener : listeners_) listener->End();
}

void JobQueue::Start() {
  thread_ = std::thread([this] { Run(); });
}

JobQueue::Entry* JobQueue::Find(const std::string& id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &entries_.at(found->second);
}

Result<std::vector<Job>> JobQueue::Submit(JobRequest request) {
  std::vector<Job> jobs;
  const auto shared = std::make_shared<const JobRequest>(std::move(request));
  const std::string request_id = NewId(32);
  for (const std::string& file_id : shared->file_ids) {
    Result<std::string> name = store_->FileName(file_id);
    if (name.status().code() == StatusCode::kNotFound) {
      return InvalidArgumentError("\"file_ids\": " + name.status().message());
    }
    RETURN_IF_ERROR(name.status());
    jobs.push_back({.id = NewId(32),
                    .request_id = request_id,
                    .file_id = file_id,
                    .file_name = *name,
                    .created = UnixTime(),
                    .request = shared});
  }
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() + jobs.size() > kMostWaiting) {
      return ResourceExhaustedError(fmt::format("{} jobs are in the list, as many as it takes", entries_.size()));
    }
  }
  std::vector<std::string> oldest;
  {
    const std::lock_guard saving(save_mutex_);
    RETURN_IF_ERROR(store_->AddJobs(jobs));
    const std::lock_guard lock(mutex_);
    size_t ended = 0;
    for (const Job& job : jobs) {
      sequences_[job.id] = job.sequence;
      entries_[job.sequence].job = job;
      Tell(entries_[job.sequence], JobEvent("queued", job));
    }
    for (const auto& [sequence, entry] : entries_) ended += Ended(entry.job.status) ? 1 : 0;
    for (auto at = entries_.begin(); at != entries_.end() && ended > kMostEnded;) {
      if (at->second.job.ended == 0 || !at->second.listeners.empty()) {
        ++at;
        continue;
      }
      oldest.push_back(at->second.job.id);
      sequences_.erase(at->second.job.id);
      at = entries_.erase(at);
      --ended;
    }
  }
  changed_.notify_all();
  if (oldest.empty()) return jobs;
  // They will be forgotten again: these jobs run all the same.
  if (const Status removed = store_->Remove(oldest); !removed.ok()) {
    std::fprintf(stderr, "Note: old jobs are still in the list's file: %s\n", removed.message().c_str());
  }
  return jobs;
}

std::vector<Job> JobQueue::Jobs() const {
  const std::lock_guard lock(mutex_);
  std::vector<Job> jobs;
  jobs.reserve(entries_.size());
  for (const auto& [sequence, entry] : entries_) jobs.push_back(entry.job);
  return jobs;
}

Result<int64_t> JobQueue::Clear() {
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    // What is being ended has no time of its end yet, and is still needed.
    std::erase_if(entries_, [&](const auto& item) {
      if (item.second.job.ended == 0 || !item.second.listeners.empty()) return false;
      ids.push_back(item.second.job.id);
      return true;
    });
    for (const std::string& id : ids) sequences_.erase(id);
  }
  if (!ids.empty()) RETURN_IF_ERROR(store_->Remove(ids));
  return std::ssize(ids);
}

void JobQueue::Wake() {
  {
    const std::lock_guard lock(mutex_);
    nudged_ = true;
  }
  changed_.notify_all();
}

bool JobQueue::Cancel(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    Entry* const entry = Find(id);
    if (entry == nullptr) return false;
    if (Ended(entry->job.status)) return true;
    if (entry->job.status == JobStatus::kRunning) {
      // Before it has a row it is looked at again (Begin).
      if (entry->row == nullptr) {
        entry->cancel_wanted = true;
        return true;
      }
      entry->row->cancelled.store(true, std::memory_order_relaxed);
      if (entry->row->scheduler != nullptr) entry->row->scheduler->Cancel(entry->row->request_id);
      return true;
    }
    entry->job.status = JobStatus::kCancelled;
  }
  End(id, JobStatus::kCancelled, "");
  return true;
}

Result<std::string> JobQueue::OutputPath(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return NotFoundError(fmt::format("there is no job '{}'", id));
  const std::string& path = entries_.at(found->second).job.output_path;
  if (path.empty()) return NotFoundError(fmt::format("job '{}' has written no file", id));
  return path;
}

bool JobQueue::Subscribe(const std::string& id, const std::shared_ptr<Exchange>& exchange) {
  Job job;
  const auto begin = [&exchange] { exchange->Begin(200, kEventStream, EventHeaders(), kKeepAlive); };
  {
    const std::lock_guard lock(mutex_);
    Entry* const entry = Find(id);
    if (entry == nullptr) return false;
    job = entry->job;
    if (!Ended(job.status)) {
      begin();
      if (job.status == JobStatus::kRunning) WriteHistory(*entry, *exchange);
      DropClosed(entry->listeners);
      entry->listeners.push_back(exchange);
      return true;
    }
  }
  begin();
  std::string text;
  if (!job.output_path.empty()) {
    if (Result<std::string> content = ReadRegularFile(job.output_path, {.max_bytes = 6 << 20}); content.ok()) {
      text = std::move(*content);
    }
  }
  WriteHistory({.job = job, .text = std::move(text)}, *exchange);
  exchange->Write(EventText(JobEvent(JobStatusName(job.status), job)));
  exchange->End();
  return true;
}

void JobQueue::SubscribeAll(const std::shared_ptr<Exchange>& exchange) {
  const std::lock_guard lock(mutex_);
  exchange->Begin(200, kEventStream, EventHeaders(), kKeepAlive);
  exchange->Write(kKeepAlive);
  for (const auto& [sequence, entry] : entries_) {
    if (entry.job.status == JobStatus::kRunning) WriteHistory(entry, *exchange);
  }
  DropClosed(listeners_);
  listeners_.push_back(exchange);
}

void JobQueue::WriteHistory(const Entry& entry, Exchange& exchange) {
  const Job& job = entry.job;
  exchange.Write(EventText(JobEvent("started", job)));
  if (!entry.text.empty()) exchange.Write(EventText(TokenEvent(job.id, entry.text)));
  if (!job.metrics.is_null()) exchange.Write(EventText(MetricsEvent(job.id, job.metrics)));
}

void JobQueue::Tell(Entry& entry, const Json& event) {
  if (entry.listeners.empty() && listeners_.empty()) return;
  const std::string text = EventText(event);
  for (const std::shared_ptr<Exchange>& listener : entry.listeners) listener->Write(text);
  for (const std::shared_ptr<Exchange>& listener : listeners_) listener->Write(text);
}

void JobQueue::Save(const std::string& id) {
  const std::lock_guard saving(save_mutex_);
  Job job;
  {
    const std::lock_guard lock(mutex_);
    const Entry* const entry = Find(id);
    if (entry == nullptr) return;
    job = entry->job;
  }
  if (const Status saved = store_->Update(job); !saved.ok()) NoteUnsaved(job, saved);
}

// The sidecar, then the state, then the event: who hears of the end finds everything there.
void JobQueue::End(const std::string& id, JobStatus status, const std::string& error) {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    job = Find(id)->job;
  }
  job.status = status;
  job.error = error;
  job.ended = UnixTime();
  std::string output = job.output_path;
  if (output.empty()) {
    const Result<std::string> path = FreeOutputPath(job.request->output_dir, job.file_name);
    if (path.ok()) output = *path;
  }
  if (!output.empty()) {
    const Status written = WriteFileAtomically(SidecarPath(output), WriteJson(SidecarJson(job), 2) + "\n");
    if (!written.ok() && job.status == JobStatus::kDone) {
      job.status = JobStatus::kError;
      job.error = written.message();
    }
  }
  {
    const std::lock_guard saving(save_mutex_);
    if (const Status saved = store_->Update(job); !saved.ok()) NoteUnsaved(job, saved);
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = *Find(id);
  entry.job = job;
  entry.text = {};
  entry.row.reset();
  Tell(entry, JobEvent(JobStatusName(job.status), job));
  for (const std::shared_ptr<Exchange>& listener : entry.listeners) listener->End();
  entry.listeners.clear();
}

void JobQueue::Run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return stopping_ || nudged_ || std::any_of(entries_.begin(), entries_.end(), [](const auto& item) {
                 return item.second.job.status == JobStatus::kQueued;
               });
      });
      if (stopping_) return;
      nudged_ = false;
    }
    source_.BetweenGroups();
    const std::vector<std::string> group = TakeGroup();
    if (!group.empty()) RunGroup(group);
  }
}

bool JobQueue::Stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

// Takes what waits already and never waits for more.
std::vector<std::string> JobQueue::TakeGroup() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> group;
  const JobRequest* first = nullptr;
  for (auto& [sequence, entry] : entries_) {
    if (entry.job.status != JobStatus::kQueued) continue;
    if (first != nullptr && (std::ssize(group) >= kMostGrouped || !first->GroupsWith(*entry.job.request))) break;
    first = entry.job.request.get();
    entry.job.status = JobStatus::kRunning;
    group.push_back(entry.job.id);
  }
  return group;
}

void JobQueue::RunGroup(const std::vector<std::string>& ids) {
  std::vector<std::shared_ptr<Row>> rows;
  for (const std::string& id : ids) {
    if (Stopping()) return;
    if (std::shared_ptr<Row> row = Begin(id)) rows.push_back(std::move(row));
  }
  if (rows.empty()) return;
  for (const std::shared_ptr<Row>& row : Decode(rows)) {
    if (Stopping()) return;
    Decode({row});
  }
}

std::shared_ptr<JobQueue::Row> JobQueue::Begin(const std::string& id) {
  Save(id);
  Job job;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = *Find(id);
    job = entry.job;
    Tell(entry, JobEvent("started", job));
  }
  Result<std::shared_ptr<Row>> made = MakeRow(job);
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = *Find(id);
    cancelled = entry.cancel_wanted;
    if (made.ok()) {
      const Row& row = **made;
      entry.job.output_path = row.output.path();
      entry.row = *made;
      entry.text = row.output.earlier();
      if (!entry.text.empty()) Tell(entry, TokenEvent(id, entry.text));
    }
  }
  if (cancelled || !made.ok()) {
    End(id, cancelled ? JobStatus::kCancelled : JobStatus::kError, cancelled ? "" : made.status().message());
    return nullptr;
  }
  Save(id);
  return std::move(made).value();
}

// Checks of the file come before the model is looked at, those of the prompt before its weights are.
Result<std::shared_ptr<JobQueue::Row>> JobQueue::MakeRow(const Job& job) {
  const JobRequest& request = *job.request;
  ASSIGN_OR_RETURN(const std::string content, store_->ReadUpload(job.file_id));
  RETURN_IF_ERROR(CheckTextFile(content));
  ASSIGN_OR_RETURN(const TextModel* const model, source_.OpenModel(request.model));
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                   model->Encode(PromptText(request.instruction, content), request.use_chat_template));
  if (prompt.empty()) return InvalidArgumentError("the file is empty, and so is the instruction");
  ASSIGN_OR_RETURN(const int64_t budget, source_.BudgetBytes(request.budget));
  RETURN_IF_ERROR(
      CheckPromptLength(std::ssize(prompt), MakePromptLimit(source_.ram_bytes(), budget, model->kv_bytes_per_token(),
                                                            request.max_prompt_tokens.value_or(0))));
  int64_t max_tokens = request.max_tokens;
  if (model->max_context() > 0) {
    const int64_t room = model->max_context() - std::ssize(prompt);
    if (room < 1) {
      return InvalidArgumentError(
          fmt::format("the prompt has {} tokens; this model takes {} together with its answer; give a shorter file",
                      prompt.size(), model->max_context()));
    }
    max_tokens = std::min(max_tokens, room);
  }
  ASSIGN_OR_RETURN(JobOutput output, JobOutput::Resume(job.output_path, request.output_dir, job.file_name));
  return std::shared_ptr<Row>(new Row{.id = job.id,
                                      .request = job.request,
                                      .model = model,
                                      .prompt = std::move(prompt),
                                      .max_tokens = static_cast<int32_t>(max_tokens),
                                      .output = std::move(output)});
}

std::vector<std::shared_ptr<JobQueue::Row>> JobQueue::Decode(const std::vector<std::shared_ptr<Row>>& rows) {
  EngineRoom room;
  for (const std::shared_ptr<Row>& row : rows) {
    const int64_t positions = AlignUp(std::ssize(row->prompt) + row->max_tokens, kBlock);
    room.context = std::max(room.context, positions);
    room.kv_tokens += positions;
  }
  const Result<Scheduler*> scheduler = source_.OpenEngine(rows.front()->request->Settings(), room);
  if (!scheduler.ok()) {
    const bool stop = Stopping();
    for (const std::shared_ptr<Row>& row : rows) {
      const bool cancelled = row->cancelled.load(std::memory_order_relaxed);
      // Stays "running" for the next process.
      if (stop && !cancelled) continue;
      End(row->id, cancelled ? JobStatus::kCancelled : JobStatus::kError,
          cancelled ? "" : scheduler.status().message());
    }
    return {};
  }
  for (const std::shared_ptr<Row>& row : rows) SubmitRow(**scheduler, row, static_cast<int32_t>(rows.size()));

  std::vector<std::shared_ptr<Row>> failed, left = rows;
  while (!left.empty()) {
    std::vector<std::shared_ptr<Row>> ended;
    bool stop = false;
    {
      std::unique_lock lock(mutex_);
      const auto has_ended = [](const std::shared_ptr<Row>& row) { return row->ended; };
      changed_.wait(lock, [&] { return stopping_ || std::any_of(left.begin(), left.end(), has_ended); });
      stop = stopping_;
      if (stop) {
        for (const std::shared_ptr<Row>& row : left) {
          if (!row->ended) (*scheduler)->Cancel(row->request_id);
        }
        changed_.wait(lock, [&] { return std::all_of(left.begin(), left.end(), has_ended); });
      }
      std::copy_if(left.begin(), left.end(), std::back_inserter(ended), has_ended);
      std::erase_if(left, has_ended);
    }
    for (const std::shared_ptr<Row>& row : ended) {
      const Result<GenerateResult>& result = *row->result;
      const bool cancelled = row->cancelled.load(std::memory_order_relaxed);
      // Stays "running" for the next process.
      if (stop && !cancelled && row->failure.ok() && result.ok() && result->finish_reason == FinishReason::kCancelled) {
        continue;
      }
      if (rows.size() > 1 && !cancelled && row->failure.ok() && !result.ok() && !stop) {
        failed.push_back(row);
      } else {
        EndRow(*row, **scheduler);
      }
    }
  }
  return failed;
}

void JobQueue::SubmitRow(Scheduler& scheduler, const std::shared_ptr<Row>& row, int32_t group_size) {
  row->group_size = group_size;
  row->tokens = 0;
  row->before = scheduler.engine_stats();
  row->tokens_before = scheduler.stats().tokens;
  row->failure = row->stream == nullptr ? Status() : row->output.Restart();
  Result<std::unique_ptr<ModelFiles::TextStream>> stream = row->model->NewTextStream();
  if (stream.ok()) row->stream = std::move(*stream);
  const std::lock_guard lock(mutex_);
  row->ended = false;
  row->result.reset();
  const auto fail = [&row](const Status& status) {
    row->result = status;
    row->ended = true;
  };
  if (row->cancelled.load(std::memory_order_relaxed)) {
    GenerateResult none;
    none.finish_reason = FinishReason::kCancelled;
    row->result = std::move(none);
    row->ended = true;
    return;
  }
  if (!stream.ok()) return fail(stream.status());
  if (!row->failure.ok()) return fail(row->failure);
  GenerateOptions options{.max_tokens = row->max_tokens};
  options.sampling.temperature = row->request->temperature;
  Result<uint64_t> submitted = scheduler.Submit(
      {.prompt = row->prompt, .options = options},
      {.on_token = [this, row,
                    &scheduler](const GeneratedToken& token) { return OnToken(*row, scheduler, token.token); },
       .on_prompt = [row](int64_t, int64_t) { return !row->cancelled.load(std::memory_order_relaxed); },
       .on_end =
           [this, row, &scheduler](Result<GenerateResult> result) {
             const int64_t step = scheduler.stats().steps;
             // Told under the lock: the queue may end once this row has.
             const std::lock_guard ending(mutex_);
             row->ended_at_step = step;
             row->result = std::move(result);
             row->ended = true;
             row->scheduler = nullptr;
             changed_.notify_all();
           }});
  if (!submitted.ok()) return fail(submitted.status());
  row->request_id = *submitted;
  row->scheduler = &scheduler;
}

bool JobQueue::OnToken(Row& row, const Scheduler& scheduler, int32_t token) {
  row.last = Clock::now();
  if (row.tokens++ == 0) row.first = row.last;
  if (!row.model->EndsOutput(token)) {
    Result<std::string> fresh = row.output.Append(row.stream->Push(token));
    if (!fresh.ok()) {
      row.failure = fresh.status();
      return false;
    }
    const std::lock_guard lock(mutex_);
    Entry& entry = *Find(row.id);
    entry.job.tokens_done = row.tokens;
    if (!fresh->empty()) {
      entry.text += *fresh;
      Tell(entry, TokenEvent(row.id, std::move(*fresh)));
    }
  }
  if (row.tokens % kMetricsEvery == 0) {
    Json metrics = MetricsOf(row, scheduler);
    const std::lock_guard lock(mutex_);
    Entry& entry = *Find(row.id);
    entry.job.metrics = metrics;
    Tell(entry, MetricsEvent(row.id, std::move(metrics)));
  }
  return !row.cancelled.load(std::memory_order_relaxed);
}

// What this job did; of a group, what it did while the job ran.
Json JobQueue::MetricsOf(const Row& row, const Scheduler& scheduler) const {
  constexpr double kGb = 1e9, kMb = 1e6;
  const EngineStats now = scheduler.engine_stats();
  const double seconds = Seconds(row.last - row.first);
  const auto delta = [](int64_t after, int64_t before) { return static_cast<double>(after - before); };
  Json metrics(Json::Object{{"tokens", row.tokens},
                            {"tok_per_s", seconds > 0 ? static_cast<double>(row.tokens - 1) / seconds : 0.0},
                            {"peak_mem_gb", static_cast<double>(now.process_peak_bytes) / kGb},
                            {"weight_peak_gb", static_cast<double>(now.cache.resident_peak_bytes) / kGb},
                            {"kv_peak_gb", static_cast<double>(now.kv.resident_peak_bytes) / kGb}});
  const double hits = delta(now.cache.expert.hits, row.before.cache.expert.hits);
  const double used = hits + delta(now.cache.expert.misses, row.before.cache.expert.misses);
  if (used > 0) {
    const double tokens = std::max(1.0, delta(scheduler.stats().tokens, row.tokens_before));
    metrics.Set("expert_hit_pct", 100 * hits / used);
    metrics.Set("mb_per_token", delta(now.cache.bytes_read(), row.before.cache.bytes_read()) / tokens / kMb);
  }
  if (row.group_size > 1) {
    metrics.Set("batched", true);
    metrics.Set("batch_size", int64_t{row.group_size});
  }
  if (row.result && row.result->ok()) {
    const GenerateResult& result = **row.result;
    if (!row.request->draft.empty() && result.drafts.passes > 0) {
      const DraftStats& drafts = result.drafts;
      metrics.Set("multiplier", static_cast<double>(drafts.tokens) / static_cast<double>(drafts.passes));
      metrics.Set("deviation_rate", drafts.accepted > 0
                                        ? static_cast<double>(drafts.off_path) / static_cast<double>(drafts.accepted)
                                        : 0.0);
    }
    metrics.Set("prompt_tokens", result.prompt_tokens);
    metrics.Set("finish_reason", result.finish_reason == FinishReason::kStop     ? "stop"
                                 : result.finish_reason == FinishReason::kLength ? "length"
                                                                                 : "cancelled");
  }
  return metrics;
}

void JobQueue::EndRow(Row& row, const Scheduler& scheduler) {
  Status status = row.failure;
  const Result<GenerateResult>& result = *row.result;
  if (status.ok()) status = result.status();
  const bool cancelled = status.ok() && result->finish_reason == FinishReason::kCancelled;
  // The step that ended it is counted right after.
  for (int i = 0; i < kMostLooks && status.ok() && !cancelled && scheduler.stats().steps <= row.ended_at_step; ++i) {
    std::this_thread::sleep_for(kLook);
  }
  if (status.ok()) {
    Result<std::string> rest = row.stream == nullptr ? std::string() : row.output.Append(row.stream->Finish());
    status = rest.status();
    if (rest.ok() && !rest->empty()) {
      const std::lock_guard lock(mutex_);
      Entry& entry = *Find(row.id);
      entry.text += *rest;
      Tell(entry, TokenEvent(row.id, std::move(*rest)));
    }
    if (status.ok() && !cancelled) status = row.output.Finish();
  }
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = *Find(row.id);
    entry.job.output_path = row.output.path();
    if (row.tokens > 0) {
      entry.job.tokens_done = row.tokens;
      entry.job.metrics = MetricsOf(row, scheduler);
    }
  }
  End(row.id,
      !status.ok() ? JobStatus::kError
      : cancelled  ? JobStatus::kCancelled
                   : JobStatus::kDone,
      status.ok() ? "" : status.message());
}

}  // namespace nunspark::server
