// KvSpill: which blocks of a KV pool are in memory, and which are in a temporary file until they are needed again.
//
// A block has its place in the address space and at the same offset in the file for good, so that pointers to blocks
// never change; what comes and goes is the memory behind it. Blocks leave by the layer whose next use is farthest away:
// in a pass that takes the layers in turn that is always the one used last, never the one in use. Blocks that no
// sequence of the last passes used leave before that. While a layer is in use, the next one's blocks are read.
//
// Used by one thread at a time, the pool's. Allocates at construction only.
#ifndef NUNSPARK_KV_KV_SPILL_H_
#define NUNSPARK_KV_KV_SPILL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_memory.h"
#include "io/await_reads.h"
#include "io/file.h"
#include "io/read_queue.h"
#include "nunspark/stats.h"
#include "nunspark/status.h"

namespace nunspark {

struct KvSpillOptions {
  // Memory of blocks. What one layer needs for a pass is taken even if it is more.
  int64_t budget_bytes = std::numeric_limits<int64_t>::max();
  std::string folder = {};          // of the temporary file; empty: DefaultSpillFolder()
  bool prefetch = true;             // reads ahead
  std::vector<int32_t> order = {};  // layers in the order in which a pass uses them, if not simply in turn
  ReadQueueOptions io = {};
  // A drive from which nothing has come for so long fails who waits for it. Until it answers, whatever needs the file
  // fails at once: what it is still to write must not be had by others.
  std::chrono::milliseconds read_timeout = kReadTimeout;
  // Puts something around the queue that reads back, such as faults.
  std::function<std::unique_ptr<ReadQueue>(std::unique_ptr<ReadQueue>)> wrap_queue = {};
};

// TMPDIR where it is set, else /var/tmp, which unlike /tmp is seldom in memory.
std::string DefaultSpillFolder();

class KvSpill {
 public:
  // [layers]: where block 0 begins in the memory, bytes from a block to the next one - both multiples of kIoAlignment -
  // and how many blocks there are. The memory must outlive the object, which takes it with it where a read that does
  // not return may still write to it. Errors: those of creating the file.
  static Result<std::unique_ptr<KvSpill>> Create(MappedMemory& memory, std::span<const int64_t> first,
                                                 std::span<const int64_t> pitch, std::span<const int64_t> blocks,
                                                 KvSpillOptions options);
  ~KvSpill();

  // A block gets its first holder, has lost its last one. What it held is forgotten. Taken is false, and the block not
  // to be used, as long as a read that the drive does not answer may still write to it.
  bool Taken(size_t layer, int32_t block);
  void Released(size_t layer, int32_t block);

  // A block that is in memory is written to.
  void Changed(size_t layer, int32_t block) {
    At(layer, block).written = true;
    At(layer, block).stored = false;
  }

  // A pass comes to a layer: first Begin, then Need for each block that it reads or writes there and NeedNext for those
  // of the layer after it, next(), as far as they are known; Await brings the former into memory and starts to read the
  // latter. They stay there until the next Begin or Fetch. Errors: reading or writing the file failed (kIo, also when
  // a read does not return; kDataLoss; kResourceExhausted when the disk is full); nothing is lost, and the same can be
  // asked again.
  void Begin(size_t layer);
  size_t next() const { return next_; }
  void Need(int32_t block);
  void NeedNext(int32_t block);
  Status Await();

  // Between passes: one block into memory, where `kept` of the same layer stays too (or kNoKvBlock). Errors as Await's.
  Status Fetch(size_t layer, int32_t block, int32_t kept);

  const KvStats& stats() const { return stats_; }
  int64_t resident_bytes() const { return resident_bytes_; }

 private:
  struct Block {
    uint32_t used = 0;      // the layer's pass that used it last
    bool written = false;   // has content
    bool resident = false;  // has memory
    bool stored = false;    // the file has its content
    bool reading = false;
    bool listed = false;    // in ahead_
    uint64_t checksum = 0;  // of what is stored
  };
  struct Layer {
    int64_t first = 0;
    int64_t pitch = 0;
    int32_t blocks = 0;
    size_t first_block = 0;  // in blocks_
    uint32_t pass = 1;
    int64_t resident = 0;  // blocks
    int64_t active = 0;    // of these, used by the layer's last pass
  };
  struct Run {
    size_t layer = 0;
    int32_t begin = 0, end = 0;  // blocks
  };
  enum class Which { kIdle, kStored, kAny };

  KvSpill(MappedMemory& memory, KvSpillOptions options);

  Block& At(size_t layer, int32_t block) { return blocks_[layers_[layer].first_block + static_cast<size_t>(block)]; }
  std::span<uint8_t> Memory(size_t layer, int32_t begin, int32_t end) const;
  bool Fits(int64_t bytes) const { return bytes <= options_.budget_bytes - resident_bytes_; }
  void Gain(size_t layer, int32_t block);
  void Lose(size_t layer, int32_t begin, int32_t end);

  Status MakeRoom(int64_t bytes, size_t kept, size_t also_kept);
  void ListVictims();
  Status Evict(size_t layer, Which which, int64_t bytes);
  bool MayLeave(size_t layer, int32_t block, Which which);
  Status Store(size_t layer, int32_t begin, int32_t end);

  void Read(size_t layer, std::vector<int32_t>& blocks);
  Status Drain();
  Status Arrived(const Run& run, const Status& status);
  void ReadAhead();

  MappedMemory& memory_;
  const KvSpillOptions options_;
  File file_;
  std::unique_ptr<ReadQueue> queue_;
  std::vector<Layer> layers_;
  std::vector<Block> blocks_;
  std::vector<int32_t> order_;
  size_t position_ = 0;  // in order_, of the layer in use
  size_t in_use_ = 0, next_ = 0;
  size_t fetched_layer_ = 0;
  int32_t kept_block_ = -1;
  std::vector<int32_t> needed_;  // blocks of the layer in use that are not in memory
  std::vector<int32_t> ahead_;   // stored blocks of the next one that are not
  std::vector<size_t> victims_;  // layers, the best one first
  std::vector<bool> seen_;       // [layers], of ListVictims
  std::vector<Run> runs_;        // being read
  size_t in_flight_ = 0;
  bool hangs_ = false;  // they were waited for in vain, and nothing has come since
  std::vector<ReadCompletion> completions_;
  int64_t resident_bytes_ = 0;
  KvStats stats_;
};

}  // namespace nunspark

#endif  // NUNSPARK_KV_KV_SPILL_H_
