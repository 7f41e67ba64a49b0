#include "weights/embedding_rows.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "io/read_queue.h"
#include "quant/encoding.h"
#include "weights/layout_helpers.h"

namespace nunspark {
namespace {

// A prompt's rows arrive in waves of this many: enough to keep a drive busy with small reads.
constexpr int32_t kMaxStagingSlots = 64;
constexpr int64_t kMaxStagingBytes = 2 << 20;
constexpr int64_t kMaxBytes = 4 << 20;  // staging and entries together, unless a single row needs more

}  // namespace

EmbeddingRows::Sizes EmbeddingRows::Measure(const PieceLayout& embed) {
  CHECK(embed.kind == PieceKind::kEmbed || embed.kind == PieceKind::kRowTable);
  const WeightUse& use = embed.weights.front();
  Sizes sizes;
  for (const int32_t index : {use.data, use.scales, use.biases}) {
    if (index < 0) continue;
    const TensorSlice& slice = embed.parts[static_cast<size_t>(index)];
    const int64_t row_bytes = index == use.data ? RowBytes(use.format, use.cols) : ScaleRowBytes(use.format, use.cols);
    CHECK(row_bytes > 0 && slice.bytes >= row_bytes * use.rows);
    sizes.parts.push_back({.file = slice.file,
                           .file_offset = slice.offset,
                           .row_bytes = row_bytes,
                           .staging_offset = sizes.staging_bytes,
                           .entry_offset = sizes.entry_bytes});
    // A row may begin at the last byte of a unit.
    sizes.staging_bytes += AlignUp(row_bytes + kIoAlignment - 1, kIoAlignment);
    sizes.entry_bytes += row_bytes;
  }
  const auto most = [&](int64_t bytes, int64_t each) {
    return static_cast<int32_t>(std::clamp<int64_t>(bytes / each, 1, use.rows));
  };
  sizes.staging_slots = std::min(kMaxStagingSlots, most(kMaxStagingBytes, sizes.staging_bytes));
  sizes.entries = most(kMaxBytes - sizes.staging_slots * sizes.staging_bytes, sizes.entry_bytes);
  return sizes;
}

int64_t EmbeddingRows::MemoryBytes(const PieceLayout& embed) {
  const Sizes sizes = Measure(embed);
  return AlignUp(sizes.staging_slots * sizes.staging_bytes + sizes.entries * sizes.entry_bytes, kIoAlignment);
}

int32_t EmbeddingRows::JobCount(const PieceLayout& embed) { return Measure(embed).staging_slots; }

EmbeddingRows::EmbeddingRows(const PieceLayout& embed, uint8_t* memory, ReadDriver& driver, int32_t first_job,
                             std::chrono::milliseconds read_timeout, std::span<const std::string> paths)
    : sizes_(Measure(embed)),
      use_(embed.weights.front()),
      name_(PieceName(embed)),
      memory_(memory),
      driver_(driver),
      first_job_(first_job),
      read_timeout_(read_timeout),
      paths_(paths),
      staged_(static_cast<size_t>(sizes_.staging_slots)),
      entries_(static_cast<size_t>(sizes_.entries)),
      buckets_(static_cast<size_t>(sizes_.entries), -1) {
  // All entries are in the list from the start, empty ones oldest.
  for (int32_t entry = 0; entry < sizes_.entries; ++entry) {
    entries_[static_cast<size_t>(entry)].newer = entry - 1;
    entries_[static_cast<size_t>(entry)].older = entry + 1 < sizes_.entries ? entry + 1 : -1;
  }
  newest_ = 0;
  oldest_ = sizes_.entries - 1;
}

Status EmbeddingRows::Read(std::span<const int32_t> rows, float* out) {
  int64_t part_offsets[3] = {};
  for (size_t part = 0; part < sizes_.parts.size(); ++part) part_offsets[part] = sizes_.parts[part].entry_offset;

  size_t wave_begin = 0;
  int32_t staged_count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t row = rows[i];
    CHECK(row >= 0 && row < use_.rows);
    if (const int32_t entry = Find(row); entry >= 0) {
      MoveToFront(entry);
      Decode(EntryBase(entry), part_offsets, out + static_cast<int64_t>(i) * use_.cols);
      continue;
    }
    const auto staged_end = staged_.begin() + staged_count;
    if (std::any_of(staged_.begin(), staged_end, [&](const Staged& staged) { return staged.row == row; })) continue;
    if (staged_count == sizes_.staging_slots) {
      const size_t count = i - wave_begin;
      RETURN_IF_ERROR(ReadWave(rows.subspan(wave_begin, count), out + static_cast<int64_t>(wave_begin) * use_.cols,
                               std::exchange(staged_count, 0)));
      wave_begin = i;
    }
    // What an earlier call gave up on may still be written to.
    if (staged_count == 0) RETURN_IF_ERROR(AwaitReads(row));
    Stage(staged_count++, row);
  }
  if (staged_count == 0) return Status();
  return ReadWave(rows.subspan(wave_begin), out + static_cast<int64_t>(wave_begin) * use_.cols, staged_count);
}

// Sets up the windows of `row`; nothing is read yet.
void EmbeddingRows::Stage(int32_t slot, int32_t row) {
  Staged& staged = staged_[static_cast<size_t>(slot)];
  staged.row = row;
  staged.status = Status();
  for (size_t i = 0; i < sizes_.parts.size(); ++i) {
    const Part& part = sizes_.parts[i];
    const int64_t begin = part.file_offset + row * part.row_bytes;
    const int64_t window = AlignDown(begin, kIoAlignment);
    staged.windows[i] = {.file = part.file,
                         .file_offset = window,
                         .bytes = AlignUp(begin + part.row_bytes, kIoAlignment) - window,
                         .slot_offset = part.staging_offset};
  }
}

// Until nothing is in flight. Errors: the drive does not answer.
Status EmbeddingRows::AwaitReads(int32_t row) {
  while (true) {
    const uint32_t seen = arrived_.Now();
    if (in_flight_.load(std::memory_order_acquire) == 0) return Status();
    if (arrived_.Await(seen, read_timeout_) || !driver_.IsSilent(read_timeout_)) continue;
    const Part& part = sizes_.parts.front();
    return IoError(fmt::format("{} row {}: read of {} bytes at {} in {} has not returned for {:.3g} s", name_, row,
                               part.row_bytes, part.file_offset + row * part.row_bytes,
                               paths_[static_cast<size_t>(part.file)],
                               static_cast<double>(read_timeout_.count()) / 1e3));
  }
}

// Reads the staged rows and decodes them to where `rows` wants them; `out` belongs to rows[0].
Status EmbeddingRows::ReadWave(std::span<const int32_t> rows, float* out, int32_t staged_count) {
  const auto begin = std::chrono::steady_clock::now();
  in_flight_.store(staged_count, std::memory_order_relaxed);
  for (int32_t slot = 0; slot < staged_count; ++slot) {
    const std::span<const Extent> windows(staged_[static_cast<size_t>(slot)].windows.data(), sizes_.parts.size());
    for (const Extent& window : windows) bytes_read_ += window.bytes;
    driver_.Start(first_job_ + slot, windows, 0, StagingBase(slot), ReadPriority::kDemand);
  }
  driver_.Kick();
  const Status arrived = AwaitReads(staged_.front().row);
  stall_us_ += std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  RETURN_IF_ERROR(arrived);

  for (int32_t slot = 0; slot < staged_count; ++slot) {
    const Staged& staged = staged_[static_cast<size_t>(slot)];
    if (!staged.status.ok()) return staged.status.WithContext(fmt::format("{} row {}", name_, staged.row));
  }
  for (int32_t slot = 0; slot < staged_count; ++slot) {
    const Staged& staged = staged_[static_cast<size_t>(slot)];
    int64_t part_offsets[3] = {};
    for (size_t part = 0; part < sizes_.parts.size(); ++part) {
      const Extent& window = staged.windows[part];
      const int64_t in_file = sizes_.parts[part].file_offset + staged.row * sizes_.parts[part].row_bytes;
      part_offsets[part] = window.slot_offset + in_file - window.file_offset;
    }
    const float* decoded = nullptr;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != staged.row) continue;
      float* const to = out + static_cast<int64_t>(i) * use_.cols;
      if (decoded == nullptr) {
        Decode(StagingBase(slot), part_offsets, to);
        decoded = to;
      } else {
        std::copy_n(decoded, use_.cols, to);
      }
    }
    Keep(slot);
  }
  return Status();
}

void EmbeddingRows::Finished(int32_t job, const Status& status) {
  staged_[static_cast<size_t>(job - first_job_)].status = status;
  if (in_flight_.fetch_sub(1, std::memory_order_acq_rel) == 1) arrived_.Notify();
}

void EmbeddingRows::Decode(const uint8_t* base, const int64_t* part_offsets, float* out) const {
  WeightMatrix matrix{.format = use_.format, .rows = 1, .cols = use_.cols, .data = base + part_offsets[0]};
  int next = 1;
  if (use_.scales >= 0) matrix.scales = base + part_offsets[next++];
  if (use_.biases >= 0) matrix.biases = base + part_offsets[next];
  DecodeRow(matrix, 0, out);
}

int32_t EmbeddingRows::Find(int32_t row) const {
  int32_t entry = buckets_[static_cast<size_t>(row) % buckets_.size()];
  while (entry >= 0 && entries_[static_cast<size_t>(entry)].row != row) {
    entry = entries_[static_cast<size_t>(entry)].next_in_bucket;
  }
  return entry;
}

// Copies a staged row's bytes into the entry used longest ago.
void EmbeddingRows::Keep(int32_t slot) {
  const Staged& staged = staged_[static_cast<size_t>(slot)];
  const int32_t index = oldest_;
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.row >= 0) {
    int32_t* link = &Bucket(entry.row);
    while (*link != index) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
    *link = entry.next_in_bucket;
  }
  for (size_t i = 0; i < sizes_.parts.size(); ++i) {
    const Part& part = sizes_.parts[i];
    const int64_t in_window = part.file_offset + staged.row * part.row_bytes - staged.windows[i].file_offset;
    std::copy_n(StagingBase(slot) + part.staging_offset + in_window, part.row_bytes,
                EntryBase(index) + part.entry_offset);
  }
  entry.row = staged.row;
  entry.next_in_bucket = std::exchange(Bucket(staged.row), index);
  MoveToFront(index);
}

void EmbeddingRows::MoveToFront(int32_t entry) {
  if (newest_ == entry) return;
  Entry& moved = entries_[static_cast<size_t>(entry)];
  entries_[static_cast<size_t>(moved.newer)].older = moved.older;
  (moved.older >= 0 ? entries_[static_cast<size_t>(moved.older)].newer : oldest_) = moved.newer;
  moved.newer = -1;
  moved.older = newest_;
  entries_[static_cast<size_t>(newest_)].newer = entry;
  newest_ = entry;
}

}  // namespace nunspark
