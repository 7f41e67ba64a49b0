#include "server/pack_task.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "engine/model_files.h"
#include "engine/model_text.h"
#include "pack/packer.h"

namespace nunspark::server {

PackTask::~PackTask() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void PackTask::Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

Status PackTask::Start(const std::string& source, const std::string& out_dir, std::function<void(Result<int>)> done) {
  const std::lock_guard lock(mutex_);
  if (state_ == "running") return InvalidArgumentError(fmt::format("{} is being packed; one at a time", source_));
  // It has ended, but for its last lines.
  if (thread_.joinable()) thread_.join();
  state_ = "running";
  source_ = source;
  out_dir_ = out_dir;
  error_.clear();
  done_ = total_ = 0;
  first_done_ = -1;
  cancelled_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this, source, out_dir, done = std::move(done)] {
    Result<int> layers = Run(source, out_dir);
    {
      const std::lock_guard ending(mutex_);
      state_ = layers.ok() ? "done" : layers.status().code() == StatusCode::kCancelled ? "cancelled" : "error";
      error_ = layers.status().message();
    }
    done(std::move(layers));
  });
  return Status();
}

Result<int> PackTask::Run(const std::string& source, const std::string& out_dir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(source));
  PackOptions options;
  options.out_folder = out_dir;
  const Checkpoint& checkpoint = files->checkpoint();
  if (checkpoint.is_gguf) {
    if (AsciiLower(source).ends_with(".gguf")) options.side_files = SideFiles::kGenerated;
    Result<GgufTextFiles> text = ReadGgufTextFiles(checkpoint.gguf_path);
    // A model without a vocabulary takes token ids.
    if (text.ok()) {
      options.generated_files = {{"tokenizer.json", std::move(text->tokenizer_json)},
                                 {"tokenizer_config.json", std::move(text->tokenizer_config_json)}};
    } else if (text.status().code() != StatusCode::kNotFound) {
      return text.status();
    }
  }
  options.progress = [this](int64_t done, int64_t total) {
    const std::lock_guard lock(mutex_);
    last_ = Clock::now();
    if (first_done_ < 0) {
      first_done_ = done;
      first_ = last_;
    }
    done_ = done;
    total_ = total;
    return !cancelled_.load(std::memory_order_relaxed);
  };
  ASSIGN_OR_RETURN(const PackReport report, Pack(checkpoint, files->layout(), options));
  return report.layers;
}

Json PackTask::StateJson() const {
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(last_ - first_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_ - first_done_) / seconds : 0;
  return Json::Object{{"state", state_},
                      {"source", source_},
                      {"out_dir", out_dir_},
                      {"done", done_},
                      {"total", total_},
                      {"rate", rate},
                      {"eta_s", rate > 0 ? Json(static_cast<double>(total_ - done_) / rate) : Json()},
                      {"error", error_.empty() ? Json() : Json(error_)}};
}

}  // namespace nunspark::server
