// What a pack will look like, decided before its first byte is written: every file, record and header. Only the
// checksums of the records are not known yet. That makes packing restartable at any record and its result reproducible.
#ifndef NUNSPARK_PACK_PACK_PLAN_H_
#define NUNSPARK_PACK_PACK_PLAN_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/checksums.h"
#include "formats/manifest.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "pack/pack_options.h"
#include "pack/part_order.h"
#include "pack/quantize_plan.h"

namespace nunspark {

inline constexpr std::string_view kPackCoreFile = "model-core.safetensors";

// Files that are copied unchanged when the source has them: tokenizer, chat template, and the generation settings,
// which hold the tokens that end an answer.
std::span<const std::string_view> PackedSideFiles();

// One safetensors file of the pack, beside Manifest::files.
struct PlannedFile {
  std::vector<int32_t> pieces;  // in the order of their records; indices into Manifest::pieces
  int64_t header_bytes = 0;     // up to the first record, the 8 bytes of length included
  int64_t first_gap = 0;        // number of its first gap tensor; gaps are numbered through the whole pack
};

struct PackPlan {
  Manifest manifest;  // pieces as in the ModelLayout; checksums empty
  std::vector<PlannedFile> files;
  QuantizePlan quantize;
  OrderPlan orders;
  std::vector<FileChecksum> copies;     // of the source's side files
  std::vector<FileChecksum> generated;  // of PackOptions::generated_files, those that are written
  std::vector<std::string> dropped;     // PackReport::dropped
  int64_t total_bytes = 0;              // of the safetensors files, the copies and the generated files

  // Of everything that decides the result, times of the source's files included: an interrupted run may be continued
  // when it has the same identity. 32 hex digits.
  std::string identity;
};

// What becomes of a part of a piece, as the manifest lists it. Offsets are not set yet.
std::vector<ManifestTensor> PackedTensors(const PackPlan& plan, const ModelLayout& layout, size_t piece, size_t part);

// REQUIRES: `layout` belongs to `checkpoint`. Errors: as Pack's, of options and source.
Result<PackPlan> MakePackPlan(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options);

// The first header_bytes of a file.
std::string PackedFileHeader(const PackPlan& plan, int32_t file);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PACK_PLAN_H_
