#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "decode/sequence_run.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at the engine's counters: taking them costs as much as a small step.
constexpr std::chrono::milliseconds kStatsEvery{200};

class SchedulerImpl : public Scheduler {
 public:
  explicit SchedulerImpl(SchedulerTarget target)
      : target_(std::move(target)),
        group_target_(Adjusted(target_.target(stop_))),
        group_(group_target_, Callbacks()),
        engine_stats_(target_.engine_stats()) {
    for (int32_t tag = group_target_.max_sequences - 1; tag >= 0; --tag) free_tags_.push_back(tag);
    running_.resize(free_tags_.size());
    thread_ = std::thread([this] { Run(); });
  }

  ~SchedulerImpl() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      stop_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_one();
    thread_.join();
    target_.on_close();
  }

  Result<uint64_t> Submit(SequenceRequest request, RequestCallbacks callbacks, Urgency urgency,
                          TimePoint start_by) override {
    CHECK(callbacks.on_end != nullptr);
    RETURN_IF_ERROR(Check(request));
    {
      const std::lock_guard lock(mutex_);
      std::deque<Request>& queue = QueueOf(urgency);
      if (static_cast<int64_t>(queue.size()) >= target_.options.queue) {
        return ResourceExhaustedError(
            fmt::format("{} requests wait already, as many as the queue takes; try again later", queue.size()));
      }
      queue.push_back({.id = ++last_id_,
                       .urgency = urgency,
                       .start_by = start_by,
                       .request = std::move(request),
                       .callbacks = std::move(callbacks)});
      CountWaiting();
      wake_.notify_one();
      return last_id_;
    }
  }

  void Cancel(uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    wake_.notify_one();
  }

  SchedulerStats stats() const override {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  EngineStats engine_stats() const override {
    const std::lock_guard lock(mutex_);
    return engine_stats_;
  }

 private:
  struct Request {
    uint64_t id = 0;
    Urgency urgency = Urgency::kNormal;
    TimePoint start_by;
    SequenceRequest request;
    RequestCallbacks callbacks;
  };
  // One that has joined the group.
  struct Running {
    uint64_t id = 0;  // 0: none
    Urgency urgency = Urgency::kNormal;
    int64_t positions = 0;
    RequestCallbacks callbacks;
  };

  std::deque<Request>& QueueOf(Urgency urgency) {
    return urgency == Urgency::kBackground ? background_waiting_ : waiting_;
  }
  // REQUIRES: mutex_ is held.
  void CountWaiting() {
    counts_.waiting = std::ssize(waiting_);
    counts_.background_waiting = std::ssize(background_waiting_);
  }
  // REQUIRES: mutex_ is held, by the thread.
  void CountRunning() {
    counts_.running = group_.size();
    counts_.background_running = std::count_if(running_.begin(), running_.end(), [](const Running& running) {
      return running.id != 0 && running.urgency == Urgency::kBackground;
    });
  }

  GroupTarget Adjusted(GroupTarget target) const {
    target.step_target_s = target_.options.step_target_s;
    return target;
  }

  // The last token is not processed, so it needs none.
  static int64_t PositionsOf(const SequenceRequest& request) {
    return AlignUp(std::ssize(request.prompt) + request.options.max_tokens - 1, kKvBlockPositions);
  }

  Status Check(const SequenceRequest& request) const {
    RETURN_IF_ERROR(CheckGenerateOptions(request.options, target_.vocab_size));
    RETURN_IF_ERROR(CheckTokens(request.prompt, target_.vocab_size));
    return CheckContext(std::ssize(request.prompt), request.options.max_tokens, group_target_.context);
  }

  GroupCallbacks Callbacks() {
    return {.on_token =
                [this](int32_t tag, const GeneratedToken& token) {
                  ++tokens_;
                  const RequestCallbacks& callbacks = running_[static_cast<size_t>(tag)].callbacks;
                  return !callbacks.on_token || callbacks.on_token(token);
                },
            .on_prompt =
                [this](int32_t tag, int64_t done, int64_t total) {
                  const RequestCallbacks& callbacks = running_[static_cast<size_t>(tag)].callbacks;
                  return !callbacks.on_prompt || callbacks.on_prompt(done, total);
                },
            .on_end =
                [this](int32_t tag, Result<GenerateResult> result) {
                  Running ended = std::exchange(running_[static_cast<size_t>(tag)], {});
                  free_tags_.push_back(tag);
                  positions_ -= ended.positions;
                  ended.callbacks.on_end(std::move(result));
                }};
  }

  void Run() {
    while (true) {
      std::vector<uint64_t> cancelled;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] {
          return stopping_ || !cancelled_.empty() || !waiting_.empty() || !background_waiting_.empty() ||
                 !group_.empty();
        });
        if (stopping_) break;
        cancelled.swap(cancelled_);
      }
      for (const uint64_t id : cancelled) CancelNow(id);
      EndLate();
      Admit();
      if (!group_.empty()) Step();
    }
    group_.EndAll(Status());
    std::deque<Request> waiting, background_waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(waiting_);
      background_waiting.swap(background_waiting_);
    }
    for (Request& request : waiting) EndUnstarted(request);
    for (Request& request : background_waiting) EndUnstarted(request);
  }

  void Step() {
    Status status = group_.Step();
    if (status.code() == StatusCode::kCancelled) return;
    if (status.ok()) status = target_.after_step();
    if (!status.ok()) group_.EndAll(status);
    const bool look = group_.empty() || Clock::now() - looked_ >= kStatsEvery;
    EngineStats engine = look ? target_.engine_stats() : EngineStats{};
    const std::lock_guard lock(mutex_);
    ++counts_.steps;
    counts_.tokens = tokens_;
    CountRunning();
    if (!look) return;
    engine_stats_ = std::move(engine);
    looked_ = Clock::now();
  }

  // Requests in their order, as long as there is a place and room for all that each may become.
  void Admit() {
    while (true) {
      Request next;
      {
        const std::lock_guard lock(mutex_);
        std::deque<Request>& queue = waiting_.empty() ? background_waiting_ : waiting_;
        if (queue.empty() || free_tags_.empty()) break;
        const int64_t positions = PositionsOf(queue.front().request);
        if (!group_.empty() && positions_ + positions > target_.kv_tokens) break;
        next = std::move(queue.front());
        queue.pop_front();
        CountWaiting();
      }
      const int32_t tag = free_tags_.back();
      const Status joined = group_.Join(tag, next.request);
      if (!joined.ok()) {
        next.callbacks.on_end(joined);
        continue;
      }
      free_tags_.pop_back();
      const int64_t positions = PositionsOf(next.request);
      positions_ += positions;
      running_[static_cast<size_t>(tag)] = {
          .id = next.id, .urgency = next.urgency, .positions = positions, .callbacks = std::move(next.callbacks)};
    }
    const std::lock_guard lock(mutex_);
    CountRunning();
  }

  void CancelNow(uint64_t id) {
    for (size_t tag = 0; tag < running_.size(); ++tag) {
      if (running_[tag].id == id) return group_.Leave(static_cast<int32_t>(tag));
    }
    Request found;
    {
      const std::lock_guard lock(mutex_);
      for (std::deque<Request>* const queue : {&waiting_, &background_waiting_}) {
        const auto at =
            std::find_if(queue->begin(), queue->end(), [id](const Request& request) { return request.id == id; });
        if (at == queue->end()) continue;
        found = std::move(*at);
        queue->erase(at);
        CountWaiting();
        break;
      }
      if (found.id == 0) return;
    }
    EndUnstarted(found);
  }

  void EndLate() {
    const auto in_time = [now = Clock::now()](const Request& request) { return request.start_by > now; };
    std::vector<Request> late;
    {
      const std::lock_guard lock(mutex_);
      for (std::deque<Request>* const queue : {&waiting_, &background_waiting_}) {
        // Nearly always, and then nothing is moved.
        if (std::all_of(queue->begin(), queue->end(), in_time)) continue;
        const auto from = std::stable_partition(queue->begin(), queue->end(), in_time);
        std::move(from, queue->end(), std::back_inserter(late));
        queue->erase(from, queue->end());
      }
      CountWaiting();
    }
    for (Request& request : late) EndUnstarted(request);
  }

  static void EndUnstarted(Request& request) {
    GenerateResult result;
    result.finish_reason = FinishReason::kCancelled;
    result.prompt_tokens = std::ssize(request.request.prompt);
    request.callbacks.on_end(std::move(result));
  }

  const SchedulerTarget target_;
  std::atomic<bool> stop_{false};  // ends a step between layers
  const GroupTarget group_target_;

  // Of the thread.
  SequenceGroup group_;
  std::vector<Running> running_;  // [tag]
  std::vector<int32_t> free_tags_;
  int64_t positions_ = 0;  // of all that run
  int64_t tokens_ = 0;
  Clock::time_point looked_{};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Request> waiting_, background_waiting_;
  std::vector<uint64_t> cancelled_;
  uint64_t last_id_ = 0;
  bool stopping_ = false;
  SchedulerStats counts_;
  EngineStats engine_stats_;

  std::thread thread_;
};

}  // namespace

Status CheckSchedulerOptions(const SchedulerOptions& options) {
  if (options.queue < 1) {
    return InvalidArgumentError(fmt::format("the queue must take at least 1 request, found {}", options.queue));
  }
  if (options.step_target_s >= 0) return Status();
  return InvalidArgumentError(fmt::format("a step's target must not be negative, found {} s", options.step_target_s));
}

Result<std::unique_ptr<Scheduler>> MakeScheduler(SchedulerTarget target) {
  try {
    return std::unique_ptr<Scheduler>(std::make_unique<SchedulerImpl>(std::move(target)));
  } catch (const std::system_error& error) {
    return ResourceExhaustedError(
        fmt::format("the system refuses a thread for the scheduler: {}", error.code().message()));
  }
}

}  // namespace nunspark
