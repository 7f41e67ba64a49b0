#include "server/long_task.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "engine/model_files.h"
#include "engine/model_text.h"
#include "hub/pull.h"
#include "pack/packer.h"

namespace nunspark::server {

LongTask::~LongTask() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

Status LongTask::Start(const std::string& kind, const std::string& source, const std::string& target, Work work,
                       std::function<void(Result<Json>)> done) {
  const std::lock_guard lock(mutex_);
  if (state_ == "running") {
    return InvalidArgumentError(fmt::format("{} is being {}ed; one at a time", source_, kind_));
  }
  // It has ended, but for its last lines.
  if (thread_.joinable()) thread_.join();
  state_ = "running";
  kind_ = kind;
  source_ = source;
  target_ = target;
  error_.clear();
  done_ = total_ = 0;
  first_done_ = -1;
  cancelled_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this, work = std::move(work), done = std::move(done)] {
    Result<Json> result = work(*this);
    {
      const std::lock_guard ending(mutex_);
      state_ = result.ok() ? "done" : result.status().code() == StatusCode::kCancelled ? "cancelled" : "error";
      error_ = result.status().message();
    }
    done(std::move(result));
  });
  return Status();
}

void LongTask::Update(int64_t done, int64_t total) {
  const std::lock_guard lock(mutex_);
  last_ = Clock::now();
  if (first_done_ < 0) {
    first_done_ = done;
    first_ = last_;
  }
  done_ = done;
  total_ = total;
}

Json LongTask::StateJson() const {
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(last_ - first_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_ - first_done_) / seconds : 0;
  return Json::Object{{"state", state_},
                      {"kind", kind_},
                      {"source", source_},
                      {"target", target_},
                      {"done", done_},
                      {"total", total_},
                      {"rate", rate},
                      {"eta_s", rate > 0 ? Json(static_cast<double>(total_ - done_) / rate) : Json()},
                      {"error", error_.empty() ? Json() : Json(error_)}};
}

Result<Json> PackModel(const std::string& source, const std::string& out_dir, LongTask& task) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(source));
  PackOptions options;
  options.out_folder = out_dir;
  const Checkpoint& checkpoint = files->checkpoint();
  if (checkpoint.is_gguf) {
    if (AsciiLower(source).ends_with(".gguf")) options.side_files = SideFiles::kGenerated;
    ASSIGN_OR_RETURN(options.generated_files, ReadGgufTextFiles(checkpoint.gguf_path));
  }
  options.progress = [&task](int64_t done, int64_t total) {
    task.Update(done, total);
    return !task.cancelled();
  };
  ASSIGN_OR_RETURN(const PackReport report, Pack(checkpoint, files->layout(), options));
  return Json(Json::Object{{"out_dir", out_dir}, {"num_layers", report.layers}});
}

Result<Json> PullModel(const HubEnvironment& hub, const RepoRef& ref, LongTask& task) {
  PullOptions options{.hub = hub, .ref = ref};
  options.control.cancelled = [&task] { return task.cancelled(); };
  options.progress = [&task](int64_t done, int64_t total) { task.Update(done, total); };
  ASSIGN_OR_RETURN(const PullPlan plan, PlanPull(options));
  ASSIGN_OR_RETURN(const PullReport report, Pull(options, plan));
  return Json(Json::Object{{"path", report.path}});
}

}  // namespace nunspark::server
