#include "weights/piece_index.h"

#include <algorithm>

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

// `down`: those parts are an expert's down projection; empty: the piece is no expert.
PieceExtents Build(const std::vector<Part>& parts, int64_t merge_gap_bytes, const std::vector<int32_t>& down = {},
                   int64_t divide_bytes = 1) {
  ModelLayout layout;
  PieceLayout piece;
  piece.kind = down.empty() ? PieceKind::kCore : PieceKind::kExpert;
  for (int32_t part = 0; !down.empty() && part < static_cast<int32_t>(parts.size()); ++part) {
    WeightUse use;
    use.role = std::count(down.begin(), down.end(), part) > 0 ? Role::kExpertDown : Role::kExpertUp;
    use.data = part;
    piece.weights.push_back(use);
  }
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
  return PieceIndex::Build(layout, tensors, merge_gap_bytes, divide_bytes).piece(0);
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

TEST(PieceIndex, DividesAnExpertWhereItsDownProjectionBegins) {
  // gate, up, down in one run, as in a pack; down begins within a unit that belongs to the first parts.
  const PieceExtents packed = Build({{0, 0, 5000}, {0, 5000, 5000}, {0, 10000, 9000}}, 0, {2});
  ASSERT_EQ(packed.extents.size(), 2u);
  EXPECT_EQ(packed.first_extents, 1u);
  EXPECT_EQ(packed.extents[0].bytes, 12288);
  EXPECT_EQ(packed.extents[1].file_offset, 12288);
  EXPECT_EQ(packed.extents[1].slot_offset, 12288);
  EXPECT_EQ(packed.extents[1].bytes, 8192);

  // In alphabetical order down comes first in the file, and last in time.
  const PieceExtents sorted = Build({{0, 9000, 5000}, {0, 14000, 5000}, {0, 0, 9000}}, 0, {2});
  ASSERT_EQ(sorted.extents.size(), 2u);
  EXPECT_EQ(sorted.first_extents, 1u);
  EXPECT_EQ(sorted.extents[0].file_offset, 8192);
  EXPECT_EQ(sorted.extents[1].file_offset, 0);
  EXPECT_EQ(sorted.part_offsets[0], 9000);

  // Stacked experts: each matrix in a place of its own.
  const PieceExtents stacked = Build({{0, 900000, 4096}, {0, 0, 4096}, {0, 500000, 4096}}, 0, {2});
  ASSERT_EQ(stacked.extents.size(), 3u);
  EXPECT_EQ(stacked.first_extents, 2u);
  EXPECT_EQ(stacked.extents[2].file_offset, 499712);

  // A part that both use is a first part; a small down projection is not worth another read.
  EXPECT_EQ(Build({{0, 0, 9000}, {0, 10000, 9000}}, 0, {1}, 9001).extents.size(), 1u);
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

// Division reads the same windows, each unit once, and the first extents cover all first parts.
TEST(PieceIndex, DivisionKeepsEveryByte) {
  uint64_t state = 11;
  const auto next = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<Part> parts;
    const int64_t count = 2 + next(8);
    for (int64_t i = 0; i < count; ++i) parts.push_back({static_cast<int32_t>(next(2)), next(90000), 1 + next(30000)});
    std::vector<int32_t> down;
    for (int32_t i = 0; i < count; ++i) {
      if (down.empty() || next(2) == 0) down.push_back(i);
    }
    const int64_t gap = next(40000);
    const PieceExtents whole = Build(parts, gap);
    const PieceExtents divided = Build(parts, gap, down);
    EXPECT_EQ(divided.part_offsets, whole.part_offsets);
    EXPECT_EQ(divided.slot_bytes, whole.slot_bytes);
    std::vector<int> read(static_cast<size_t>(whole.slot_bytes / kIoAlignment), 0);
    for (size_t e = 0; e < divided.extents.size(); ++e) {
      const Extent& extent = divided.extents[e];
      for (int64_t at = 0; at < extent.bytes; at += kIoAlignment) {
        read[static_cast<size_t>((extent.slot_offset + at) / kIoAlignment)] += e < divided.first_extents ? 1 : 100;
      }
    }
    for (const int times : read) ASSERT_TRUE(times == 1 || times == 100) << "a unit is read once";
    for (size_t part = 0; part < parts.size(); ++part) {
      if (std::count(down.begin(), down.end(), static_cast<int32_t>(part)) > 0) continue;
      const int64_t begin = divided.part_offsets[part] / kIoAlignment;
      const int64_t end = (divided.part_offsets[part] + parts[part].bytes - 1) / kIoAlignment;
      for (int64_t unit = begin; unit <= end; ++unit) ASSERT_EQ(read[static_cast<size_t>(unit)], 1);
    }
  }
}

}  // namespace
}  // namespace nunspark
