// What the caller of the packer decides.
#ifndef NUNSPARK_PACK_PACK_OPTIONS_H_
#define NUNSPARK_PACK_PACK_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "formats/manifest.h"
#include "pack/quantize_rules.h"

namespace nunspark {

// kGenerated: what lies beside the source does not belong to it, as with a GGUF file that was named itself.
enum class SideFiles : uint8_t { kCopied, kGenerated };

// kLanes: weights that the kernels multiply faster with sixteen outputs side by side are stored so (quant/lanes.h).
// kRows: weights are stored as the source has them; of a pack, as its source had them.
enum class PackLayout : uint8_t { kLanes, kRows };

struct PackOptions {
  // Created, with the folders above it. It may exist if it is empty.
  std::string out_folder;
  // Records begin at multiples of it: a power of two from kMinPackAlignment to kMaxPackAlignment.
  int64_t alignment = kMinPackAlignment;
  // A file of experts is closed when the next record would take its data beyond this.
  int64_t split_bytes = int64_t{8} << 30;
  PackLayout layout = PackLayout::kLanes;
  // Which weights are encoded anew; empty: none.
  std::vector<QuantizeRule> quantize = {};
  // That encode; the result does not depend on it. 0 = all CPUs this process may use.
  int threads = 0;
  // Side files (PackedSideFiles) that the source holds in another form, such as the tokenizer inside a GGUF file: name
  // -> content. Written where the source's folder has no file of that name that is copied.
  std::map<std::string, std::string> generated_files = {};
  SideFiles side_files = SideFiles::kCopied;
  // Whether a file of the source (index into TensorIndex::files) can be read by now; empty: all can. Pieces of others
  // are left for a later call, which goes on from there: for sources that arrive file by file.
  std::function<bool(int32_t file)> available = nullptr;
  // Called every few MB with the bytes written and to write; false cancels. May be empty.
  std::function<bool(int64_t done, int64_t total)> progress = nullptr;
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PACK_OPTIONS_H_
