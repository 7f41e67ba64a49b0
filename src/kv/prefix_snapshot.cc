// A prefix store in a file (docs/FORMAT.md, "Saved prefixes").
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "io/file.h"
#include "kv/prefix_store.h"

namespace nunspark {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

constexpr std::string_view kMagic = "nspkvpfx";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostFingerprintBytes = 4096;

// The fixed beginning of the header; then come the fingerprint, the block bytes of each layer and a checksum.
struct Fixed {
  char magic[8];
  uint32_t version;
  uint32_t block_positions;
  uint32_t fingerprint_bytes;
  uint32_t layers;
  uint64_t nodes;
};
static_assert(sizeof(Fixed) == 32);

template <typename T>
std::string_view Raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string_view Text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// XXH3, 64 bits, of bytes that come in parts.
class Hash {
 public:
  explicit Hash(uint64_t seed) : state_(XXH3_createState()) {
    CHECK(XXH3_64bits_reset_withSeed(state_.get(), seed) == XXH_OK);
  }
  void Add(std::string_view part) { CHECK(XXH3_64bits_update(state_.get(), part.data(), part.size()) == XXH_OK); }
  uint64_t Digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// Parts that one checksum covers, to a file or from one.
class Writer {
 public:
  Writer(AtomicFile& file, uint64_t seed) : file_(file), hash_(seed) {}
  Status Put(std::string_view part) {
    hash_.Add(part);
    return file_.Append(part);
  }
  Status End() { return file_.Append(Raw(hash_.Digest())); }

 private:
  AtomicFile& file_;
  Hash hash_;
};

}  // namespace

class PrefixStore::Reader {
 public:
  Reader(const File& file, int64_t& offset, uint64_t seed) : file_(file), offset_(offset), hash_(seed) {}
  Status Get(std::span<uint8_t> part) {
    RETURN_IF_ERROR(file_.ReadAt(offset_, part));
    offset_ += std::ssize(part);
    hash_.Add(Text(part));
    return Status();
  }
  template <typename T>
  Status Get(T& value) {
    return Get(std::span(reinterpret_cast<uint8_t*>(&value), sizeof(value)));
  }
  Status End(std::string_view what) {
    const uint64_t expected = hash_.Digest();
    uint64_t found = 0;
    RETURN_IF_ERROR(Get(found));
    if (found == expected) return Status();
    return DataLossError(fmt::format("{}: {} is corrupt: expected checksum {:016x}, found {:016x}", file_.path(), what,
                                     expected, found));
  }

 private:
  const File& file_;
  int64_t& offset_;
  Hash hash_;
};

Status PrefixStore::Save(std::string_view fingerprint, const std::string& path) {
  CHECK(fingerprint.size() <= kMostFingerprintBytes);
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, FileAccess::kOwner));
  const size_t layers = pool_.layers().size();
  Fixed fixed{.magic = {},
              .version = kVersion,
              .block_positions = kKvBlockPositions,
              .fingerprint_bytes = static_cast<uint32_t>(fingerprint.size()),
              .layers = static_cast<uint32_t>(layers),
              .nodes = static_cast<uint64_t>(used_nodes_)};
  std::memcpy(fixed.magic, kMagic.data(), kMagic.size());
  Writer header(file, 0);
  RETURN_IF_ERROR(header.Put(Raw(fixed)));
  RETURN_IF_ERROR(header.Put(fingerprint));
  for (size_t i = 0; i < layers; ++i) RETURN_IF_ERROR(header.Put(Raw(static_cast<uint64_t>(pool_.block_bytes(i)))));
  RETURN_IF_ERROR(header.End());

  // Most recently used first, so parents before their children, and the most useful ones where a reader has less room.
  std::vector<int32_t> record_of(nodes_.size(), kNone);
  int32_t record = 0;
  for (int32_t node = newest_; node != kNone; node = At(node).older, ++record) {
    record_of[static_cast<size_t>(node)] = record;
    Writer out(file, static_cast<uint64_t>(record) + 1);
    const int32_t parent = At(node).parent;
    std::string head;
    head += Raw(parent == kNone ? kNone : record_of[static_cast<size_t>(parent)]);
    head += Raw(At(node).salt);
    for (const int32_t token : TokensOf(node)) head += Raw(token);
    std::string presence((layers + 7) / 8, '\0');
    for (size_t i = 0; i < layers; ++i) {
      if (BlocksOf(node)[i] != kNoKvBlock) presence[i / 8] = static_cast<char>(presence[i / 8] | 1 << i % 8);
    }
    RETURN_IF_ERROR(out.Put(head + presence));
    for (size_t i = 0; i < layers; ++i) {
      if (BlocksOf(node)[i] == kNoKvBlock) continue;
      ASSIGN_OR_RETURN(const std::span<uint8_t> block, pool_.Block(i, BlocksOf(node)[i], KvPool::Access::kRead));
      RETURN_IF_ERROR(out.Put(Text(block)));
    }
    RETURN_IF_ERROR(out.End());
  }
  return file.Commit();
}

Status PrefixStore::Load(std::string_view fingerprint, const std::string& path) {
  CHECK(used_nodes_ == 0);
  const Status status = LoadNodes(fingerprint, path);
  if (!status.ok()) Clear();
  ++operation_;
  stats_.peak_bytes = std::max(stats_.peak_bytes, bytes_);
  return status;
}

Status PrefixStore::LoadNodes(std::string_view fingerprint, const std::string& path) {
  ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
  const size_t layers = pool_.layers().size();
  int64_t offset = 0;
  Reader header(file, offset, 0);
  Fixed fixed;
  RETURN_IF_ERROR(header.Get(fixed));
  if (std::string_view(fixed.magic, sizeof(fixed.magic)) != kMagic) {
    return DataLossError(fmt::format("{} holds no saved prefixes", path));
  }
  if (fixed.version != kVersion) {
    return UnsupportedError(fmt::format("{}: expected format version {}, found {}", path, kVersion, fixed.version));
  }
  if (fixed.fingerprint_bytes > kMostFingerprintBytes) {
    return DataLossError(fmt::format("{}: a fingerprint of {} bytes; at most {} are expected", path,
                                     fixed.fingerprint_bytes, kMostFingerprintBytes));
  }
  std::vector<uint8_t> found(fixed.fingerprint_bytes);
  RETURN_IF_ERROR(header.Get(std::span(found)));
  if (Text(found) != fingerprint) {
    return UnsupportedError(fmt::format("{} was saved by another model or with other settings", path));
  }
  bool same_shape = fixed.layers == layers && fixed.block_positions == kKvBlockPositions;
  for (size_t i = 0; same_shape && i < layers; ++i) {
    uint64_t block_bytes = 0;
    RETURN_IF_ERROR(header.Get(block_bytes));
    same_shape = block_bytes == static_cast<uint64_t>(pool_.block_bytes(i));
  }
  if (!same_shape) return UnsupportedError(fmt::format("{}: its layers differ from the model's", path));
  RETURN_IF_ERROR(header.End("the header"));

  std::vector<int32_t> node_of;
  while (node_of.size() < fixed.nodes) {
    const std::string what = fmt::format("record {}", node_of.size());
    Reader in(file, offset, node_of.size() + 1);
    ASSIGN_OR_RETURN(const int32_t node, LoadNode(in, node_of, fmt::format("{}: {}", path, what)));
    if (node == kNone) return Status();  // no room; what is left was used least
    RETURN_IF_ERROR(in.End(what));
    node_of.push_back(node);
  }
  ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (offset == size) return Status();
  return DataLossError(fmt::format("{}: expected {} bytes, found {}", path, offset, size));
}

// The next node, or kNone where the budget or the pool has no room for it. `node_of`: those of the records before.
Result<int32_t> PrefixStore::LoadNode(Reader& in, std::span<const int32_t> node_of, std::string_view what) {
  const size_t layers = pool_.layers().size();
  int32_t parent = kNone;
  uint32_t salt = 0;
  std::array<int32_t, kKvBlockPositions> tokens;
  std::vector<uint8_t> presence((layers + 7) / 8);
  RETURN_IF_ERROR(in.Get(parent));
  RETURN_IF_ERROR(in.Get(salt));
  RETURN_IF_ERROR(in.Get(tokens));
  RETURN_IF_ERROR(in.Get(std::span(presence)));
  const auto has = [&](size_t layer) { return (presence[layer / 8] >> layer % 8 & 1) != 0; };
  bool valid = parent >= kNone && parent < std::ssize(node_of);
  if (valid && parent != kNone) {
    parent = node_of[static_cast<size_t>(parent)];
    valid = At(parent).salt == salt;
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < layers; ++i) {
    bytes += has(i) ? pool_.block_bytes(i) : 0;
    valid = valid && (has(i) || pool_.layers()[i].window > 0);
  }
  if (!valid || Find(parent, salt, tokens) != kNone) return DataLossError(fmt::format("{} is corrupt", what));

  if (free_ == kNone || bytes_ + bytes > budget_bytes_) return kNone;
  const int32_t node = AddNode(parent, salt, tokens);
  LinkOldest(node);
  for (size_t i = 0; i < layers; ++i) {
    if (!has(i)) continue;
    const int32_t block = pool_.Take(i);
    if (block == kNoKvBlock) {
      Evict(node);
      return kNone;
    }
    BlocksOf(node)[i] = block;
    bytes_ += pool_.block_bytes(i);
    ASSIGN_OR_RETURN(const std::span<uint8_t> bytes_of_block, pool_.Block(i, block, KvPool::Access::kWrite));
    RETURN_IF_ERROR(in.Get(bytes_of_block));
  }
  return node;
}

}  // namespace nunspark
