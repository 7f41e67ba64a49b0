#include "engine/drive_probe.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "io/read_queue.h"

namespace nunspark {

LargestFile LargestWeightFile(const std::string& model) {
  LargestFile largest;
  const auto consider = [&](const std::filesystem::path& path) {
    std::error_code error;
    if (path.extension() != ".safetensors" && path.extension() != ".gguf") return;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (!error && bytes > largest.bytes) largest = {.path = path.string(), .bytes = bytes};
  };
  std::error_code error;
  if (std::filesystem::is_regular_file(model, error)) {
    consider(model);
  } else {
    for (const auto& entry : std::filesystem::directory_iterator(model, error)) consider(entry.path());
  }
  return largest;
}

Result<ProbeResult> ProbeDrive(const LargestFile& file, IoChoice io, bool direct, const ProbeOptions& options) {
  if (file.path.empty()) return NotFoundError("no weight file to probe the drive with");
  const IoBackend backend = io == IoChoice::kPread ? IoBackend::kPread : IoBackend::kAuto;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadQueue> queue,
      OpenReadQueue({file.path}, {.backend = backend, .direct = direct, .depth = std::max(options.in_flight, 1)}));
  return ProbeReadBandwidth(*queue, 0, file.bytes, options);
}

}  // namespace nunspark
