#include "engine/model_needs.h"

#include <filesystem>
#include <memory>

#include "base/cpu_count.h"
#include "base/memory_rate.h"
#include "io/probe.h"
#include "io/read_queue.h"
#include "weights/memory_plan.h"

namespace nunspark {
namespace {

// As large as the reads of experts, and as many at once as saturate a drive.
constexpr ProbeOptions kDriveProbe{.max_seconds = 0.3, .request_bytes = 512 << 10};

double DriveRate(const std::string& model) {
  std::string largest;
  int64_t bytes = 0;
  const auto consider = [&](const std::filesystem::path& path) {
    std::error_code error;
    if (path.extension() != ".safetensors" && path.extension() != ".gguf") return;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error || size <= bytes) return;
    largest = path.string();
    bytes = size;
  };
  std::error_code error;
  if (std::filesystem::is_regular_file(model, error)) {
    consider(model);
  } else {
    for (const auto& entry : std::filesystem::directory_iterator(model, error)) consider(entry.path());
  }
  if (largest.empty()) return 0;
  const Result<std::unique_ptr<ReadQueue>> queue =
      OpenReadQueue({largest}, {.backend = IoBackend::kAuto, .direct = true, .depth = kDriveProbe.in_flight});
  if (!queue.ok()) return 0;
  const Result<ProbeResult> probe = ProbeReadBandwidth(**queue, 0, bytes, kDriveProbe);
  return probe.ok() ? probe->bytes_per_second : 0;
}

}  // namespace

OutlookRates MeasureOutlookRates(const std::string& model) {
  OutlookRates rates{.drive = DriveRate(model)};
  if (const Result<double> memory = MeasureMemoryRate(DefaultThreads()); memory.ok()) rates.memory = *memory;
  return rates;
}

int64_t AutomaticBudget() { return ComputeAutoBudget(MeasureSystemMemory()).bytes; }

int64_t KvBytesPerToken(const ModelFilesImpl& files) {
  constexpr int64_t kKeyAndValueBytes = 4;
  const HParams& hparams = files.layout().hparams;
  if (hparams.layer.empty()) return 0;
  return hparams.layers * hparams.layer.front().kv_heads * hparams.layer.front().head_dim * kKeyAndValueBytes;
}

}  // namespace nunspark
