// The packer: the same weights in a better order on disk. A pure re-layout of a ModelLayout into a pack
// (docs/FORMAT.md); no byte of a weight changes, unless a rule of PackOptions::quantize encodes it anew on the way.
#ifndef NUNSPARK_PACK_PACKER_H_
#define NUNSPARK_PACK_PACKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "pack/pack_options.h"
#include "pack/quantize_plan.h"

namespace nunspark {

struct PackReport {
  int layers = 0;
  int64_t pieces = 0;
  int64_t bytes = 0;    // of all files of the pack
  bool reused = false;  // a complete pack of this source was already there; nothing was written
  // Files of the source that pieces not packed yet are in; the pack is complete when there are none. Only with
  // PackOptions::available.
  std::vector<int32_t> waiting_files = {};
  bool resumed = false;  // went on where an earlier, interrupted run had stopped
  // Tensors of the source that the model does not use and the pack does not hold.
  std::vector<std::string> dropped = {};

  // Of a pack with rules in PackOptions::quantize.
  int64_t source_weight_bytes = 0;           // of the weights as the source has them
  int64_t weight_bytes = 0;                  // and as the pack has them, without gaps and headers
  int64_t encoded = 0;                       // modules that were encoded anew
  int64_t already_encoded = 0;               // modules that a rule reaches and the source holds quantised: kept
  std::vector<KeptModule> kept_floats = {};  // modules that a rule reaches and that cannot be encoded: kept
};

// Packs `layout`, which ResolveModel made of `checkpoint`, into options.out_folder. Memory: a few buffers of a few MB
// and the description of the pieces, whatever the model's size; with rules also the scales of the largest weight. The
// page cache is left as it was found, more or less.
//
// The folder appears under its name only when it is complete and on the drive. Until then the work is in
// "<out_folder>.partial", which any failure, kill or power cut leaves behind and the next call with the same source and
// options goes on from; another source or other options start afresh. The finished pack is the same, byte for byte,
// however often it was interrupted. Two calls for one folder exclude each other.
//
// Errors: kInvalidArgument for bad options, a checkpoint that is itself a pack, an output folder that is the source or
// holds anything else than a pack of this source; kUnsupported when the checkpoint holds tensors that no role uses and
// that are not known to be superfluous (they would be lost); kResourceExhausted when the drive is too small (found
// before writing) or full; kCancelled; kDataLoss when the source changes or ends early,
// and for weights without an encoding (NaN); kPermission, kIo.
Result<PackReport> Pack(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PACKER_H_
