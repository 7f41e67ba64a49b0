#include "engine/model_needs.h"

#include <sys/stat.h>

#include "base/cpu_count.h"
#include "base/memory_rate.h"
#include "engine/drive_probe.h"
#include "weights/memory_plan.h"

namespace nunspark {
namespace {

// As large as the reads of experts, and as many at once as saturate a drive.
constexpr ProbeOptions kDriveProbe{.max_seconds = 0.3, .request_bytes = 512 << 10};

// A server's engines take their memory after it: what is measured with should be small beside them.
constexpr int64_t kMemoryProbeBytes = 96 << 20;

}  // namespace

MachineRates RateMeter::Of(const std::string& model) {
  if (!memory_) {
    const Result<double> measured = MeasureMemoryRate(DefaultThreads(), AffordableProbeBytes(kMemoryProbeBytes));
    memory_ = measured.ok() ? *measured : 0;
  }
  const LargestFile file = LargestWeightFile(model);
  struct stat info {};
  if (file.path.empty() || ::stat(file.path.c_str(), &info) != 0) return {.drive = 0, .memory = *memory_};
  const auto [rate, fresh] = drives_.try_emplace(info.st_dev, 0.0);
  if (fresh) {
    const Result<ProbeResult> probed = ProbeDrive(file, IoChoice::kAuto, true, kDriveProbe);
    if (probed.ok()) rate->second = probed->bytes_per_second;
  }
  return {.drive = rate->second, .memory = *memory_};
}

int64_t AutomaticBudget() { return ComputeAutoBudget(MeasureSystemMemory()).bytes; }

int64_t KvBytesPerToken(const ModelFilesImpl& files) {
  constexpr int64_t kKeyAndValueBytes = 4;
  const HParams& hparams = files.layout().hparams;
  if (hparams.layer.empty()) return 0;
  return hparams.layers * hparams.layer.front().kv_heads * hparams.layer.front().head_dim * kKeyAndValueBytes;
}

}  // namespace nunspark
