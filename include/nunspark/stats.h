// Counters of a run: plain values, copied out. The metrics and the JSON report read these.
#ifndef NUNSPARK_STATS_H_
#define NUNSPARK_STATS_H_

#include <cstdint>
#include <string_view>

namespace nunspark {

// Per kind of piece: core of a MoE layer, whole dense layer, expert.
struct KindStats {
  int64_t hits = 0;        // acquired while in memory
  int64_t misses = 0;      // acquired while absent or still loading on demand
  int64_t coalesced = 0;   // of the misses: joined a read that was on its way as a prefetch
  int64_t bytes_read = 0;  // from the drive, alignment included
};

// Reads ahead of need, in pieces and in their bytes. Wasted: read, at least in part, and not used in time. Withdrawn:
// given up before anything was read.
struct PrefetchStats {
  int64_t issued = 0;
  int64_t used = 0;
  int64_t wasted = 0;
  int64_t withdrawn = 0;
  int64_t issued_bytes = 0;
  int64_t used_bytes = 0;
  int64_t wasted_bytes = 0;
};

// The same for one layer, its core and experts together.
struct LayerStats {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t coalesced = 0;
  int64_t bytes_read = 0;
  int64_t stall_us = 0;
  int64_t prefetch_issued = 0;
  int64_t prefetch_used = 0;
  int64_t prefetch_wasted = 0;
};

// Forward passes of one kind.
struct PassStats {
  int64_t passes = 0;
  int64_t rows = 0;
  int64_t wall_us = 0;
  int64_t stall_us = 0;  // of it, waiting for the drive; the rest is compute
  int64_t bytes_read = 0;
};

// What is resident of a region of memory, and how much of that is in huge pages, by the kernel's count.
struct PageUse {
  int64_t resident_bytes = 0;
  int64_t huge_bytes = 0;
};

// A part of the process's memory: what the plan gives it and the most that it has held.
struct MemoryPart {
  std::string_view name;
  int64_t planned_bytes = 0;
  int64_t peak_bytes = 0;
};

// Keys and values. A layer that a pass comes to is a hit when none of its blocks has to be read back for it there and
// then; those that were read ahead count as hits.
struct KvStats {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t spilled_bytes = 0;
  int64_t reloaded_bytes = 0;
  int64_t resident_peak_bytes = 0;
  int64_t stall_us = 0;  // waiting for writes and reads
};

struct CacheStats {
  KindStats dense;
  KindStats core;
  KindStats expert;
  int64_t other_bytes_read = 0;  // embedding rows, norm and head
  int64_t resident_bytes = 0;    // pieces held inside the budget now
  int64_t resident_peak_bytes = 0;
  int64_t core_peak_bytes = 0;  // of cores and dense layers alone
  int64_t expert_peak_bytes = 0;
  PrefetchStats core_prefetch;    // of cores and dense layers
  PrefetchStats expert_prefetch;  // of experts, predicted
  PrefetchStats warm_start;       // of experts that earlier runs used most; used: at least once
  int64_t lookahead_passes = 0;   // of one row, with predictions
  int64_t lookahead_skipped = 0;  // predictions not made because the next core was not in memory
  int64_t given_back_slots = 0;   // of experts, given back to the system because it ran short of memory, now
  int64_t quarantined_slots = 0;  // held by reads that have not returned in time, now
  int64_t read_timeouts = 0;      // how often that happened
  int64_t stall_us = 0;           // forward pass waiting for the drive
  int64_t read_us = 0;            // time with at least one read in flight
  PassStats decode;               // passes of one row of each sequence
  PassStats prompt;               // passes of several rows of one: prompts, and drafts that are checked

  int64_t bytes_read() const { return dense.bytes_read + core.bytes_read + expert.bytes_read + other_bytes_read; }
};

}  // namespace nunspark

#endif  // NUNSPARK_STATS_H_
