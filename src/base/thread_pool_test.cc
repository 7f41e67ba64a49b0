#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace nunspark {
namespace {

TEST(ThreadPool, CoversEveryItemOnceWhateverTheSplit) {
  for (const int threads : {1, 2, 3, 5}) {
    const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(threads).value();
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 16, 5000}) {
        std::vector<int> hits(static_cast<size_t>(count), 0);
        pool->ParallelFor(count, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LT(thread, threads);
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), count);
        for (const int hit : hits) EXPECT_EQ(hit, 1);
      }
    }
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(3).value();
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool->ParallelFor(300, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  }
  EXPECT_EQ(sum, 20 * 300);
}

TEST(ThreadPool, ManyShortJobsInARow) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(2).value();
  int64_t total = 0;
  std::vector<int64_t> part(2);
  for (int round = 0; round < 20000; ++round) {
    part = {0, 0};
    pool->ParallelFor(
        10, 1, [&](int64_t begin, int64_t end, int thread) { part[static_cast<size_t>(thread)] += end - begin; });
    total += part[0] + part[1];
  }
  EXPECT_EQ(total, 200000);
}

}  // namespace
}  // namespace nunspark
