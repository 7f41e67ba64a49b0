// manifest.json of a pack (docs/FORMAT.md, "Pack version 2"): enough to open the pack without reading any header.
#ifndef NUNSPARK_FORMATS_MANIFEST_H_
#define NUNSPARK_FORMATS_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

inline constexpr int kPackFormatVersion = 2;
inline constexpr std::string_view kManifestFile = "manifest.json";

// The largest manifest that is written or read. 1.2 KB describe a four-bit expert with its nine tensors, so this is
// enough for 220000 experts, ten times what the largest published models have; the index of such a pack takes 400 MB.
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;
inline constexpr std::string_view kManifestLimitReason =
    "the most that a manifest may have (about 220000 experts with nine tensors each)";

// Alignment of records a pack may choose, and of tensors inside records.
inline constexpr int64_t kMinPackAlignment = 4096;
inline constexpr int64_t kMaxPackAlignment = int64_t{1} << 20;
inline constexpr int64_t kPackTensorAlignment = 64;

// Names of the tensors that fill gaps ("__gap_000042"): they are in the safetensors headers, never in the manifest.
inline constexpr std::string_view kGapPrefix = "__gap_";

// What stands behind the names of a matrix's tensors that hold sixteen outputs side by side (quant/lanes.h).
inline constexpr std::string_view kLanesSuffix = "@lanes16";

// A tensor inside a piece's record.
struct ManifestTensor {
  std::string name;  // full, as a Hugging Face checkpoint with unstacked experts names it
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // from the record's start
  int64_t bytes = 0;
};

struct ManifestPiece {
  std::string piece_id;  // "embed", "layer_003_core", "layer_003_expert_7", "layer_003" (dense), "norm_head"
  int32_t file = 0;      // index into Manifest::files
  int64_t offset = 0;    // absolute, a multiple of the alignment
  int64_t bytes = 0;     // a multiple of the alignment
  std::string checksum;  // "xxh3:" + 32 hex digits of XXH3-128 over the whole record
  std::vector<ManifestTensor> tensors;
};

struct Manifest {
  int format_version = kPackFormatVersion;
  std::string model_type;
  bool tie_word_embeddings = false;
  int num_layers = 0;
  int64_t alignment = 4096;
  std::string source_hash;        // identity of the source: names, sizes and header hashes
  Json config;                    // the source's config.json, unchanged
  std::vector<SourceFile> files;  // path = file name inside the pack
  std::vector<ManifestPiece> pieces;
};

// Checks everything that can be checked without the files: types and ranges of all fields, file names without folders,
// unique file names, piece ids and tensor names, an alignment that is a power of two, records that cover each file from
// its first record to its end without holes or overlaps, tensors inside their record at multiples of 64 in rising
// order. Errors: kDataLoss names the field, expected and found; kUnsupported for another format version (says which
// this build reads), with a hint when the manifest is one of the original's.
// `text` is read in place when it has kReadFilePadding bytes of capacity to spare, as files that are read whole have.
Result<Manifest> ParseManifest(const std::string& text, std::string_view what);

// What opening a pack needs of its manifest.
struct PackIndex {
  Manifest manifest;                // without pieces: the tensors say where everything is
  std::vector<TensorInfo> tensors;  // in the order of the pieces; TensorInfo::file is an index into Manifest::files
};

// As ParseManifest, with the same checks and errors, but keeps a third of the memory.
Result<PackIndex> ParsePackIndex(const std::string& text, std::string_view what);

// The text of manifest.json; ParseManifest reads it back equal. The same manifest always gives the same bytes.
std::string WriteManifest(const Manifest& manifest);

// Whether a name from a manifest, an index or a checksum file is a plain file name: no folders, nothing hidden in it.
bool IsPlainFileName(std::string_view name);

// Adds the pack's files to `index`: file i of the manifest becomes the i-th file added. Reads nothing but the sizes of
// the files. Errors: kDataLoss when a file is missing, shorter or longer than the manifest says.
Status AddPackFiles(const Manifest& manifest, const std::string& folder, TensorIndex& index);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_MANIFEST_H_
