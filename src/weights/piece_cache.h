// PieceCache: pieces in memory under the plan's budget - pinned cores, a ring for the rest, expert slots with LRU.
//
// Owns the slots (one anonymous mapping), the reader and its I/O thread. Implements WeightSource. Reads of one piece
// coalesce; a failed read wakes every waiter with a status that names piece, file, offset, length and errno, and the
// next acquire tries again. Never evicts a leased slot or one that is being filled. Demand goes before prefetch.
//
// A pass of several rows that touches more experts than there are slots does not throw away what is in memory: each
// layer has a share of the slots, in which it keeps the experts that its last rows used; its other experts pass
// through. So a prompt leaves about what a least-recently-used cache would hold had the tokens come one by one. Of
// several sequences that are decoded together each layer keeps what most of them wanted lately.
#ifndef NUNSPARK_WEIGHTS_PIECE_CACHE_H_
#define NUNSPARK_WEIGHTS_PIECE_CACHE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/await_reads.h"
#include "io/read_queue.h"
#include "models/model_layout.h"
#include "models/weight_source.h"
#include "nunspark/options.h"
#include "nunspark/stats.h"
#include "weights/memory_plan.h"
#include "weights/piece_index.h"

namespace nunspark {

class ExpertTraceWriter;

struct PieceCacheOptions {
  bool prefetch = true;     // next cores while a layer computes; off changes no result
  int32_t warm_window = 1;  // layers ahead
  // As in EngineOptions; off with prefetch.
  Governed lookahead = Governed::kAuto;
  int32_t lookahead_top = 12;
  double prediction_recall = 1;
  Governed expert_prefetch = Governed::kAuto;
  // Ask the system to keep the weights in memory; that it refuses is no error.
  bool lock_memory = true;
  // When the system runs short of memory, slots of experts are given back between passes, never below one token's set.
  bool give_back = true;
  const std::atomic<bool>* pressure = nullptr;  // whether it runs short; null: by the system's own word
  // A drive that does not answer for so long fails the acquire. The slot stays out of use until the system has done
  // with it (a direct read may still write to it), the piece is read again into another one.
  std::chrono::milliseconds read_timeout = kReadTimeout;
  // Experts to read into slots that nobody has used yet, in this order, while no pass runs. Copied at creation.
  std::span<const PieceId> warm_start{};
  ExpertTraceWriter* trace = nullptr;  // gets every announcement; must outlive the cache
};

class PieceCache : public WeightSource {
 public:
  // Allocates the slots and loads what the plan pins outside the budget (norm and head, a tied embedding).
  // `layout`, `index` must outlive the cache. `queue` has index.paths() open.
  // Errors: kResourceExhausted when memory is refused; those of the first reads.
  static Result<std::unique_ptr<PieceCache>> Create(const ModelLayout& layout, const PieceIndex& index,
                                                    const MemoryPlan& plan, std::unique_ptr<ReadQueue> queue,
                                                    const PieceCacheOptions& options);

  // Counters since creation. Thread-safe.
  virtual CacheStats stats() const = 0;
  virtual std::vector<LayerStats> layer_stats() const = 0;
  // Of each piece that is an expert the passes that chose it. Thread-safe.
  virtual std::vector<int32_t> expert_uses() const = 0;  // [pieces]
  // "io_uring+O_DIRECT" and the reason for a fallback.
  virtual std::string io_description() const = 0;
  // Of the memory for weights. Takes milliseconds.
  virtual PageUse page_use() const = 0;
  // Of the same: what the system keeps in memory for us, and why not all of it.
  struct Locked {
    int64_t bytes = 0;
    std::string refusal;
  };
  virtual const Locked& locked() const = 0;
};

// Every piece in memory for good: no budget, no eviction. The oracle that streaming is compared with, and what a test
// or a tool uses. Loads everything at creation.
Result<std::unique_ptr<WeightSource>> CreateResidentSource(const ModelLayout& layout, const PieceIndex& index,
                                                           std::unique_ptr<ReadQueue> queue);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_PIECE_CACHE_H_
