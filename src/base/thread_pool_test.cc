#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <numeric>

#include "base/cpu_count.h"

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

TEST(ThreadPool, CallsMayComeFromOneThreadAfterAnother) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(3).value();
  std::vector<int> hits(1000, 0);
  for (int round = 0; round < 20; ++round) {
    std::thread([&] {
      pool->ParallelFor(1000, 7, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
    }).join();
  }
  for (const int hit : hits) EXPECT_EQ(hit, 20);
}

TEST(ThreadPool, MoreThreadsThanCpusFinishTheirJobs) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(16).value();
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 200; ++round) {
    pool->ParallelFor(1000, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  }
  EXPECT_EQ(sum, 200 * 1000);
}

TEST(ThreadPool, ARangeThatTakesLongDoesNotKeepTheOthersFromTheRest) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(2).value();
  // Whoever takes the first range stays in it until all others are done, which only the other thread can do.
  std::atomic<int64_t> others{0};
  for (int round = 0; round < 100; ++round) {
    others = 0;
    pool->ParallelFor(2, 1, [&](int64_t begin, int64_t end, int) {
      if (begin > 0) others += end - begin;
      while (begin == 0 && others == 0) std::this_thread::yield();
    });
    EXPECT_EQ(others, 1);
  }
}

TEST(ThreadPool, CountsBeyondThirtyTwoBitsAreCoveredOnce) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(2).value();
  constexpr int64_t kCount = (int64_t{1} << 40) + 5;
  std::atomic<int64_t> sum{0};
  pool->ParallelFor(kCount, 3, [&](int64_t begin, int64_t end, int) {
    EXPECT_EQ(begin % 3, 0);
    sum += end - begin;
  });
  EXPECT_EQ(sum, kCount);
}

std::vector<int> CpusOfThisThread() { return AllowedCpus(); }

TEST(ThreadPool, LeavesTheCallersThreadWhereItMayRun) {
  const std::vector<int> before = CpusOfThisThread();
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(DefaultThreads()).value();
  std::atomic<int> outside{0};
  for (int round = 0; round < 100; ++round) {
    pool->ParallelFor(64, 1, [&](int64_t, int64_t, int thread) {
      const std::vector<int> cpus = CpusOfThisThread();
      if (thread == 0) outside += cpus != before;
      if (thread != 0) outside += !std::includes(before.begin(), before.end(), cpus.begin(), cpus.end());
    });
  }
  EXPECT_EQ(outside, 0);
  EXPECT_EQ(CpusOfThisThread(), before);
}

TEST(ThreadPoolParts, CoverEveryItemOfEveryPartOnce) {
  const std::vector<std::vector<int64_t>> cases = {{}, {0}, {1}, {100, 0, 33}, {3, 1, 5000}, {2'000'000, 17}};
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(threads).value();
    for (const std::vector<int64_t>& counts : cases) {
      for (const std::pair<int, int>& pair : {std::pair(1, 0), {16, 0}, {1, 2}, {16, 5}}) {
        const int64_t grain = pair.first, costs = pair.second;
        std::vector<std::vector<int>> hits;
        for (const int64_t count : counts) hits.emplace_back(static_cast<size_t>(count), 0);
        pool->ParallelForParts(
            static_cast<int64_t>(counts.size()),
            [&](int64_t part) {
              return ThreadPool::Part{.items = counts[static_cast<size_t>(part)], .cost = costs * part + 1};
            },
            grain,
            [&](int64_t part, int64_t begin, int64_t end, int thread) {
              EXPECT_LT(thread, threads);
              EXPECT_EQ(begin % grain, 0);
              for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(part)][static_cast<size_t>(i)];
            });
        for (const std::vector<int>& of_part : hits) {
          EXPECT_EQ(std::count(of_part.begin(), of_part.end(), 1), static_cast<int64_t>(of_part.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
