#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"

namespace nunspark {
namespace {

// Of a block.
int64_t KeyBytes(const KvLayerShape& layer) { return layer.kv_heads * KvHeadBytes(layer.format, layer.key_dim); }

// Of a block's values, in bytes from its keys.
int64_t ValueOffset(const KvLayerShape& layer) { return layer.values == KvValues::kPartOfKeys ? 0 : KeyBytes(layer); }

int64_t BlockBytes(const KvLayerShape& layer) {
  const int64_t value_bytes = layer.kv_heads * KvHeadBytes(layer.format, layer.value_dim);
  return KeyBytes(layer) + (layer.values == KvValues::kPartOfKeys ? 0 : value_bytes);
}

// Of a block that comes and goes, in memory and in the file.
int64_t SpillPitch(const KvLayerShape& layer) { return AlignUp(BlockBytes(layer), kIoAlignment); }

int64_t BlocksOf(int64_t positions) { return (positions + kKvBlockPositions - 1) / kKvBlockPositions; }

// Between passes a sequence holds what a query after take_back fewer positions sees, from anywhere in a block to
// anywhere in another; in a pass, whole blocks for its new rows.
int64_t BlocksFor(const KvLayerShape& layer, const KvRoom& room) {
  const int64_t all = BlocksOf(room.positions);
  if (layer.window == 0 || room.sequences == 0) return all;
  const int64_t kept = (layer.window + room.take_back - 2) / kKvBlockPositions + 2;
  const int64_t added = (room.pass_rows + room.sequences * (kKvBlockPositions - 1)) / kKvBlockPositions;
  return std::min(all, room.sequences * kept + added + BlocksOf(room.beside));
}

}  // namespace

int64_t KvPool::PlanBytes(std::span<const KvLayerShape> layers, const KvRoom& room) {
  int64_t bytes = 0;
  for (const KvLayerShape& layer : layers) bytes += BlockBytes(layer) * BlocksFor(layer, room);
  return bytes;
}

int64_t KvPool::PlanResidentBytes(std::span<const KvLayerShape> layers, const KvRoom& room, int64_t budget_bytes) {
  const int64_t all = PlanBytes(layers, room);
  if (budget_bytes >= all) return all;
  int64_t largest = 0;
  for (const KvLayerShape& layer : layers) {
    // Beginning a fork needs two blocks, however few there are.
    largest = std::max(largest, SpillPitch(layer) * std::max<int64_t>(BlocksFor(layer, room), 2));
  }
  return std::max(budget_bytes, largest);
}

Result<std::unique_ptr<KvPool>> KvPool::Create(std::vector<KvLayerShape> layers, const KvRoom& room,
                                               KvSpillOptions spill) {
  std::unique_ptr<KvPool> pool(new KvPool(std::move(layers), room));
  pool->blocks_ = BlocksOf(room.positions);
  for (const KvLayerShape& layer : pool->layers_) {
    pool->block_bytes_.push_back(BlockBytes(layer));
    pool->layer_blocks_.push_back(BlocksFor(layer, room));
    std::vector<int32_t>& free = pool->free_.emplace_back();
    for (int64_t block = pool->layer_blocks_.back() - 1; block >= 0; --block) {
      free.push_back(static_cast<int32_t>(block));
    }
  }
  pool->holders_.assign(pool->layers_.size() * static_cast<size_t>(pool->blocks_), 0);
  const bool spills = spill.budget_bytes < PlanBytes(pool->layers_, room);
  const int64_t bytes = spills ? pool->PlaceLayerByLayer() : pool->PlaceSideBySide();
  ASSIGN_OR_RETURN(
      pool->memory_,
      MappedMemory::Create(bytes, fmt::format("the KV cache of {} positions", room.positions), "use a shorter context",
                           spills ? MappedMemory::Use::kParts : MappedMemory::Use::kAll));
  if (spills) {
    ASSIGN_OR_RETURN(pool->spill_,
                     KvSpill::Create(pool->memory_, pool->first_, pool->pitch_, pool->layer_blocks_, std::move(spill)));
  }
  return pool;
}

// The first blocks of all layers that have as many as there can be, then the second ones; the lowest addresses are
// handed out first. So memory is touched only as far as it is used. The other layers, which soon use all they have, lie
// behind. Returns the bytes of all.
int64_t KvPool::PlaceSideBySide() {
  int64_t row = 0;  // bytes of one block of every such layer
  for (size_t i = 0; i < layers_.size(); ++i) row += layer_blocks_[i] == blocks_ ? block_bytes_[i] : 0;
  int64_t first = 0, end = row * blocks_;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool apart = layer_blocks_[i] < blocks_;
    first_.push_back(apart ? end : first);
    pitch_.push_back(apart ? block_bytes_[i] : row);
    (apart ? end : first) += apart ? block_bytes_[i] * layer_blocks_[i] : block_bytes_[i];
  }
  return end;
}

// Neighbours in a layer are neighbours in memory and file, each of whole pages.
int64_t KvPool::PlaceLayerByLayer() {
  int64_t bytes = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    first_.push_back(bytes);
    pitch_.push_back(SpillPitch(layers_[i]));
    bytes += pitch_.back() * layer_blocks_[i];
  }
  return bytes;
}

KvStats KvPool::stats() const {
  if (spill_ != nullptr) return spill_->stats();
  return {.hits = layers_begun_, .resident_peak_bytes = used_peak_bytes_};
}

bool KvPool::BeginLayer(int layer) {
  ++layers_begun_;
  if (spill_ == nullptr) return false;
  layer_in_use_ = static_cast<size_t>(layer);
  spill_->Begin(layer_in_use_);
  return true;
}

void KvPool::UseInLayer(const KvSequence& sequence, int64_t begin, int64_t end) {
  for (int64_t at = begin / kKvBlockPositions; at < BlocksOf(end); ++at) {
    const int32_t block = sequence.block(layer_in_use_, static_cast<size_t>(at));
    if (block != kNoKvBlock) spill_->Need(block);
    const int32_t next = sequence.block(spill_->next(), static_cast<size_t>(at));
    if (next != kNoKvBlock) spill_->NeedNext(next);
  }
}

Result<std::span<uint8_t>> KvPool::Block(size_t layer, int32_t block, Access access) {
  if (spill_ != nullptr) {
    RETURN_IF_ERROR(spill_->Fetch(layer, block, kNoKvBlock));
    if (access == Access::kWrite) spill_->Changed(layer, block);
  }
  return std::span(Keys(layer, block), static_cast<size_t>(block_bytes_[layer]));
}

int32_t KvPool::Take(size_t layer) {
  while (free_[layer].empty()) {
    if (reclaimer_ == nullptr || !reclaimer_->ReleaseSome(layer)) return kNoKvBlock;
  }
  std::vector<int32_t>& free = free_[layer];
  size_t at = free.size();
  while (at > 0 && spill_ != nullptr && !spill_->Taken(layer, free[at - 1])) --at;
  if (at == 0) return kNoKvBlock;
  const int32_t block = free[at - 1];
  free.erase(free.begin() + static_cast<ptrdiff_t>(at - 1));
  holders_[At(layer, block)] = 1;
  used_bytes_ += block_bytes_[layer];
  used_peak_bytes_ = std::max(used_peak_bytes_, used_bytes_);
  return block;
}

void KvPool::Release(size_t layer, int32_t block) {
  DCHECK(holders(layer, block) > 0);
  if (--holders_[At(layer, block)] > 0) return;
  free_[layer].push_back(block);
  used_bytes_ -= block_bytes_[layer];
  if (spill_ != nullptr) spill_->Released(layer, block);
}

uint8_t* KvPool::Values(size_t layer, int32_t block) const { return Keys(layer, block) + ValueOffset(layers_[layer]); }

Status KvPool::Copy(size_t layer, int32_t from, int32_t to, int64_t positions) {
  if (spill_ != nullptr) {
    RETURN_IF_ERROR(spill_->Fetch(layer, from, kNoKvBlock));
    RETURN_IF_ERROR(spill_->Fetch(layer, to, from));
    spill_->Changed(layer, to);
  }
  const KvLayerShape& shape = layers_[layer];
  const auto copy = [&](const uint8_t* source, uint8_t* target, int dim) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      CopyKvRows(shape.format, dim, source, static_cast<int>(positions), target);
      source += KvHeadBytes(shape.format, dim);
      target += KvHeadBytes(shape.format, dim);
    }
  };
  copy(Keys(layer, from), Keys(layer, to), shape.key_dim);
  if (shape.values == KvValues::kSeparate) copy(Values(layer, from), Values(layer, to), shape.value_dim);
  return Status();
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
  constexpr int64_t kBytesPerBlock = sizeof(int32_t) + 2 * sizeof(uint8_t*);  // its number, its keys, its values
  return static_cast<int64_t>(layers.size()) *
         (static_cast<int64_t>(sizeof(LayerBlocks)) + BlocksOf(most_positions) * kBytesPerBlock);
}

Status KvSequence::Reserve(int64_t end) {
  const size_t wanted = static_cast<size_t>(BlocksOf(end));
  const size_t first_written = static_cast<size_t>(length_ / kKvBlockPositions);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<int32_t>& blocks = layers_[i].blocks;
    for (size_t at = first_written; at < std::min(wanted, blocks.size()); ++at) {
      DCHECK(blocks[at] != kNoKvBlock);
      if (pool_.holders(i, blocks[at]) == 1) continue;
      const int32_t own = TakeFor(i, at);
      if (own == kNoKvBlock) return Full(end);
      const Status copied =
          at == first_written ? pool_.Copy(i, blocks[at], own, length_ % kKvBlockPositions) : Status();
      pool_.Release(i, copied.ok() ? blocks[at] : own);
      RETURN_IF_ERROR(copied);
      Put(i, at, own);
    }
    while (blocks.size() < wanted) {
      const int32_t own = TakeFor(i, blocks.size());
      if (own == kNoKvBlock) return Full(end);
      Put(i, blocks.size(), own);
    }
  }
  return Status();
}

Status KvSequence::ForkFrom(const KvSequence& other, int64_t length) {
  CHECK(&pool_ == &other.pool_ && this != &other && length <= other.length_);
  CHECK(length == 0 || length == other.length_ || length >= other.shortest());
  const size_t whole = static_cast<size_t>(length / kKvBlockPositions);
  length_ = 0;
  if (BlocksOf(length) > most_blocks_) {
    Truncate(0);
    return Full(length);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<int32_t>& blocks = layers_[i].blocks;
    const std::vector<int32_t>& others = other.layers_[i].blocks;
    Shrink(i, whole);
    // A sequence is forked again and again from one that only grows: what they share already stays.
    for (size_t at = 0; at < whole; ++at) {
      if (at < blocks.size()) {
        if (blocks[at] == others[at]) continue;
        Drop(i, at);
      }
      Share(i, at, others[at]);
    }
    layers_[i].given_back = std::min(other.layers_[i].given_back, whole);
    if (length % kKvBlockPositions == 0) continue;
    const int32_t own = TakeFor(i, whole);
    if (own == kNoKvBlock) {
      Truncate(0);
      return Full(length);
    }
    Put(i, whole, own);
    const Status copied = pool_.Copy(i, others[whole], own, length % kKvBlockPositions);
    if (!copied.ok()) {
      Truncate(0);
      return copied;
    }
  }
  length_ = length;
  return Status();
}

Status KvSequence::AppendShared(std::span<const int32_t> blocks) {
  const size_t at = static_cast<size_t>(length_ / kKvBlockPositions);
  CHECK(blocks.size() == layers_.size() && length_ % kKvBlockPositions == 0);
  if (static_cast<int64_t>(at) >= most_blocks_) return Full(length_ + kKvBlockPositions);
  for (size_t i = 0; i < layers_.size(); ++i) {
    CHECK(layers_[i].blocks.size() == at);
    Share(i, at, blocks[i]);
    if (blocks[i] == kNoKvBlock && layers_[i].given_back == at) layers_[i].given_back = at + 1;
  }
  length_ += kKvBlockPositions;
  return Status();
}

void KvSequence::Swap(KvSequence& other) {
  CHECK(&pool_ == &other.pool_);
  std::swap(most_blocks_, other.most_blocks_);
  std::swap(length_, other.length_);
  layers_.swap(other.layers_);
}

// A block for place `at` of the layer, or kNoKvBlock.
int32_t KvSequence::TakeFor(size_t layer, size_t at) {
  return static_cast<int64_t>(at) < most_blocks_ ? pool_.Take(layer) : kNoKvBlock;
}

// The block comes to place `at` of the layer, which is there or the next one.
void KvSequence::Put(size_t layer, size_t at, int32_t block) {
  LayerBlocks& blocks = layers_[layer];
  if (at == blocks.blocks.size()) {
    blocks.blocks.emplace_back();
    blocks.keys.emplace_back();
    blocks.values.emplace_back();
  }
  blocks.blocks[at] = block;
  blocks.keys[at] = block == kNoKvBlock ? nullptr : pool_.Keys(layer, block);
  blocks.values[at] = block == kNoKvBlock ? nullptr : pool_.Values(layer, block);
}

// The same for another holder's block.
void KvSequence::Share(size_t layer, size_t at, int32_t block) {
  if (block != kNoKvBlock) pool_.Hold(layer, block);
  Put(layer, at, block);
}

// The block at the place is no longer held; the place stays.
void KvSequence::Drop(size_t layer, size_t at) {
  if (layers_[layer].blocks[at] != kNoKvBlock) pool_.Release(layer, layers_[layer].blocks[at]);
  Put(layer, at, kNoKvBlock);
}

void KvSequence::Shrink(size_t layer, size_t blocks) {
  LayerBlocks& held = layers_[layer];
  while (held.blocks.size() > blocks) {
    Drop(layer, held.blocks.size() - 1);
    held.blocks.pop_back();
    held.keys.pop_back();
    held.values.pop_back();
  }
  held.given_back = std::min(held.given_back, blocks);
}

Status KvSequence::Full(int64_t end) const {
  return ResourceExhaustedError(
      fmt::format("the KV cache is full: {} positions asked, {} planned; raise --context or shorten the prompt", end,
                  most_blocks_ * kKvBlockPositions));
}

void KvSequence::Store(int layer, int64_t position, const float* keys, const float* values) {
  const size_t i = static_cast<size_t>(layer);
  const KvLayerShape& shape = pool_.layers()[i];
  DCHECK(static_cast<size_t>(position / kKvBlockPositions) < layers_[i].blocks.size());
  DCHECK((values == nullptr) == (shape.values == KvValues::kPartOfKeys));
  const int32_t block = layers_[i].blocks[static_cast<size_t>(position / kKvBlockPositions)];
  DCHECK(pool_.holders(i, block) == 1);
  if (pool_.spill_ != nullptr) pool_.spill_->Changed(i, block);
  const int at = static_cast<int>(position % kKvBlockPositions);
  const auto store = [&](const float* rows, int dim, KvSide side, uint8_t* head) {
    for (int h = 0; h < shape.kv_heads; ++h, head += KvHeadBytes(shape.format, dim)) {
      Kernels().store_kv(rows + h * dim, dim, shape.format, side, at, head);
    }
  };
  store(keys, shape.key_dim, KvSide::kKeys, pool_.Keys(i, block));
  if (values != nullptr) store(values, shape.value_dim, KvSide::kValues, pool_.Values(i, block));
}

void KvSequence::Commit(int64_t length) {
  length_ = length;
  if (pool_.room_.sequences == 0) return;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t window = pool_.layers()[i].window;
    if (window == 0) continue;
    const int64_t first_seen = std::max<int64_t>(length - pool_.room_.take_back + 1 - window, 0);
    const size_t unseen = std::min(static_cast<size_t>(first_seen / kKvBlockPositions), layers_[i].blocks.size());
    for (size_t& at = layers_[i].given_back; at < unseen; ++at) Drop(i, at);
  }
}

int64_t KvSequence::shortest() const {
  int64_t length = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t first = static_cast<int64_t>(layers_[i].given_back) * kKvBlockPositions;
    if (first > 0) length = std::max(length, first + pool_.layers()[i].window - 1);
  }
  return length;
}

int64_t KvSequence::Truncate(int64_t length) {
  if (length < length_ && length < shortest()) length = 0;
  const size_t kept = static_cast<size_t>(BlocksOf(length));
  for (size_t i = 0; i < layers_.size(); ++i) Shrink(i, kept);
  return length_ = std::min(length_, length);
}

KvView KvSequence::View(int layer) const {
  const KvLayerShape& shape = pool_.layers()[static_cast<size_t>(layer)];
  const LayerBlocks& blocks = layers_[static_cast<size_t>(layer)];
  return {.format = shape.format,
          .kv_heads = shape.kv_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .value_width = shape.values == KvValues::kPartOfKeys ? shape.key_dim : shape.value_dim,
          .key_blocks = blocks.keys.data(),
          .value_blocks = blocks.values.data()};
}

}  // namespace nunspark
