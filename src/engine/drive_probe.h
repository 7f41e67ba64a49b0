// The rate at which a model's own drive delivers, measured by a short burst of reads from its largest file.
#ifndef NUNSPARK_ENGINE_DRIVE_PROBE_H_
#define NUNSPARK_ENGINE_DRIVE_PROBE_H_

#include <cstdint>
#include <string>

#include "io/probe.h"
#include "models/model_layout.h"
#include "nunspark/options.h"
#include "weights/piece_index.h"

namespace nunspark {

struct LargestFile {
  std::string path;  // "" when there is none
  int64_t bytes = 0;
};

// The largest weight file (.safetensors, .gguf) of a model: of its folder, or the file that is the model.
LargestFile LargestWeightFile(const std::string& model);

// Scattered reads of the size and number in which the model's weights are read while it decodes.
ProbeOptions ProbeLikeDecoding(const ModelLayout& layout, const PieceIndex& index);

// Reads like an engine with the same choices. Errors: kNotFound without a weight file; those of the queue and the
// probe.
Result<ProbeResult> ProbeDrive(const LargestFile& file, IoChoice io, bool direct, const ProbeOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_DRIVE_PROBE_H_
