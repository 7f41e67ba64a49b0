// Paged KV: blocks of 64 positions from one pool, reserved up front, handed to sequences.
//
// A block holds keys and values of one layer for 64 absolute positions (kernels.h KvView has the layout). Keys are
// stored after their norm and RoPE. Nothing is allocated while decoding: Reserve takes blocks from the pool's free
// list. A pool and its sequences are used by one thread at a time.
#ifndef NUNSPARK_KV_KV_CACHE_H_
#define NUNSPARK_KV_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_memory.h"
#include "kernels/kernels.h"
#include "nunspark/status.h"

namespace nunspark {

// Where a layer's values are: stored beside its keys, or the first value_dim elements of each key (MLA's latent).
enum class KvValues : uint8_t { kSeparate, kPartOfKeys };

struct KvLayerShape {
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;  // at most key_dim for kPartOfKeys
  KvValues values = KvValues::kSeparate;
};

class KvPool {
 public:
  // Room for `positions` positions (rounded up to blocks) in every layer.
  // Errors: kResourceExhausted when the system refuses the memory.
  static Result<std::unique_ptr<KvPool>> Create(std::vector<KvLayerShape> layers, FloatType type, int64_t positions);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // Bytes that Create would map.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, FloatType type, int64_t positions);

  FloatType type() const { return type_; }
  const std::vector<KvLayerShape>& layers() const { return layers_; }
  int64_t bytes() const { return memory_.bytes(); }
  int64_t used_peak_bytes() const { return used_peak_bytes_; }
  PageUse page_use() const { return memory_.page_use(); }

 private:
  friend class KvSequence;
  KvPool(std::vector<KvLayerShape> layers, FloatType type) : layers_(std::move(layers)), type_(type) {}

  // One block of a layer, or nullptr when they are used up.
  uint8_t* Take(size_t layer);
  void Give(size_t layer, uint8_t* block);

  std::vector<KvLayerShape> layers_;
  FloatType type_;
  MappedMemory memory_;
  std::vector<int64_t> block_bytes_;         // [layers], keys and values
  std::vector<std::vector<uint8_t*>> free_;  // [layers]
  int64_t blocks_ = 0;                       // of every layer
  int64_t used_bytes_ = 0;
  int64_t used_peak_bytes_ = 0;
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

  // Makes room for positions [0, end). Errors: kResourceExhausted (asked, planned) when the pool is used up or the
  // sequence would hold more than its most.
  Status Reserve(int64_t end);

  // Stores one position of one layer: keys [kv_heads * key_dim], values [kv_heads * value_dim], or nullptr where the
  // values are part of the keys. REQUIRES: position < reserved end.
  void Store(int layer, int64_t position, const float* keys, const float* values);

  // The forward pass finished positions up to `length`.
  void Commit(int64_t length) { length_ = length; }

  // Forgets positions >= length and returns their blocks.
  void Truncate(int64_t length);

  KvView View(int layer) const;

 private:
  struct LayerBlocks {
    std::vector<uint8_t*> blocks;
    std::vector<const uint8_t*> keys;  // same blocks, as the kernel wants them
    std::vector<const uint8_t*> values;
  };

  KvPool& pool_;
  const int64_t most_blocks_;
  std::vector<LayerBlocks> layers_;
  int64_t length_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_KV_KV_CACHE_H_
