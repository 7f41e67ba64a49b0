#include "engine/drive_probe.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/align.h"
#include "io/read_queue.h"
#include "weights/read_driver.h"

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

ProbeOptions ProbeLikeDecoding(const ModelLayout& layout, const PieceIndex& index) {
  // As the read driver does it: of experts one more than it takes to fill its window; layers in chunks of that size.
  constexpr int64_t kWindowBytes = ReadDriver::kLeastWindowBytes;
  constexpr int64_t kMostInFlight = 64;
  ProbeOptions options{.max_bytes = 1 << 30, .max_seconds = 0.6, .request_bytes = kWindowBytes, .in_flight = 4};
  const auto expert =
      std::find_if(layout.first_expert.begin(), layout.first_expert.end(), [](PieceId id) { return id >= 0; });
  if (expert == layout.first_expert.end()) return options;
  options.request_bytes = std::max(AlignUp(index.piece(*expert).read_bytes, kIoAlignment), kIoAlignment);
  options.in_flight = static_cast<int>(std::min(1 + CeilDiv(kWindowBytes, options.request_bytes), kMostInFlight));
  return options;
}

Result<ProbeResult> ProbeDrive(const LargestFile& file, IoChoice io, bool direct, const ProbeOptions& options) {
  if (file.path.empty()) return NotFoundError("no weight file to probe the drive with");
  const IoBackend backend = io == IoChoice::kPread ? IoBackend::kPread : IoBackend::kAuto;
  ASSIGN_OR_RETURN(std::unique_ptr<ReadQueue> queue,
                   OpenReadQueue({file.path}, {.backend = backend, .direct = direct}));
  return ProbeReadBandwidth(queue, 0, file.bytes, options);
}

}  // namespace nunspark
