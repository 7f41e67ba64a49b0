// PieceIndex: PieceId -> the extents to read and where each part lies afterwards in the piece's slot.
//
// Foreign files put tensors at any byte, direct reads need aligned windows: an extent is an aligned window of a file
// that covers one or more parts, read to an aligned place in the slot; part offsets point into it. Nothing is copied
// afterwards.
#ifndef NUNSPARK_WEIGHTS_PIECE_INDEX_H_
#define NUNSPARK_WEIGHTS_PIECE_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/model_layout.h"

namespace nunspark {

struct Extent {
  int32_t file = 0;
  int64_t file_offset = 0;  // aligned to kIoAlignment
  int64_t bytes = 0;        // aligned; the last unit may reach past the file's end
  int64_t slot_offset = 0;  // aligned
};

struct PieceExtents {
  std::vector<Extent> extents;        // those of the first parts come first
  size_t first_extents = 0;           // how many those are; all where the piece is not divided
  std::vector<int64_t> part_offsets;  // [parts] from the slot's start
  int64_t slot_bytes = 0;             // memory the piece needs, a multiple of kIoAlignment
  int64_t read_bytes = 0;             // what is read from the drive
};

class PieceIndex {
 public:
  // Parts of a piece that lie close together in a file (gap up to `merge_gap_bytes`) share one extent.
  // An expert whose down projection has fewer than `divide_bytes` is not divided: that would be more reads for nothing.
  static PieceIndex Build(const ModelLayout& layout, const TensorIndex& tensors, int64_t merge_gap_bytes = 16 << 10,
                          int64_t divide_bytes = 128 << 10);

  const PieceExtents& piece(PieceId id) const { return pieces_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<PieceExtents> pieces_;
  std::vector<std::string> paths_;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_PIECE_INDEX_H_
