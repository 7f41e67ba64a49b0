#include "weights/piece_index.h"

#include <algorithm>
#include <numeric>

#include "base/align.h"
#include "base/check.h"
#include "io/read_queue.h"

namespace nunspark {
namespace {

PieceExtents PlacePiece(const PieceLayout& piece, int64_t merge_gap_bytes) {
  // By place in the files, not by use: a merged window must grow in file order.
  std::vector<size_t> order(piece.parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TensorSlice& left = piece.parts[a];
    const TensorSlice& right = piece.parts[b];
    return left.file != right.file ? left.file < right.file : left.offset < right.offset;
  });

  PieceExtents placed;
  placed.part_offsets.resize(piece.parts.size(), 0);
  int64_t data_end = 0;  // of the last extent's parts, unaligned
  for (const size_t index : order) {
    const TensorSlice& part = piece.parts[index];
    CHECK(part.file >= 0 && part.offset >= 0 && part.bytes >= 0);
    if (part.bytes == 0) continue;
    const int64_t begin = AlignDown(part.offset, kIoAlignment);
    const int64_t end = AlignUp(part.offset + part.bytes, kIoAlignment);
    Extent* last = placed.extents.empty() ? nullptr : &placed.extents.back();
    // Windows that share a unit always merge: reading it twice would cost a second place in the slot.
    const bool merge = last != nullptr && last->file == part.file &&
                       (begin <= last->file_offset + last->bytes || part.offset - data_end <= merge_gap_bytes);
    if (merge) {
      const int64_t grown = std::max(end - last->file_offset, last->bytes);
      placed.slot_bytes += grown - last->bytes;
      last->bytes = grown;
      data_end = std::max(data_end, part.offset + part.bytes);
    } else {
      placed.extents.push_back(
          {.file = part.file, .file_offset = begin, .bytes = end - begin, .slot_offset = placed.slot_bytes});
      placed.slot_bytes += end - begin;
      data_end = part.offset + part.bytes;
    }
    const Extent& window = placed.extents.back();
    placed.part_offsets[index] = window.slot_offset + part.offset - window.file_offset;
  }
  placed.read_bytes = placed.slot_bytes;
  return placed;
}

}  // namespace

PieceIndex PieceIndex::Build(const ModelLayout& layout, const TensorIndex& tensors, int64_t merge_gap_bytes) {
  PieceIndex index;
  for (const SourceFile& file : tensors.files()) index.paths_.push_back(file.path);
  index.pieces_.reserve(layout.pieces.size());
  for (const PieceLayout& piece : layout.pieces) {
    index.pieces_.push_back(PlacePiece(piece, merge_gap_bytes));
    for (const Extent& extent : index.pieces_.back().extents) {
      CHECK(static_cast<size_t>(extent.file) < index.paths_.size());
    }
  }
  return index;
}

}  // namespace nunspark
