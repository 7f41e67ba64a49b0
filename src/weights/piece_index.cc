#include "weights/piece_index.h"

#include <algorithm>
#include <numeric>
#include <utility>

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
  placed.first_extents = placed.extents.size();
  return placed;
}

// [parts] Whether a part is used by the down projection alone, that is, last.
std::vector<bool> LastParts(const PieceLayout& piece) {
  std::vector<bool> last(piece.parts.size(), false);
  for (const bool down : {true, false}) {
    for (const WeightUse& use : piece.weights) {
      if ((use.role == Role::kExpertDown) != down) continue;
      for (const int32_t part : {use.data, use.scales, use.biases, use.bias}) {
        if (part >= 0) last[static_cast<size_t>(part)] = down;
      }
    }
  }
  return last;
}

// Cuts windows between first and last parts where those lie apart, and moves the windows of the last ones to the end.
void Divide(const PieceLayout& piece, int64_t divide_bytes, PieceExtents& placed) {
  const std::vector<bool> last = LastParts(piece);
  int64_t last_bytes = 0;
  for (size_t part = 0; part < last.size(); ++part) last_bytes += last[part] ? piece.parts[part].bytes : 0;
  if (last_bytes < divide_bytes) return;
  std::vector<Extent> first_extents, last_extents;
  for (const Extent& window : placed.extents) {
    // What the first parts cover of the window, in whole units.
    int64_t begin = window.bytes, end = 0;
    for (size_t part = 0; part < last.size(); ++part) {
      const int64_t offset = placed.part_offsets[part] - window.slot_offset;
      if (last[part] || piece.parts[part].bytes == 0 || offset < 0 || offset >= window.bytes) continue;
      begin = std::min(begin, AlignDown(offset, kIoAlignment));
      end = std::max(end, AlignUp(offset + piece.parts[part].bytes, kIoAlignment));
    }
    const auto cut = [&](int64_t from, int64_t to, std::vector<Extent>& extents) {
      if (from >= to) return;
      extents.push_back({.file = window.file,
                         .file_offset = window.file_offset + from,
                         .bytes = to - from,
                         .slot_offset = window.slot_offset + from});
    };
    cut(begin, end, first_extents);
    cut(0, std::min(begin, window.bytes), last_extents);
    cut(std::max(end, begin), window.bytes, last_extents);
  }
  if (first_extents.empty() || last_extents.empty()) return;
  placed.first_extents = first_extents.size();
  placed.extents = std::move(first_extents);
  placed.extents.insert(placed.extents.end(), last_extents.begin(), last_extents.end());
}

}  // namespace

PieceIndex PieceIndex::Build(const ModelLayout& layout, const TensorIndex& tensors, int64_t merge_gap_bytes,
                             int64_t divide_bytes) {
  PieceIndex index;
  for (const SourceFile& file : tensors.files()) index.paths_.push_back(file.path);
  index.pieces_.reserve(layout.pieces.size());
  for (const PieceLayout& piece : layout.pieces) {
    index.pieces_.push_back(PlacePiece(piece, merge_gap_bytes));
    if (piece.kind == PieceKind::kExpert) Divide(piece, divide_bytes, index.pieces_.back());
    for (const Extent& extent : index.pieces_.back().extents) {
      CHECK(static_cast<size_t>(extent.file) < index.paths_.size());
    }
  }
  return index;
}

}  // namespace nunspark
