// The packer: the same weights in a better order on disk. A pure re-layout of a ModelLayout into a pack
// (docs/FORMAT.md); no byte of a weight changes.
#ifndef NUNSPARK_PACK_PACKER_H_
#define NUNSPARK_PACK_PACKER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/manifest.h"
#include "models/model_layout.h"
#include "nunspark/status.h"

namespace nunspark {

struct PackOptions {
  // Created, with the folders above it. It may exist if it is empty.
  std::string out_folder;
  // Records begin at multiples of it: a power of two from kMinPackAlignment to kMaxPackAlignment.
  int64_t alignment = kMinPackAlignment;
  // A file of experts is closed when the next record would take its data beyond this.
  int64_t split_bytes = int64_t{8} << 30;
  // Called every few MB with the bytes written and to write; false cancels. May be empty.
  std::function<bool(int64_t done, int64_t total)> progress = nullptr;
};

struct PackReport {
  int layers = 0;
  int64_t pieces = 0;
  int64_t bytes = 0;     // of all files of the pack
  bool reused = false;   // a complete pack of this source was already there; nothing was written
  bool resumed = false;  // went on where an earlier, interrupted run had stopped
  std::vector<std::string> dropped =
      {};  // tensors of the source that the model does not use and the pack does not hold
};

// Packs `layout`, which ResolveModel made of `checkpoint`, into options.out_folder. Memory: two buffers of a few MB and
// the description of the pieces, whatever the model's size. The page cache is left as it was found, more or less.
//
// The folder appears under its name only when it is complete and on the drive. Until then the work is in
// "<out_folder>.partial", which any failure, kill or power cut leaves behind and the next call with the same source and
// options goes on from; another source or other options start afresh. The finished pack is the same, byte for byte,
// however often it was interrupted. Two calls for one folder exclude each other.
//
// Errors: kInvalidArgument for bad options, a checkpoint that is itself a pack, an output folder that is the source or
// holds anything else than a pack of this source; kUnsupported when the checkpoint holds tensors that no role uses and
// that are not known to be superfluous (they would be lost); kResourceExhausted when the drive is too small (found
// before writing) or full; kCancelled; kDataLoss when the source changes or ends early; kPermission, kIo.
Result<PackReport> Pack(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PACKER_H_
