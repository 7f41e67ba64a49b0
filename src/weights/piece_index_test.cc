#include "weights/piece_index.h"

#include <gtest/gtest.h>

#include "io/read_queue.h"
#include "weights/fake_model.h"

namespace nunspark {
namespace {

struct Part {
  int32_t file;
  int64_t offset;
  int64_t bytes;
};

PieceExtents Build(const std::vector<Part>& parts, int64_t merge_gap_bytes) {
  ModelLayout layout;
  PieceLayout piece;
  for (const Part& part : parts) {
    TensorSlice slice;
    slice.file = part.file;
    slice.offset = part.offset;
    slice.bytes = part.bytes;
    piece.parts.push_back(slice);
  }
  layout.pieces.push_back(piece);
  TensorIndex tensors;
  tensors.AddFile({.path = "a"});
  tensors.AddFile({.path = "b"});
  return PieceIndex::Build(layout, tensors, merge_gap_bytes).piece(0);
}

TEST(PieceIndex, ReadsTheAlignedWindowAroundAPart) {
  const PieceExtents piece = Build({{1, 5000, 100}}, 0);
  ASSERT_EQ(piece.extents.size(), 1u);
  EXPECT_EQ(piece.extents[0].file, 1);
  EXPECT_EQ(piece.extents[0].file_offset, 4096);
  EXPECT_EQ(piece.extents[0].bytes, 4096);
  EXPECT_EQ(piece.part_offsets[0], 904);
  EXPECT_EQ(piece.slot_bytes, 4096);
}

TEST(PieceIndex, MergesPartsUpToTheGap) {
  const std::vector<Part> parts = {{0, 0, 4096}, {0, 4096 + 8192, 4096}};
  EXPECT_EQ(Build(parts, 8191).extents.size(), 2u);
  const PieceExtents merged = Build(parts, 8192);
  ASSERT_EQ(merged.extents.size(), 1u);
  EXPECT_EQ(merged.extents[0].bytes, 16384);
  EXPECT_EQ(merged.part_offsets[1], 12288);
  EXPECT_EQ(Build({{0, 0, 10}, {1, 10, 10}}, 1 << 20).extents.size(), 2u) << "different files never merge";
}

TEST(PieceIndex, PartsOfOneUnitShareIt) {
  const PieceExtents piece = Build({{0, 10, 20}, {0, 3000, 2000}, {0, 100, 5}}, 0);
  ASSERT_EQ(piece.extents.size(), 1u);
  EXPECT_EQ(piece.read_bytes, 8192);
  EXPECT_EQ(piece.part_offsets, (std::vector<int64_t>{10, 3000, 100}));
}

TEST(PieceIndex, PartsKeepTheirOrderWhateverTheFileOrder) {
  const PieceExtents piece = Build({{1, 100000, 8}, {0, 50000, 8}, {0, 1, 8}}, 0);
  ASSERT_EQ(piece.extents.size(), 3u);
  EXPECT_EQ(piece.extents[0].file_offset, 0);
  EXPECT_EQ(piece.part_offsets[2], 1);
  EXPECT_EQ(piece.part_offsets[1], 4096 + 50000 - 49152);
  EXPECT_EQ(piece.part_offsets[0], 8192 + 100000 - 98304);
}

TEST(PieceIndex, OverlappingPartsAreReadOnce) {
  const PieceExtents piece = Build({{0, 0, 10000}, {0, 100, 10}}, 0);
  ASSERT_EQ(piece.extents.size(), 1u);
  EXPECT_EQ(piece.read_bytes, 12288);
  EXPECT_EQ(piece.part_offsets[1], 100);
}

TEST(PieceIndex, EmptyPartsNeedNothing) {
  const PieceExtents piece = Build({{0, 77, 0}}, 0);
  EXPECT_TRUE(piece.extents.empty());
  EXPECT_EQ(piece.slot_bytes, 0);
}

// Random places: windows are aligned, disjoint in the slot and cover every part, and reach past a file's end by less
// than a unit.
TEST(PieceIndex, CoversEveryPartAtRandomPlaces) {
  uint64_t state = 7;
  const auto next = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<Part> parts;
    const int64_t count = 1 + next(8);
    for (int64_t i = 0; i < count; ++i) parts.push_back({static_cast<int32_t>(next(2)), next(200000), 1 + next(30000)});
    const PieceExtents piece = Build(parts, next(40000));
    int64_t slot_end = 0;
    for (const Extent& extent : piece.extents) {
      ASSERT_EQ(extent.file_offset % kIoAlignment, 0);
      ASSERT_EQ(extent.bytes % kIoAlignment, 0);
      ASSERT_EQ(extent.slot_offset, slot_end);
      slot_end += extent.bytes;
      int64_t data_end = 0;
      for (const Part& part : parts) {
        if (part.file == extent.file && part.offset < extent.file_offset + extent.bytes) {
          data_end = std::max(data_end, part.offset + part.bytes);
        }
      }
      ASSERT_LT(extent.file_offset + extent.bytes - data_end, kIoAlignment);
    }
    ASSERT_EQ(piece.slot_bytes, slot_end);
    for (size_t i = 0; i < parts.size(); ++i) {
      bool covered = false;
      for (const Extent& extent : piece.extents) {
        covered = covered || (extent.file == parts[i].file && parts[i].offset >= extent.file_offset &&
                              parts[i].offset + parts[i].bytes <= extent.file_offset + extent.bytes &&
                              piece.part_offsets[i] == extent.slot_offset + parts[i].offset - extent.file_offset);
      }
      ASSERT_TRUE(covered) << "round " << round << " part " << i;
    }
  }
}

}  // namespace
}  // namespace nunspark
