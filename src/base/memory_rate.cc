#include "base/memory_rate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/mapped_memory.h"
#include "base/memory_info.h"
#include "base/thread_pool.h"

namespace nunspark {
namespace {

constexpr int kPasses = 5;
constexpr int64_t kLeastProbe = 8 << 20;
constexpr int64_t kBlock = 64;  // bytes that one round of the loop reads

// Independent sums, so that the loop is bound by memory and not by one addition after the other.
uint64_t Sum(const uint8_t* data, int64_t blocks) {
  uint64_t sums[8] = {};
  for (int64_t block = 0; block < blocks; ++block, data += kBlock) {
    uint64_t words[8];
    std::memcpy(words, data, sizeof(words));
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

int64_t AffordableProbeBytes(int64_t most, const std::string& root) {
  const int64_t own = ReadProcessMemory(root).anonymous_bytes, group = ReadCgroupMemory(own, root).share_bytes;
  int64_t left = ReadMachineMemory(root).available_bytes;
  if (group > 0 && (left == 0 || group - own < left)) left = group - own;
  return left == 0 ? most : std::clamp(left / 4 / kBlock * kBlock, std::min(kLeastProbe, most), most);
}

Result<double> MeasureMemoryRate(int threads, int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  ASSIGN_OR_RETURN(const MappedMemory memory, MappedMemory::Create(bytes, "a probe of the memory", "free some memory"));
  ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool, ThreadPool::Create(threads));
  const int64_t blocks = bytes / kBlock;
  const int64_t grain = std::max<int64_t>(1, blocks / (threads * int64_t{8}));
  pool->ParallelFor(blocks, grain, [&](int64_t begin, int64_t end, int) {
    std::memset(memory.data() + begin * kBlock, 1, static_cast<size_t>((end - begin) * kBlock));
  });
  std::atomic<uint64_t> total = 0;  // keeps the loop
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    pool->ParallelFor(blocks, grain, [&](int64_t begin, int64_t end, int) {
      total += Sum(memory.data() + begin * kBlock, end - begin);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(blocks * kBlock) / std::max(seconds, 1e-9));
  }
  return total.load() != 0 ? best : 0;
}

}  // namespace nunspark
