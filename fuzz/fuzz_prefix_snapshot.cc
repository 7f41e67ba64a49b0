// Saved prefixes: whatever a file says, the store that reads it holds what it counts and can be used. Checksums are put
// right first, or nothing behind them would ever be reached.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <xxhash.h>

#include "base/check.h"
#include "kv/prefix_store.h"

namespace {

using namespace nunspark;

const std::vector<KvLayerShape> kLayers = {{.kv_heads = 1, .key_dim = 1, .value_dim = 1},
                                           {.kv_heads = 1, .key_dim = 2, .value_dim = 1, .window = 70}};

template <typename T>
T NumberAt(const std::string& bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

void PutChecksum(std::string& bytes, size_t begin, size_t end, uint64_t seed) {
  const uint64_t sum = XXH3_64bits_withSeed(bytes.data() + begin, end - begin, seed);
  std::memcpy(bytes.data() + end, &sum, sizeof(sum));
}

void PutChecksums(std::string& bytes, const KvPool& pool) {
  if (bytes.size() < 32) return;
  size_t end = 32 + size_t{NumberAt<uint32_t>(bytes, 16)} + 8 * size_t{NumberAt<uint32_t>(bytes, 20)};
  for (uint64_t record = 0; end + 8 <= bytes.size(); ++record) {
    const size_t begin = record == 0 ? 0 : end;
    if (record > 0) {
      end += 4 + 4 + 256 + 1;
      if (end > bytes.size()) return;
      const char presence = bytes[end - 1];
      for (size_t i = 0; i < kLayers.size(); ++i) {
        if ((presence >> i & 1) != 0) end += static_cast<size_t>(pool.block_bytes(i));
      }
      if (end + 8 > bytes.size()) return;
    }
    PutChecksum(bytes, begin, end, record);
    end += 8;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<std::unique_ptr<KvPool>> pool = KvPool::Create(kLayers, 4 * kKvBlockPositions);
  CHECK(pool.ok());
  std::string bytes(reinterpret_cast<const char*>(data), size);
  PutChecksums(bytes, **pool);
  const int memory = ::memfd_create("prefixes", 0);
  CHECK(memory >= 0 && ::write(memory, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  {
    PrefixStore store(**pool, (*pool)->bytes());
    const Status status = store.Load("f", "/proc/self/fd/" + std::to_string(memory));
    CHECK(status.ok() || (store.nodes() == 0 && !status.message().empty()));
    CHECK((*pool)->used_bytes() == store.bytes());
    KvSequence sequence(**pool);
    std::vector<int32_t> tokens(130);
    if (bytes.size() > 400) std::memcpy(tokens.data(), bytes.data() + 65, 256);
    const int64_t length = store.Match(tokens, 0, sequence);
    CHECK(length == 0 || store.nodes() > 0);
    CHECK(sequence.Reserve(length + 1).ok());
  }
  CHECK((*pool)->used_bytes() == 0);
  ::close(memory);
  return 0;
}
