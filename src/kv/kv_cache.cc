#include "kv/kv_cache.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"

namespace nunspark {
namespace {

int64_t KeyBytes(const KvLayerShape& layer, FloatType type) {
  return int64_t{layer.kv_heads} * kKvBlockPositions * layer.key_dim * FloatBytes(type);
}

// Of a block's values, in bytes from its keys.
int64_t ValueOffset(const KvLayerShape& layer, FloatType type) {
  return layer.values == KvValues::kPartOfKeys ? 0 : KeyBytes(layer, type);
}

int64_t BlockBytes(const KvLayerShape& layer, FloatType type) {
  const int64_t value_dim = layer.values == KvValues::kPartOfKeys ? 0 : layer.value_dim;
  const int64_t value_bytes = int64_t{layer.kv_heads} * kKvBlockPositions * value_dim * FloatBytes(type);
  return AlignUp(KeyBytes(layer, type) + value_bytes, 64);
}

int64_t BlocksOf(int64_t positions) { return (positions + kKvBlockPositions - 1) / kKvBlockPositions; }

}  // namespace

int64_t KvPool::PlanBytes(std::span<const KvLayerShape> layers, FloatType type, int64_t positions) {
  int64_t bytes = 0;  // of one block of every layer
  for (const KvLayerShape& layer : layers) bytes += BlockBytes(layer, type);
  return bytes * BlocksOf(positions);
}

Result<std::unique_ptr<KvPool>> KvPool::Create(std::vector<KvLayerShape> layers, FloatType type, int64_t positions) {
  std::unique_ptr<KvPool> pool(new KvPool(std::move(layers), type));
  pool->blocks_ = BlocksOf(positions);
  ASSIGN_OR_RETURN(pool->memory_, MappedMemory::Create(PlanBytes(pool->layers_, type, positions),
                                                       fmt::format("the KV cache of {} positions", positions),
                                                       "use a shorter context"));
  // The first blocks of all layers, then the second ones; the lowest addresses are handed out first. So memory is
  // touched only as far as it is used.
  const int64_t stride = PlanBytes(pool->layers_, type, kKvBlockPositions);
  uint8_t* first = pool->memory_.data();
  for (const KvLayerShape& layer : pool->layers_) {
    std::vector<uint8_t*>& free = pool->free_.emplace_back();
    for (int64_t i = pool->blocks_ - 1; i >= 0; --i) free.push_back(first + i * stride);
    pool->block_bytes_.push_back(BlockBytes(layer, type));
    first += pool->block_bytes_.back();
  }
  return pool;
}

uint8_t* KvPool::Take(size_t layer) {
  if (free_[layer].empty()) return nullptr;
  uint8_t* const block = free_[layer].back();
  free_[layer].pop_back();
  used_bytes_ += block_bytes_[layer];
  used_peak_bytes_ = std::max(used_peak_bytes_, used_bytes_);
  return block;
}

void KvPool::Give(size_t layer, uint8_t* block) {
  free_[layer].push_back(block);
  used_bytes_ -= block_bytes_[layer];
}

KvSequence::KvSequence(KvPool& pool, int64_t most_positions)
    : pool_(pool),
      most_blocks_(most_positions == 0 ? pool.blocks_ : std::min(pool.blocks_, BlocksOf(most_positions))),
      layers_(pool.layers().size()) {
  const size_t most = static_cast<size_t>(most_blocks_);
  for (LayerBlocks& layer : layers_) {
    layer.blocks.reserve(most);
    layer.keys.reserve(most);
    layer.values.reserve(most);
  }
}

KvSequence::~KvSequence() { Truncate(0); }

int64_t KvSequence::PlanBytes(std::span<const KvLayerShape> layers, int64_t most_positions) {
  const int64_t pointers = 3 * BlocksOf(most_positions);  // to a block, its keys, its values
  return static_cast<int64_t>(layers.size()) *
         (static_cast<int64_t>(sizeof(LayerBlocks)) + pointers * static_cast<int64_t>(sizeof(uint8_t*)));
}

Status KvSequence::Reserve(int64_t end) {
  const size_t wanted = static_cast<size_t>(BlocksOf(end));
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerBlocks& layer = layers_[i];
    while (layer.blocks.size() < wanted) {
      uint8_t* const block = static_cast<int64_t>(layer.blocks.size()) < most_blocks_ ? pool_.Take(i) : nullptr;
      if (block == nullptr) {
        return ResourceExhaustedError(
            fmt::format("the KV cache is full: {} positions asked, {} planned; raise --context or shorten the prompt",
                        end, most_blocks_ * kKvBlockPositions));
      }
      layer.blocks.push_back(block);
      layer.keys.push_back(block);
      layer.values.push_back(block + ValueOffset(pool_.layers()[i], pool_.type()));
    }
  }
  return Status();
}

void KvSequence::Store(int layer, int64_t position, const float* keys, const float* values) {
  const KvLayerShape& shape = pool_.layers()[static_cast<size_t>(layer)];
  const LayerBlocks& blocks = layers_[static_cast<size_t>(layer)];
  const size_t block = static_cast<size_t>(position / kKvBlockPositions);
  DCHECK(block < blocks.blocks.size());
  DCHECK((values == nullptr) == (shape.values == KvValues::kPartOfKeys));
  uint8_t* const key_base = blocks.blocks[block];
  uint8_t* const value_base = key_base + ValueOffset(shape, pool_.type());
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t at = (head * kKvBlockPositions + position % kKvBlockPositions) * FloatBytes(pool_.type());
    Kernels().store_floats(keys + head * shape.key_dim, shape.key_dim, pool_.type(), key_base + at * shape.key_dim);
    if (values == nullptr) continue;
    Kernels().store_floats(values + head * shape.value_dim, shape.value_dim, pool_.type(),
                           value_base + at * shape.value_dim);
  }
}

void KvSequence::Truncate(int64_t length) {
  const size_t kept = static_cast<size_t>(BlocksOf(length));
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerBlocks& layer = layers_[i];
    while (layer.blocks.size() > kept) {
      pool_.Give(i, layer.blocks.back());
      layer.blocks.pop_back();
      layer.keys.pop_back();
      layer.values.pop_back();
    }
  }
  length_ = std::min(length_, length);
}

KvView KvSequence::View(int layer) const {
  const KvLayerShape& shape = pool_.layers()[static_cast<size_t>(layer)];
  const LayerBlocks& blocks = layers_[static_cast<size_t>(layer)];
  return {.type = pool_.type(),
          .kv_heads = shape.kv_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .value_stride = shape.values == KvValues::kPartOfKeys ? shape.key_dim : shape.value_dim,
          .key_blocks = blocks.keys.data(),
          .value_blocks = blocks.values.data()};
}

}  // namespace nunspark
