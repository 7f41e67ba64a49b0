#include "kv/kv_spill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <random>

#include "io/fault_queue_testing.h"
#include "io/test_folder.h"
#include "kv/kv_cache.h"
#include "kv/prefix_store.h"
#include "kv/test_numbers.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

// Growing layers, one with a window, a latent one, one whose blocks fill no whole page.
const std::vector<KvLayerShape> kLayers = Stored({{2, 16, 16},
                                                  {.kv_heads = 2, .key_dim = 16, .value_dim = 16, .window = 100},
                                                  {1, 24, 16, KvValues::kPartOfKeys},
                                                  {.kv_heads = 1, .key_dim = 7, .value_dim = 5},
                                                  {2, 16, 16}},
                                                 {.type = FloatType::kF32});

struct Conversation {
  explicit Conversation(KvPool& pool) : kv(pool) {}
  KvSequence kv;
  std::vector<float> numbers;
};

class KvSpillTest : public testing::Test {
 protected:
  std::unique_ptr<KvPool> Pool(int64_t budget, int64_t blocks = 12, std::vector<KvLayerShape> layers = kLayers) {
    auto pool = KvPool::Create(std::move(layers), blocks * 64,
                               {.budget_bytes = budget,
                                .folder = folder_.path(),
                                .prefetch = prefetch_,
                                .order = order_,
                                .read_timeout = read_timeout_,
                                .wrap_queue = faults_});
    EXPECT_TRUE(pool.ok()) << pool.status().message();
    return std::move(pool).value();
  }

  // As a forward pass: `more` positions for each, in layer after layer, where what was stored before is still there.
  Status Pass(KvPool& pool, std::vector<Conversation*> conversations, int64_t more) {
    for (Conversation* const it : conversations) RETURN_IF_ERROR(it->kv.Reserve(it->kv.length() + more));
    const float first = next_number_;
    next_number_ += static_cast<float>(more * std::ssize(conversations));
    std::vector<int32_t> order = order_;
    for (int32_t i = 0; order_.empty() && i < std::ssize(pool.layers()); ++i) order.push_back(i);
    for (const int32_t layer : order) {
      if (pool.BeginLayer(layer)) {
        for (Conversation* const it : conversations) pool.UseInLayer(it->kv, 0, it->kv.length() + more);
        RETURN_IF_ERROR(pool.AwaitLayer());
      }
      float number = first;
      for (Conversation* const it : conversations) {
        ExpectNumbers(it->kv, layer, it->numbers);
        for (int64_t i = 0; i < more; ++i) StoreNumber(it->kv, layer, it->kv.length() + i, number++);
      }
    }
    float number = first;
    for (Conversation* const it : conversations) {
      it->kv.Commit(it->kv.length() + more);
      for (int64_t i = 0; i < more; ++i) it->numbers.push_back(number++);
    }
    return Status();
  }

  TestFolder folder_;
  bool prefetch_ = true;
  std::vector<int32_t> order_;
  std::chrono::milliseconds read_timeout_{60'000};
  std::function<std::unique_ptr<ReadQueue>(std::unique_ptr<ReadQueue>)> faults_;
  float next_number_ = 1;
};

int64_t LayerBytes(const KvPool& pool, int64_t blocks) {
  int64_t largest = 0;
  for (size_t i = 0; i < pool.layers().size(); ++i) largest = std::max(largest, pool.block_bytes(i));
  return largest * blocks;
}

TEST_F(KvSpillTest, OneByteKeepsTheLayerInUseAndLosesNothing) {
  auto pool = Pool(1);
  Conversation one(*pool), two(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 130).ok());
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(Pass(*pool, {&one, &two}, 1).ok());
  const KvStats stats = pool->stats();
  EXPECT_EQ(stats.resident_peak_bytes, LayerBytes(*pool, 4 + 2));
  EXPECT_GT(stats.spilled_bytes, 0);
  EXPECT_GT(stats.reloaded_bytes, stats.spilled_bytes);
  EXPECT_GT(stats.misses, 70 * 4);
  // Not only by our count.
  EXPECT_LE(pool->page_use().resident_bytes, LayerBytes(*pool, 4 + 2));
}

TEST_F(KvSpillTest, ABudgetForAllSpillsNothing) {
  auto pool = Pool(KvPool::PlanBytes(kLayers, 12 * 64));
  Conversation one(*pool);
  EXPECT_FALSE(pool->BeginLayer(0));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
  EXPECT_EQ(pool->stats().hits, 1 + 3 * 5);
  EXPECT_EQ(pool->stats().misses, 0);
  EXPECT_EQ(pool->stats().spilled_bytes, 0);
  EXPECT_EQ(pool->stats().resident_peak_bytes, pool->used_bytes());
}

TEST_F(KvSpillTest, FreshAndEmptyCachesTakeNoMemory) {
  auto pool = Pool(1);
  Conversation one(*pool);
  EXPECT_EQ(pool->stats().resident_peak_bytes, 0);
  ASSERT_TRUE(one.kv.Reserve(600).ok());
  EXPECT_EQ(pool->stats().resident_peak_bytes, 0);
  ASSERT_TRUE(pool->BeginLayer(0));
  ASSERT_TRUE(pool->AwaitLayer().ok());
  EXPECT_EQ(pool->stats().hits, 1);
  EXPECT_EQ(pool->stats().resident_peak_bytes, 0);
}

TEST_F(KvSpillTest, BlocksStayWhereTheyAre) {
  auto pool = Pool(1);
  Conversation one(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 130).ok());
  std::vector<const uint8_t*> before;
  for (int layer = 0; layer < 5; ++layer) before.push_back(one.kv.View(layer).key_blocks[1]);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
  for (int layer = 0; layer < 5; ++layer)
    EXPECT_EQ(one.kv.View(layer).key_blocks[1], before[static_cast<size_t>(layer)]);
}

// A cyclic scan: the layers that were used last are those whose turn is farthest away.
TEST_F(KvSpillTest, TheMostRecentlyUsedLayerLeavesAndTheFirstOnesStay) {
  prefetch_ = false;
  const std::vector<KvLayerShape> alike(6, KvLayerShape{2, 16, 16, KvValues::kSeparate, 0, {.type = FloatType::kF32}});
  auto pool = Pool(3 * 2 * 16384, 2, alike);  // three of six layers
  Conversation one(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 128).ok());
  ASSERT_TRUE(Pass(*pool, {}, 0).ok());
  const KvStats before = pool->stats();
  one.kv.Truncate(127);
  one.numbers.resize(127);
  const int passes = 5;
  for (int i = 0; i < passes; ++i) {
    ASSERT_TRUE(Pass(*pool, {&one}, 0).ok());
    EXPECT_LE(pool->stats().resident_peak_bytes, 3 * 2 * 16384);
  }
  // With k of n in memory, (k - 1) / (n - 1) are hits: as many as by any rule.
  const KvStats after = pool->stats();
  EXPECT_EQ(after.misses - before.misses, passes * 6 * 3 / 5);
  EXPECT_EQ(after.hits - before.hits, passes * 6 * 2 / 5);
}

TEST_F(KvSpillTest, MoreBudgetMeansFewerReloads) {
  for (const bool prefetch : {false, true}) {
    prefetch_ = prefetch;
    int64_t before = std::numeric_limits<int64_t>::max();
    for (const int64_t share : {0, 2, 4, 6, 8, 10}) {
      auto pool = Pool(KvPool::PlanBytes(kLayers, 12 * 64) * share / 10 + (share == 0 ? 1 : 0));
      Conversation one(*pool);
      ASSERT_TRUE(Pass(*pool, {&one}, 11 * 64).ok());
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
      EXPECT_LE(pool->stats().reloaded_bytes, before) << share;
      before = pool->stats().reloaded_bytes;
    }
    EXPECT_EQ(before, 0);
  }
}

TEST_F(KvSpillTest, ReadingAheadTurnsMissesIntoHits) {
  const std::vector<KvLayerShape> alike(6, KvLayerShape{2, 16, 16, KvValues::kSeparate, 0, {.type = FloatType::kF32}});
  int64_t misses[2];
  for (const bool prefetch : {false, true}) {
    prefetch_ = prefetch;
    auto pool = Pool(3 * 2 * 16384, 2, alike);
    Conversation one(*pool);
    ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
    misses[prefetch ? 1 : 0] = pool->stats().misses;
    EXPECT_LE(pool->stats().resident_peak_bytes, 3 * 2 * 16384);
  }
  EXPECT_GT(misses[0], 20);
  EXPECT_EQ(misses[1], 0);
}

// Layers that attend to an earlier layer's keys: its next use is near, although it was used last.
TEST_F(KvSpillTest, ALayerThatIsUsedAgainSoonStays) {
  prefetch_ = false;
  order_ = {0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
  const std::vector<KvLayerShape> alike(4, KvLayerShape{2, 16, 16, KvValues::kSeparate, 0, {.type = FloatType::kF32}});
  auto pool = Pool(2 * 2 * 16384, 2, alike);
  Conversation one(*pool);
  ASSERT_TRUE(one.kv.Reserve(128).ok());
  one.kv.Commit(128);
  for (int i = 0; i < 10; ++i) {
    for (const int32_t layer : order_) {
      ASSERT_TRUE(pool->BeginLayer(layer));
      pool->UseInLayer(one.kv, 0, 128);
      ASSERT_TRUE(pool->AwaitLayer().ok());
    }
  }
  // 2 and 3 once each after 0 and 1, which come back once a pass.
  EXPECT_LE(pool->stats().misses, 10 * 4);
}

TEST_F(KvSpillTest, TruncatedAndForkedSequencesGoOnFromTheFile) {
  auto pool = Pool(1);
  Conversation one(*pool), fork(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 200).ok());
  one.kv.Truncate(150);
  one.numbers.resize(150);
  ASSERT_TRUE(Pass(*pool, {&one}, 3).ok());
  ASSERT_TRUE(fork.kv.ForkFrom(one.kv, 140).ok());
  fork.numbers = one.numbers;
  fork.numbers.resize(140);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&fork, &one}, 20).ok());
  EXPECT_LE(pool->stats().resident_peak_bytes, LayerBytes(*pool, 2 * 4));
}

TEST_F(KvSpillTest, BlocksOfIdleSequencesLeaveFirst) {
  prefetch_ = false;
  const std::vector<KvLayerShape> alike(4, KvLayerShape{2, 16, 16, KvValues::kSeparate, 0, {.type = FloatType::kF32}});
  auto pool = Pool(4 * 3 * 16384, 8, alike);  // three blocks of every layer
  Conversation idle(*pool), one(*pool);
  ASSERT_TRUE(Pass(*pool, {&idle}, 64).ok());
  ASSERT_TRUE(Pass(*pool, {&one}, 3 * 64 - 10).ok());
  const int64_t misses = pool->stats().misses;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
  EXPECT_EQ(pool->stats().misses, misses);
  ASSERT_TRUE(Pass(*pool, {&idle}, 1).ok());
  EXPECT_EQ(pool->stats().misses, misses + 4);
}

TEST_F(KvSpillTest, SavedAndRestoredPrefixesComeFromTheFile) {
  auto pool = Pool(1);
  Conversation one(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 192).ok());
  std::vector<int32_t> tokens(200, 7);
  {
    PrefixStore store(*pool, 1 << 30);
    store.Insert(tokens, 0, one.kv);
    ASSERT_TRUE(store.Save("model", folder_.Path("saved")).ok());
    EXPECT_LE(pool->stats().resident_peak_bytes, LayerBytes(*pool, 3));
  }
  auto other = Pool(1);
  PrefixStore store(*other, 1 << 30);
  ASSERT_TRUE(store.Load("model", folder_.Path("saved")).ok());
  EXPECT_LE(other->stats().resident_peak_bytes, LayerBytes(*other, 1));
  Conversation next(*other);
  ASSERT_EQ(store.Match(tokens, 0, next.kv), 192);
  next.numbers = one.numbers;
  ASSERT_TRUE(Pass(*other, {&next}, 5).ok());
}

// ---- faults

TEST_F(KvSpillTest, FailedShortAndWrongReadsAreFoundAndLoseNothing) {
  for (const Fault::Kind kind : {Fault::Kind::kError, Fault::Kind::kShort, Fault::Kind::kFlip}) {
    faults_ = [&](std::unique_ptr<ReadQueue> queue) {
      FaultPlan plan;
      plan.faults.push_back({.kind = kind, .request = 3, .at = 100});
      return std::make_unique<FaultQueue>(std::move(queue), std::vector<std::string>{"spilled"}, plan);
    };
    prefetch_ = false;
    auto pool = Pool(1);
    Conversation one(*pool);
    ASSERT_TRUE(Pass(*pool, {&one}, 130).ok());
    const Status failed = Pass(*pool, {&one}, 1);
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.message(), HasSubstr("the KV cache in a temporary file in " + folder_.path()));
    EXPECT_EQ(failed.code(), kind == Fault::Kind::kError ? StatusCode::kIo : StatusCode::kDataLoss);
    EXPECT_EQ(one.kv.length(), 130);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
  }
}

TEST_F(KvSpillTest, AReadAheadThatFailsIsReadAgainWhenItIsNeeded) {
  faults_ = [](std::unique_ptr<ReadQueue> queue) {
    FaultPlan plan;
    for (int64_t request = 0; request < 40; request += 2)
      plan.faults.push_back({.kind = Fault::Kind::kError, .request = request});
    return std::make_unique<FaultQueue>(std::move(queue), std::vector<std::string>{"spilled"}, plan);
  };
  const std::vector<KvLayerShape> alike(6, KvLayerShape{2, 16, 16, KvValues::kSeparate, 0, {.type = FloatType::kF32}});
  auto pool = Pool(3 * 2 * 16384, 2, alike);
  Conversation one(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 1).ok());
  EXPECT_GT(pool->stats().misses, 5);
}

// What it reads in the end may not meet what was written meanwhile.
TEST_F(KvSpillTest, ReadsThatDoNotReturnFailWhoNeedsThemAndKeepTheirBlocks) {
  bool hangs = false;
  faults_ = [&](std::unique_ptr<ReadQueue> queue) { return std::make_unique<HangingQueue>(std::move(queue), hangs); };
  for (const bool prefetch : {false, true}) {
    prefetch_ = prefetch;
    read_timeout_ = std::chrono::milliseconds(10);
    auto pool = Pool(1);
    Conversation one(*pool), two(*pool);
    ASSERT_TRUE(Pass(*pool, {&one}, 130).ok());
    hangs = true;
    const Status failed = Pass(*pool, {&one}, 1);
    EXPECT_EQ(failed.code(), StatusCode::kIo);
    EXPECT_THAT(failed.message(), HasSubstr("none has returned for 0.01 s"));
    EXPECT_THAT(failed.message(), HasSubstr(folder_.path()));
    EXPECT_EQ(Pass(*pool, {&one}, 1).message(), failed.message());
    EXPECT_EQ(one.kv.length(), 130);

    one.kv.Truncate(0);
    one.numbers.clear();
    EXPECT_EQ(two.kv.Reserve(12 * 64).code(), StatusCode::kResourceExhausted) << "three blocks may still be written to";
    two.kv.Truncate(0);
    EXPECT_EQ(Pass(*pool, {&two}, 9 * 64).message(), failed.message());
    two.kv.Truncate(0);

    // What begins to come back takes its time.
    hangs = false;
    bool passed = false;
    for (int tries = 0; tries < 10'000 && !passed; ++tries) {
      passed = Pass(*pool, {&two}, 12 * 64 - 2).ok();
      if (!passed) two.kv.Truncate(0);
    }
    ASSERT_TRUE(passed);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Pass(*pool, {&two}, 1).ok());
    EXPECT_LE(pool->stats().resident_peak_bytes, LayerBytes(*pool, 12));
  }
}

TEST_F(KvSpillTest, ReadsThatDoNotReturnBeforeThePoolEndsAreLeftToTheSystem) {
  bool hangs = false;
  faults_ = [&](std::unique_ptr<ReadQueue> queue) { return std::make_unique<HangingQueue>(std::move(queue), hangs); };
  read_timeout_ = std::chrono::milliseconds(10);
  for (const bool hang : {false, true}) {
    const int before = HangingQueue::count;
    hangs = false;
    {
      auto pool = Pool(1);
      Conversation one(*pool);
      ASSERT_TRUE(Pass(*pool, {&one}, 130).ok());
      hangs = hang;
      EXPECT_EQ(Pass(*pool, {&one}, 1).ok(), !hang);
    }
    EXPECT_EQ(HangingQueue::count - before, hang ? 1 : 0);
  }
}

// Files of this process end at a size for the time of its life, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST_F(KvSpillTest, AFullDiskFailsThePassAndLosesNothing) {
  auto pool = Pool(1);
  Conversation one(*pool);
  ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
  {
    const FullDisk full(4096);
    const Status failed = Pass(*pool, {&one}, 100);
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.message(), HasSubstr("spilling the KV cache: write of"));
    EXPECT_THAT(failed.message(), HasSubstr(folder_.path()));
    EXPECT_FALSE(Pass(*pool, {&one}, 1).ok());
  }
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
}

TEST_F(KvSpillTest, AFolderThatIsNotThereIsNamed) {
  const auto pool = KvPool::Create(kLayers, 640, {.budget_bytes = 1, .folder = "/nowhere/at/all"});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(pool.status().message(), HasSubstr("/nowhere/at/all"));
}

TEST_F(KvSpillTest, ItsFileHasNoName) {
  auto pool = Pool(1);
  Conversation one(*pool);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pass(*pool, {&one}, 100).ok());
  EXPECT_GT(pool->stats().spilled_bytes, 0);
  EXPECT_TRUE(ListFolder(folder_.path())->empty());
}

TEST_F(KvSpillTest, PlansWhatBecomesResident) {
  const int64_t all = KvPool::PlanBytes(kLayers, 640);
  const auto plan = [&](int64_t budget) { return KvPool::PlanResidentBytes(kLayers, {.positions = 640}, budget); };
  EXPECT_EQ(plan(all), all);
  EXPECT_EQ(plan(std::numeric_limits<int64_t>::max()), all);
  EXPECT_EQ(plan(all - 1), all - 1);
  EXPECT_EQ(plan(1), 10 * 16384);
}

// Any order of passes, forks, truncations and lookups, at any budget, with reads that fail now and then: all that was
// stored is there in every layer of every pass, and memory stays within the plan.
TEST_F(KvSpillTest, RandomPassesKeepWhatWasStored) {
  int64_t failed = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 rng(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    faults_ = nullptr;
    next_number_ = 1;
    if (seed % 2 == 0) {
      faults_ = [seed](std::unique_ptr<ReadQueue> queue) {
        FaultPlan plan;
        plan.seed = seed;
        plan.errors_per_mille = 20;
        plan.flips_per_mille = 10;
        plan.delays_per_mille = 300;
        return std::make_unique<FaultQueue>(std::move(queue), std::vector<std::string>{"spilled"}, plan);
      };
    }
    constexpr int64_t kBlocks = 14;
    const int64_t budget = 1 + below(KvPool::PlanBytes(kLayers, kBlocks * 64) - 1);
    auto pool = Pool(budget, kBlocks);
    std::vector<std::unique_ptr<Conversation>> all;
    for (int i = 0; i < 5; ++i) all.push_back(std::make_unique<Conversation>(*pool));
    for (int step = 0; step < 150; ++step) {
      Conversation& it = *all[static_cast<size_t>(below(5))];
      switch (below(6)) {
        case 0: {
          const int64_t length = below(it.kv.length() + 1);
          it.kv.Truncate(length);
          it.numbers.resize(static_cast<size_t>(length));
          break;
        }
        case 1: {
          Conversation& from = *all[static_cast<size_t>(below(5))];
          if (&from == &it) break;
          const int64_t length = below(from.kv.length() + 1);
          const Status forked = it.kv.ForkFrom(from.kv, length);
          it.numbers.assign(from.numbers.begin(), from.numbers.begin() + it.kv.length());
          failed += forked.code() == StatusCode::kIo || forked.code() == StatusCode::kDataLoss ? 1 : 0;
          break;
        }
        default: {
          std::vector<Conversation*> together;
          for (const auto& each : all) {
            if (below(2) == 0) together.push_back(each.get());
          }
          const Status passed = Pass(*pool, together, 1 + below(40));
          failed += passed.code() == StatusCode::kIo || passed.code() == StatusCode::kDataLoss ? 1 : 0;
          for (Conversation* const each : together) each->kv.Truncate(each->kv.length());
        }
      }
      ASSERT_FALSE(HasFatalFailure()) << seed << " " << step;
      ASSERT_LE(pool->stats().resident_peak_bytes,
                KvPool::PlanResidentBytes(kLayers, {.positions = kBlocks * 64}, budget));
    }
  }
  EXPECT_GT(failed, 3);
}

}  // namespace
}  // namespace nunspark
