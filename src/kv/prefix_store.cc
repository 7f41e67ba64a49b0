#include "kv/prefix_store.h"

#include <algorithm>
#include <bit>

#include <xxhash.h>

#include "base/check.h"

namespace nunspark {
namespace {

constexpr size_t kTokens = kKvBlockPositions;  // of a node

// How many nodes a budget can have at most. Every node holds a block of each layer without a window; where all layers
// have one, a node may hold as little as nothing, and then it is a block of the smallest layer that counts.
template <typename BlockBytes>
int64_t MostNodes(std::span<const KvLayerShape> layers, int64_t blocks, int64_t budget_bytes,
                  const BlockBytes& block_bytes) {
  int64_t least = 0;
  int64_t smallest = block_bytes(0);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].window == 0) least += block_bytes(i);
    smallest = std::min(smallest, block_bytes(i));
  }
  return std::min(blocks, std::max<int64_t>(budget_bytes, 0) / (least > 0 ? least : smallest));
}

size_t Buckets(int64_t nodes) { return std::bit_ceil(static_cast<size_t>(std::max<int64_t>(nodes, 1))); }

}  // namespace

int64_t PrefixStore::PlanBytes(std::span<const KvLayerShape> layers, int64_t positions, int64_t budget_bytes) {
  const int64_t blocks = (positions + kKvBlockPositions - 1) / kKvBlockPositions;
  const int64_t nodes = MostNodes(layers, blocks, budget_bytes,
                                  [&](size_t i) { return KvPool::PlanBytes(layers.subspan(i, 1), kKvBlockPositions); });
  constexpr int64_t kNumber = sizeof(int32_t);
  const int64_t node_bytes =
      static_cast<int64_t>(sizeof(Node)) + kNumber * (kKvBlockPositions + std::ssize(layers) + 1);
  return nodes * node_bytes + static_cast<int64_t>(Buckets(nodes)) * kNumber;
}

PrefixStore::PrefixStore(KvPool& pool, int64_t budget_bytes) : pool_(pool), budget_bytes_(budget_bytes) {
  const size_t nodes = static_cast<size_t>(
      MostNodes(pool.layers(), pool.blocks(), budget_bytes, [&](size_t layer) { return pool.block_bytes(layer); }));
  nodes_.resize(nodes);
  tokens_.resize(nodes * kTokens);
  blocks_.assign(nodes * pool.layers().size(), kNoKvBlock);
  buckets_.assign(Buckets(static_cast<int64_t>(nodes)), kNone);
  path_.reserve(nodes);
  const size_t numbers = tokens_.capacity() + blocks_.capacity() + buckets_.capacity() + path_.capacity();
  CHECK(static_cast<int64_t>(nodes_.capacity() * sizeof(Node) + numbers * sizeof(int32_t)) ==
        PlanBytes(pool.layers(), pool.blocks() * kKvBlockPositions, budget_bytes));
  appended_.assign(pool.layers().size(), kNoKvBlock);
  for (size_t i = nodes; i-- > 0;) {
    nodes_[i].next_in_bucket = free_;
    free_ = static_cast<int32_t>(i);
  }
  pool_.set_reclaimer(this);
}

PrefixStore::~PrefixStore() {
  Clear();
  pool_.set_reclaimer(nullptr);
}

void PrefixStore::Clear() {
  while (oldest_ != kNone) Evict(oldest_);
}

int64_t PrefixStore::Match(std::span<const int32_t> tokens, uint32_t salt, KvSequence& sequence) {
  ++stats_.lookups;
  stats_.tokens_asked += static_cast<int64_t>(tokens.size());
  sequence.Truncate(0);
  const size_t most = static_cast<size_t>(sequence.most_positions());
  FindPath(tokens.first(std::min(most, tokens.size() - std::min<size_t>(tokens.size(), 1))), salt);
  std::span<const int32_t> path = path_;
  while (!Usable(path)) path = path.first(path.size() - 1);
  const std::vector<KvLayerShape>& layers = pool_.layers();
  for (size_t at = 0; at < path.size(); ++at) {
    for (size_t i = 0; i < layers.size(); ++i) {
      appended_[i] = at < FirstSeen(layers[i], path.size()) ? kNoKvBlock : BlocksOf(path[at])[i];
    }
    CHECK(sequence.AppendShared(appended_).ok());
  }
  Touch(path);
  stats_.hits += path.empty() ? 0 : 1;
  stats_.tokens_found += sequence.length();
  return sequence.length();
}

void PrefixStore::Insert(std::span<const int32_t> tokens, uint32_t salt, const KvSequence& sequence) {
  CHECK(static_cast<int64_t>(tokens.size()) >= sequence.length());
  const size_t count = static_cast<size_t>(sequence.length()) / kTokens;
  FindPath(tokens.first(count * kTokens), salt);
  for (const int32_t node : path_) At(node).operation = operation_;
  Touch(path_);
  for (size_t at = 0; at < count; ++at) {
    for (size_t i = 0; i < appended_.size(); ++i) {
      const bool has = at < path_.size() && BlocksOf(path_[at])[i] != kNoKvBlock;
      appended_[i] = has ? kNoKvBlock : sequence.block(i, at);
    }
    if (!MakeRoom(BytesOf(appended_))) break;
    if (at == path_.size()) {
      const int32_t node = AddNode(at == 0 ? kNone : path_.back(), salt, tokens.subspan(at * kTokens, kTokens));
      if (node == kNone) break;
      LinkNewest(node);
      path_.push_back(node);
    }
    HoldBlocks(path_[at], appended_);
  }
  Touch(path_);
  ++operation_;
}

bool PrefixStore::ReleaseSome(size_t layer) {
  // What sequences hold as well frees nothing now.
  for (int32_t node = oldest_; node != kNone; node = At(node).newer) {
    const int32_t block = BlocksOf(node)[layer];
    if (At(node).children > 0 || At(node).operation == operation_) continue;
    if (block == kNoKvBlock || pool_.holders(layer, block) > 1) continue;
    Evict(node);
    ++stats_.evicted_nodes;
    return true;
  }
  // A leaf that frees nothing may hide a parent that does.
  return EvictOldest();
}

// ---- prefixes

// The first block that a query after `blocks` blocks sees in the layer.
size_t PrefixStore::FirstSeen(const KvLayerShape& layer, size_t blocks) {
  if (layer.window == 0) return 0;
  const int64_t position = static_cast<int64_t>(blocks) * kKvBlockPositions;
  return static_cast<size_t>(std::max<int64_t>(position + 1 - layer.window, 0) / kKvBlockPositions);
}

bool PrefixStore::Usable(std::span<const int32_t> path) const {
  const std::vector<KvLayerShape>& layers = pool_.layers();
  for (size_t i = 0; i < layers.size(); ++i) {
    for (size_t at = FirstSeen(layers[i], path.size()); at < path.size(); ++at) {
      if (BlocksOf(path[at])[i] == kNoKvBlock) return false;
    }
  }
  return true;
}

// path_ = the nodes of the tokens' whole blocks, as far as there are any.
void PrefixStore::FindPath(std::span<const int32_t> tokens, uint32_t salt) {
  path_.clear();
  while (tokens.size() >= kTokens) {
    const int32_t node = Find(path_.empty() ? kNone : path_.back(), salt, tokens.first(kTokens));
    if (node == kNone) return;
    path_.push_back(node);
    tokens = tokens.subspan(kTokens);
  }
}

int32_t PrefixStore::Find(int32_t parent, uint32_t salt, std::span<const int32_t> tokens) const {
  int32_t node = buckets_[BucketOf(parent, salt, tokens)];
  while (node != kNone) {
    if (At(node).parent == parent && At(node).salt == salt && std::ranges::equal(TokensOf(node), tokens)) break;
    node = At(node).next_in_bucket;
  }
  return node;
}

size_t PrefixStore::BucketOf(int32_t parent, uint32_t salt, std::span<const int32_t> tokens) const {
  const uint64_t seed = uint64_t{static_cast<uint32_t>(parent)} << 32 | salt;
  return static_cast<size_t>(XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed)) & (buckets_.size() - 1);
}

// ---- nodes

// A node that holds nothing and has no place in the order of use yet; kNone when none can be had.
int32_t PrefixStore::AddNode(int32_t parent, uint32_t salt, std::span<const int32_t> tokens) {
  if (free_ == kNone && !EvictOldest()) return kNone;
  const int32_t node = free_;
  free_ = At(node).next_in_bucket;
  ++used_nodes_;
  int32_t& bucket = buckets_[BucketOf(parent, salt, tokens)];
  At(node) = {.parent = parent, .salt = salt, .next_in_bucket = bucket, .operation = operation_};
  bucket = node;
  std::ranges::copy(tokens, TokensOf(node).begin());
  if (parent != kNone) ++At(parent).children;
  return node;
}

// `blocks` [layers]: those that the node gets, kNoKvBlock for the others.
void PrefixStore::HoldBlocks(int32_t node, std::span<const int32_t> blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == kNoKvBlock) continue;
    pool_.Hold(i, blocks[i]);
    BlocksOf(node)[i] = blocks[i];
  }
  bytes_ += BytesOf(blocks);
  stats_.peak_bytes = std::max(stats_.peak_bytes, bytes_);
}

int64_t PrefixStore::BytesOf(std::span<const int32_t> blocks) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < blocks.size(); ++i) bytes += blocks[i] == kNoKvBlock ? 0 : pool_.block_bytes(i);
  return bytes;
}

bool PrefixStore::MakeRoom(int64_t bytes) {
  while (bytes_ + bytes > budget_bytes_) {
    if (!EvictOldest()) return false;
  }
  return true;
}

// A node is used whenever its children are, and later than they, so that the oldest one has none.
bool PrefixStore::EvictOldest() {
  if (oldest_ == kNone || At(oldest_).operation == operation_) return false;
  Evict(oldest_);
  ++stats_.evicted_nodes;
  return true;
}

void PrefixStore::Evict(int32_t node) {
  CHECK(At(node).children == 0);
  bytes_ -= BytesOf(BlocksOf(node));
  for (size_t i = 0; i < appended_.size(); ++i) {
    int32_t& block = BlocksOf(node)[i];
    if (block != kNoKvBlock) pool_.Release(i, block);
    block = kNoKvBlock;
  }
  int32_t* place = &buckets_[BucketOf(At(node).parent, At(node).salt, TokensOf(node))];
  while (*place != node) place = &At(*place).next_in_bucket;
  *place = At(node).next_in_bucket;
  if (At(node).parent != kNone) --At(At(node).parent).children;
  Unlink(node);
  At(node).next_in_bucket = free_;
  free_ = node;
  --used_nodes_;
}

// ---- the order of use

void PrefixStore::Touch(std::span<const int32_t> path) {
  for (size_t at = path.size(); at-- > 0;) {
    Unlink(path[at]);
    LinkNewest(path[at]);
  }
}

void PrefixStore::Unlink(int32_t node) {
  const Node& it = At(node);
  (it.newer == kNone ? newest_ : At(it.newer).older) = it.older;
  (it.older == kNone ? oldest_ : At(it.older).newer) = it.newer;
}

void PrefixStore::LinkNewest(int32_t node) {
  At(node).newer = kNone;
  At(node).older = newest_;
  (newest_ == kNone ? oldest_ : At(newest_).newer) = node;
  newest_ = node;
}

void PrefixStore::LinkOldest(int32_t node) {
  At(node).older = kNone;
  At(node).newer = oldest_;
  (oldest_ == kNone ? newest_ : At(oldest_).older) = node;
  oldest_ = node;
}

}  // namespace nunspark
