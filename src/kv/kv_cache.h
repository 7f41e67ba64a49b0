// Paged KV: blocks of 64 positions from one pool, reserved up front, handed to sequences.
//
// A block holds keys and values of one layer for 64 absolute positions (kernels.h KvView has the layout). Keys are
// stored after their norm and RoPE. Sequences with a common prefix share its blocks, which are counted; a block is
// written only while one sequence holds it. Nothing is allocated while decoding: Reserve takes blocks from the pool's
// free list. Of a layer with a window a sequence gives back the blocks that no later query sees. A pool and its
// sequences are used by one thread at a time.
#ifndef NUNSPARK_KV_KV_CACHE_H_
#define NUNSPARK_KV_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_memory.h"
#include "kernels/kernels.h"
#include "kv/kv_spill.h"
#include "nunspark/stats.h"
#include "nunspark/status.h"

namespace nunspark {

// Where a layer's values are: stored beside its keys, or the first value_dim elements of each key (MLA's latent).
enum class KvValues : uint8_t { kSeparate, kPartOfKeys };

struct KvLayerShape {
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;  // at most key_dim for kPartOfKeys
  KvValues values = KvValues::kSeparate;
  int64_t window = 0;    // positions that a query sees, its own included; 0 = all
  KvFormat format = {};  // floats for kPartOfKeys
};

inline constexpr int32_t kNoKvBlock = -1;

// What a pool is to hold.
struct KvRoom {
  int64_t positions = 0;  // of all sequences together and what is beside them, each in blocks of its own
  int64_t beside = 0;     // of these, those of forks and of whoever else holds blocks: they are had in every layer
  // Of a layer with a window no more is had than so many sequences need at once, of which a pass may add pass_rows
  // positions in all, and each of which may be truncated by take_back positions. 0: windows give nothing back.
  int64_t sequences = 0;
  int64_t pass_rows = 0;
  int64_t take_back = 0;
};

class KvSequence;

class KvPool {
 public:
  // Positions are rounded up to blocks. No more than the spill's budget is in memory (PlanResidentBytes), the rest in
  // its file. Errors: kResourceExhausted when the system refuses the memory; those of creating the file.
  static Result<std::unique_ptr<KvPool>> Create(std::vector<KvLayerShape> layers, const KvRoom& room,
                                                KvSpillOptions spill = {});
  static Result<std::unique_ptr<KvPool>> Create(std::vector<KvLayerShape> layers, int64_t positions,
                                                KvSpillOptions spill = {}) {
    return Create(std::move(layers), KvRoom{.positions = positions}, std::move(spill));
  }
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // Bytes that Create would map without a spill.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, const KvRoom& room);
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, int64_t positions) {
    return PlanBytes(layers, KvRoom{.positions = positions});
  }
  // Bytes that are resident at most: all, or as many as the budget, but never less than the largest layer.
  static int64_t PlanResidentBytes(std::span<const KvLayerShape> layers, const KvRoom& room, int64_t budget_bytes);

  const std::vector<KvLayerShape>& layers() const { return layers_; }
  int64_t blocks() const { return blocks_; }  // of a layer without window; the others have no more
  int64_t blocks(size_t layer) const { return layer_blocks_[layer]; }
  int64_t block_bytes(size_t layer) const { return block_bytes_[layer]; }
  int64_t bytes() const { return memory_.bytes(); }
  int64_t used_bytes() const { return used_bytes_; }  // of blocks that have holders, each counted once
  // Without a spill everything used is resident, and every layer a hit.
  KvStats stats() const;
  PageUse page_use() const { return memory_.page_use(); }

  // For those that hold blocks themselves. A block of a layer with the caller as its one holder, or kNoKvBlock when
  // they are used up and `reclaimer` has none to give; one more holder; one holder less. A block without holders can be
  // taken again.
  int32_t Take(size_t layer);
  void Hold(size_t layer, int32_t block) { ++holders_[At(layer, block)]; }
  void Release(size_t layer, int32_t block);
  int32_t holders(size_t layer, int32_t block) const { return holders_[At(layer, block)]; }
  // The block's bytes, which are in memory until the next call, or a pass; to be written to only by its one holder.
  // Errors: KvSpill's.
  enum class Access { kRead, kWrite };
  Result<std::span<uint8_t>> Block(size_t layer, int32_t block, Access access);

  // A pass comes to a layer: first BeginLayer; unless that says that all is in memory anyway, UseInLayer for the
  // positions that each sequence reads or writes there; then AwaitLayer. Blocks of other layers and sequences may not
  // be touched until the next BeginLayer. Errors: KvSpill's; nothing is lost, and the pass can be run again.
  bool BeginLayer(int layer);
  void UseInLayer(const KvSequence& sequence, int64_t begin, int64_t end);
  Status AwaitLayer() { return spill_->Await(); }

  // Who holds blocks that nobody needs at the moment. nullptr: no one. REQUIRES: lives until it is replaced.
  class Reclaimer {
   public:
    virtual ~Reclaimer() = default;
    // Releases some of them, those of `layer` if it can; false when none are left.
    virtual bool ReleaseSome(size_t layer) = 0;
  };
  void set_reclaimer(Reclaimer* reclaimer) { reclaimer_ = reclaimer; }

 private:
  friend class KvSequence;
  KvPool(std::vector<KvLayerShape> layers, const KvRoom& room) : layers_(std::move(layers)), room_(room) {}

  int64_t PlaceSideBySide();
  int64_t PlaceLayerByLayer();
  uint8_t* Keys(size_t layer, int32_t block) const { return memory_.data() + first_[layer] + block * pitch_[layer]; }
  uint8_t* Values(size_t layer, int32_t block) const;
  // The first `positions` of a block to another one of the layer.
  Status Copy(size_t layer, int32_t from, int32_t to, int64_t positions);
  size_t At(size_t layer, int32_t block) const {
    return layer * static_cast<size_t>(blocks_) + static_cast<size_t>(block);
  }

  std::vector<KvLayerShape> layers_;
  KvRoom room_;
  MappedMemory memory_;
  std::vector<int64_t> layer_blocks_;       // [layers], at most blocks_
  std::vector<int64_t> first_;              // [layers], where block 0 begins
  std::vector<int64_t> pitch_;              // [layers], bytes from a block to the next one of its layer
  std::vector<int64_t> block_bytes_;        // [layers], keys and values
  std::vector<std::vector<int32_t>> free_;  // [layers]
  std::vector<int32_t> holders_;            // [layers * blocks]
  int64_t blocks_ = 0;
  int64_t used_bytes_ = 0;
  int64_t used_peak_bytes_ = 0;
  Reclaimer* reclaimer_ = nullptr;
  int64_t layers_begun_ = 0;
  size_t layer_in_use_ = 0;
  std::unique_ptr<KvSpill> spill_;  // nullptr: all is in memory
};

// The keys and values of one sequence in all layers. Returns its blocks when destroyed; the pool must outlive it.
class KvSequence {
 public:
  // `most_positions`: what it will ever hold; 0 = as many as the pool. Only its own bookkeeping follows from it.
  explicit KvSequence(KvPool& pool, int64_t most_positions = 0);
  ~KvSequence();
  KvSequence(KvSequence&&) = delete;

  // Bytes of a sequence's bookkeeping, outside the pool.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, int64_t most_positions);

  // Positions that are stored in every layer.
  int64_t length() const { return length_; }

  KvPool& pool() const { return pool_; }
  int64_t most_positions() const { return most_blocks_ * kKvBlockPositions; }

  // Makes room for positions [0, end), those from length() on in blocks that no other sequence holds: of one that was
  // shared, the positions below length() are copied. Errors: kResourceExhausted (asked, planned) when the pool is used
  // up or the sequence would hold more than its most.
  Status Reserve(int64_t end);

  // Becomes the first `length` positions of `other`, which does not change; what this sequence held is given back.
  // Whole blocks are shared, the positions of the last one that is not whole are copied. REQUIRES: the same pool,
  // length 0 or from other.shortest() to other.length(). Errors: as Reserve, and the sequence is empty.
  Status ForkFrom(const KvSequence& other, int64_t length);

  // The next 64 positions are those of `blocks` [layers], which get one more holder; kNoKvBlock where no query from
  // here on sees them. REQUIRES: length() is a multiple of 64 and nothing is reserved beyond it. Errors:
  // kResourceExhausted when the sequence holds its most.
  Status AppendShared(std::span<const int32_t> blocks);

  // The block of positions [64 * at, 64 * at + 64) in a layer, or kNoKvBlock where there is none (any more).
  int32_t block(size_t layer, size_t at) const {
    const std::vector<int32_t>& blocks = layers_[layer].blocks;
    return at < blocks.size() ? blocks[at] : kNoKvBlock;
  }

  // Exchanges all that two sequences of one pool are, their most included.
  void Swap(KvSequence& other);

  // Stores one position of one layer: keys [kv_heads * key_dim], values [kv_heads * value_dim], or nullptr where the
  // values are part of the keys. REQUIRES: length() <= position < reserved end.
  void Store(int layer, int64_t position, const float* keys, const float* values);

  // The forward pass finished positions up to `length`. Blocks that no later query sees are given back, those that one
  // would see after Truncate took KvRoom::take_back positions back excepted.
  void Commit(int64_t length);

  // The least length from which the sequence could go on: below it, a query would see positions that a window has given
  // back. 0 when it could from any.
  int64_t shortest() const;

  // Forgets positions >= length and returns their blocks. Where the sequence could not go on from there it forgets all,
  // and the caller has to compute it anew. Returns length().
  int64_t Truncate(int64_t length);

  KvView View(int layer) const;

 private:
  struct LayerBlocks {
    std::vector<int32_t> blocks;       // of the pool; kNoKvBlock where no later query sees the positions
    std::vector<const uint8_t*> keys;  // same blocks, as the kernel wants them
    std::vector<const uint8_t*> values;
    size_t given_back = 0;  // of the first blocks
  };

  void Put(size_t layer, size_t at, int32_t block);
  void Share(size_t layer, size_t at, int32_t block);
  void Drop(size_t layer, size_t at);
  void Shrink(size_t layer, size_t blocks);
  int32_t TakeFor(size_t layer, size_t at);
  Status Full(int64_t end) const;

  KvPool& pool_;
  int64_t most_blocks_;
  std::vector<LayerBlocks> layers_;
  int64_t length_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_KV_KV_CACHE_H_
