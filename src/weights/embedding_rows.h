// EmbeddingRows: rows of a table (token or per-layer embedding) that stays on the drive, read on demand through a small
// cache.
//
// A row is up to three windows of the file (codes, scales, offsets) read into a staging slot; its bytes are then kept,
// without the alignment around them, in a fixed number of entries, least recently used first. All missing rows of a
// call are in flight together, as far as there are staging slots. Memory is fixed at creation; a call allocates
// nothing. Thread-safety: Read by one thread, Finished by the I/O thread.
#ifndef NUNSPARK_WEIGHTS_EMBEDDING_ROWS_H_
#define NUNSPARK_WEIGHTS_EMBEDDING_ROWS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/model_layout.h"
#include "nunspark/status.h"
#include "weights/event_count.h"
#include "weights/piece_index.h"
#include "weights/read_driver.h"

namespace nunspark {

class EmbeddingRows {
 public:
  // Memory for `embed`, staging slots and entries together. REQUIRES: a table, PieceKind::kEmbed or kRowTable.
  static int64_t MemoryBytes(const PieceLayout& embed);
  // Read jobs it may have in flight.
  static int32_t JobCount(const PieceLayout& embed);

  // `memory` has MemoryBytes(embed), aligned to kIoAlignment. `paths` of the files, for messages. Uses the driver's
  // jobs from `first_job` on. All outlive this.
  EmbeddingRows(const PieceLayout& embed, uint8_t* memory, ReadDriver& driver, int32_t first_job,
                std::chrono::milliseconds read_timeout, std::span<const std::string> paths);

  // Decodes rows into out [rows.size(), cols]. A row named twice is read once.
  // Errors: the read's, with the row's number; rows after it may be missing in `out`. The next call reads it again. kIo
  // too when the drive has not answered for the time given; until it does, calls that have to read fail with that.
  Status Read(std::span<const int32_t> rows, float* out);

  // A job of this object has completed.
  void Finished(int32_t job, const Status& status);

  // Counters, thread-safe. Bytes with alignment.
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  int64_t stall_us() const { return stall_us_.load(std::memory_order_relaxed); }

 private:
  // A row's part in the file and in memory.
  struct Part {
    int32_t file = 0;
    int64_t file_offset = 0;  // of row 0
    int64_t row_bytes = 0;
    int64_t staging_offset = 0;
    int64_t entry_offset = 0;
  };
  struct Sizes {
    std::vector<Part> parts;
    int64_t staging_bytes = 0;  // of one slot
    int64_t entry_bytes = 0;
    int32_t staging_slots = 0;
    int32_t entries = 0;
  };
  struct Staged {
    int32_t row = -1;
    std::array<Extent, 3> windows;
    Status status;
  };
  struct Entry {
    int32_t row = -1;
    int32_t next_in_bucket = -1;
    int32_t newer = -1;
    int32_t older = -1;
  };

  static Sizes Measure(const PieceLayout& embed);

  Status AwaitReads(int32_t row);
  Status ReadWave(std::span<const int32_t> rows, float* out, int32_t staged_count);
  void Stage(int32_t slot, int32_t row);
  void Decode(const uint8_t* base, const int64_t* part_offsets, float* out) const;
  int32_t Find(int32_t row) const;
  void Keep(int32_t slot);
  void MoveToFront(int32_t entry);

  int32_t& Bucket(int32_t row) { return buckets_[static_cast<size_t>(row) % buckets_.size()]; }
  uint8_t* StagingBase(int32_t slot) const { return memory_ + slot * sizes_.staging_bytes; }
  uint8_t* EntryBase(int32_t entry) const {
    return memory_ + sizes_.staging_slots * sizes_.staging_bytes + entry * sizes_.entry_bytes;
  }

  const Sizes sizes_;
  WeightUse use_;
  const std::string name_;  // in messages
  uint8_t* const memory_;
  ReadDriver& driver_;
  const int32_t first_job_;
  const std::chrono::milliseconds read_timeout_;
  const std::span<const std::string> paths_;

  std::vector<Staged> staged_;
  std::atomic<int32_t> in_flight_ = 0;
  EventCount arrived_;

  std::vector<Entry> entries_;
  std::vector<int32_t> buckets_;
  int32_t newest_ = -1;
  int32_t oldest_ = -1;

  std::atomic<int64_t> bytes_read_ = 0;
  std::atomic<int64_t> stall_us_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EMBEDDING_ROWS_H_
