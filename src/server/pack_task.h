// Packing for the page: one model at a time, on a thread of its own, with figures of how far it is.
#ifndef NUNSPARK_SERVER_PACK_TASK_H_
#define NUNSPARK_SERVER_PACK_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark::server {

// Thread-safe.
class PackTask {
 public:
  PackTask() = default;
  // Stops what runs; an unfinished pack goes on where it was when it is asked for again.
  ~PackTask();
  PackTask(const PackTask&) = delete;

  // Packs `source` into `out_dir` and calls `done`, from its thread, with the number of layers. Errors:
  // kInvalidArgument when another model is being packed.
  Status Start(const std::string& source, const std::string& out_dir, std::function<void(Result<int>)> done);
  void Cancel();

  // {"state": "idle" | "running" | "done" | "cancelled" | "error", "source", "out_dir", "done", "total", "rate",
  // "eta_s", "error"}: bytes, bytes per second. Of the last one, when none runs.
  Json StateJson() const;

 private:
  using Clock = std::chrono::steady_clock;
  Result<int> Run(const std::string& source, const std::string& out_dir);

  mutable std::mutex mutex_;
  std::string state_ = "idle", source_, out_dir_, error_;
  int64_t done_ = 0, total_ = 0;
  // Where the rate is counted from: a pack that goes on starts in the middle.
  int64_t first_done_ = -1;
  Clock::time_point first_{}, last_{};
  std::atomic<bool> cancelled_{false};
  std::thread thread_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_PACK_TASK_H_
