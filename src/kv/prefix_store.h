// PrefixStore: keys and values of prefixes that were computed before, for sequences that begin in the same way.
//
// A radix tree over token ids, cut into blocks of 64: a node stands for one block of tokens after those of its parent,
// and holds the KV blocks of its positions, which it shares with the sequences that computed or use them. What has not
// been used for longest goes first, leaves before their parents: beyond the store's own budget, and when the pool has
// no free block. Used by one thread at a time, the pool's. Allocates at construction only, but for saving and loading.
//
// Reuse is exact as long as keys and values are a function of the tokens up to their position and of the salt: a number
// that the caller makes of everything else they depend on, such as the frequencies of the rotations.
#ifndef NUNSPARK_KV_PREFIX_STORE_H_
#define NUNSPARK_KV_PREFIX_STORE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/kv_cache.h"
#include "nunspark/status.h"

namespace nunspark {

// Since the store was made.
struct PrefixStats {
  int64_t lookups = 0;
  int64_t hits = 0;  // lookups that found anything
  int64_t tokens_asked = 0;
  int64_t tokens_found = 0;
  int64_t evicted_nodes = 0;
  int64_t peak_bytes = 0;  // of KV blocks held
};

class PrefixStore : public KvPool::Reclaimer {
 public:
  // Becomes the pool's reclaimer. `budget_bytes`: KV blocks held at most, those counted that sequences hold too. The
  // pool must outlive the store.
  PrefixStore(KvPool& pool, int64_t budget_bytes);
  ~PrefixStore() override;
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // Bytes of bookkeeping that a store for a pool of so many positions takes; its KV blocks are the pool's.
  static int64_t PlanBytes(std::span<const KvLayerShape> layers, int64_t positions, int64_t budget_bytes);

  // Makes `sequence` the longest stored prefix of `tokens` from which it can go on, and returns its length: a multiple
  // of 64, at most tokens.size() - 1, so that there is a token to feed, and at most what the sequence can hold. A
  // layer with a window must still have what a query after the prefix sees. The sequence is empty when there is none.
  int64_t Match(std::span<const int32_t> tokens, uint32_t salt, KvSequence& sequence);

  // Keeps the whole blocks of a sequence's stored positions. tokens: the sequence's, at least sequence.length(). Where
  // layers with windows have given up their oldest blocks, the prefix is usable at its end; inserting also at the end
  // of the prompt makes it usable there. Stops early where the budget has no room for the rest.
  void Insert(std::span<const int32_t> tokens, uint32_t salt, const KvSequence& sequence);

  void Clear();

  // Writes all of it to a file that only its owner may read: it tells what was said. Appears when it is complete
  // (docs/FORMAT.md, "Saved prefixes"). fingerprint, at most 4096 bytes: all that keys and values depend on besides
  // tokens and salt - the model, numerics, how they are stored. Errors: those of writing. Allocates.
  Status Save(std::string_view fingerprint, const std::string& path);

  // What was saved under the same fingerprint, as far as the budget and the pool have room, the most recently used
  // first. Nothing is kept on an error: kNotFound; kUnsupported (another version, another fingerprint, other layers);
  // kDataLoss (corrupt, truncated); kIo. REQUIRES: nodes() == 0. Allocates.
  Status Load(std::string_view fingerprint, const std::string& path);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t bytes() const { return bytes_; }  // of KV blocks held
  int64_t nodes() const { return used_nodes_; }
  const PrefixStats& stats() const { return stats_; }

  bool ReleaseSome(size_t layer) override;

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    int32_t parent = kNone;
    uint32_t salt = 0;
    int32_t children = 0;
    int32_t next_in_bucket = kNone;  // or in the list of free nodes
    int32_t newer = kNone;           // neighbours in the order of use
    int32_t older = kNone;
    uint64_t operation = 0;  // that used the node last
  };

  Node& At(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  std::span<int32_t> TokensOf(int32_t node) { return {&tokens_[static_cast<size_t>(node) * 64], 64}; }
  std::span<const int32_t> TokensOf(int32_t node) const { return {&tokens_[static_cast<size_t>(node) * 64], 64}; }
  std::span<int32_t> BlocksOf(int32_t node) {
    return {&blocks_[static_cast<size_t>(node) * appended_.size()], appended_.size()};
  }
  std::span<const int32_t> BlocksOf(int32_t node) const {
    return {&blocks_[static_cast<size_t>(node) * appended_.size()], appended_.size()};
  }

  static size_t FirstSeen(const KvLayerShape& layer, size_t blocks);
  bool Usable(std::span<const int32_t> path) const;
  void FindPath(std::span<const int32_t> tokens, uint32_t salt);
  int32_t Find(int32_t parent, uint32_t salt, std::span<const int32_t> tokens) const;
  size_t BucketOf(int32_t parent, uint32_t salt, std::span<const int32_t> tokens) const;

  int32_t AddNode(int32_t parent, uint32_t salt, std::span<const int32_t> tokens);
  void HoldBlocks(int32_t node, std::span<const int32_t> blocks);
  int64_t BytesOf(std::span<const int32_t> blocks) const;
  bool MakeRoom(int64_t bytes);
  bool EvictOldest();
  void Evict(int32_t node);

  void Touch(std::span<const int32_t> path);
  void Unlink(int32_t node);
  void LinkNewest(int32_t node);
  void LinkOldest(int32_t node);

  class Reader;
  Status LoadNodes(std::string_view fingerprint, const std::string& path);
  Result<int32_t> LoadNode(Reader& in, std::span<const int32_t> node_of, std::string_view what);

  KvPool& pool_;
  const int64_t budget_bytes_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;    // [nodes * 64]
  std::vector<int32_t> blocks_;    // [nodes * layers]; kNoKvBlock where the layer's positions are seen no more
  std::vector<int32_t> buckets_;   // heads of lists of nodes with equal hashes
  std::vector<int32_t> path_;      // of the operation under way
  std::vector<int32_t> appended_;  // [layers], likewise
  int32_t free_ = kNone;
  int32_t newest_ = kNone, oldest_ = kNone;
  uint64_t operation_ = 1;  // the next one or the one under way; what that uses is not evicted
  int64_t used_nodes_ = 0;
  int64_t bytes_ = 0;
  PrefixStats stats_;
};

}  // namespace nunspark

#endif  // NUNSPARK_KV_PREFIX_STORE_H_
