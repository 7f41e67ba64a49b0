// Work of minutes or hours that the page starts: packing, downloading. One at a time, on a thread of its own, with
// figures of how far it is.
#ifndef NUNSPARK_SERVER_LONG_TASK_H_
#define NUNSPARK_SERVER_LONG_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "hub/environment.h"
#include "hub/repo_ref.h"
#include "nunspark/status.h"

namespace nunspark::server {

// Thread-safe.
class LongTask {
 public:
  LongTask() = default;
  // Stops what runs; it goes on where it was when it is asked for again.
  ~LongTask();
  LongTask(const LongTask&) = delete;

  // Does `work` in the thread, then calls `done` from there. `kind` ("pack", "pull"), `source` and `target` are for the
  // state. Errors: kInvalidArgument while another one runs.
  using Work = std::function<Result<Json>(LongTask& task)>;
  Status Start(const std::string& kind, const std::string& source, const std::string& target, Work work,
               std::function<void(Result<Json>)> done);
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  // For the work: bytes done and in all; and whether to stop.
  void Update(int64_t done, int64_t total);
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // {"state": "idle" | "running" | "done" | "cancelled" | "error", "kind", "source", "target", "done", "total", "rate",
  // "eta_s", "error"}: bytes, bytes per second. Of the last one, when none runs.
  Json StateJson() const;

 private:
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex_;
  std::string state_ = "idle", kind_, source_, target_, error_;
  int64_t done_ = 0, total_ = 0;
  // Where the rate is counted from: what goes on starts in the middle.
  int64_t first_done_ = -1;
  Clock::time_point first_{}, last_{};
  std::atomic<bool> cancelled_{false};
  std::thread thread_;
};

// {"out_dir", "num_layers"}. Errors: Pack's, and those of opening `source`.
Result<Json> PackModel(const std::string& source, const std::string& out_dir, LongTask& task);

// {"path"}: what opens the model. Errors: Pull's.
Result<Json> PullModel(const HubEnvironment& hub, const RepoRef& ref, LongTask& task);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_LONG_TASK_H_
