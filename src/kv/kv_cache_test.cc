#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "kv/test_numbers.h"

namespace nunspark {
namespace {

TEST(KvCache, StoresEveryLayerHeadAndPosition) {
  const std::vector<KvLayerShape> shapes = {{2, 16, 16}, {1, 32, 32}};
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    auto pool = KvPool::Create(shapes, type, 130);
    ASSERT_TRUE(pool.ok());
    KvSequence sequence(**pool);
    ASSERT_TRUE(sequence.Reserve(130).ok());
    for (int layer = 0; layer < 2; ++layer) {
      for (int64_t p = 0; p < 130; ++p) {
        std::vector<float> keys(32), values(32);
        for (int i = 0; i < 32; ++i) {
          keys[static_cast<size_t>(i)] = static_cast<float>(p % 100 + layer) + static_cast<float>(i) / 64;
          values[static_cast<size_t>(i)] = -keys[static_cast<size_t>(i)];
        }
        sequence.Store(layer, p, keys.data(), values.data());
      }
    }
    for (int layer = 0; layer < 2; ++layer) {
      const KvView view = sequence.View(layer);
      for (int64_t p = 0; p < 130; ++p) {
        for (int i = 0; i < 32; i += 16) {
          const float want = static_cast<float>(p % 100 + layer) + static_cast<float>(i) / 64;
          EXPECT_NEAR(ReadBack(view, i / view.key_dim, p, i % view.key_dim, false), want, want / 100);
          EXPECT_NEAR(ReadBack(view, i / view.value_dim, p, i % view.value_dim, true), -want, want / 100);
        }
      }
    }
  }
}

// Layers of one model may differ: narrow and wide heads, values of another width, a latent that is both.
TEST(KvCache, LayersMayDifferInWidthAndShareKeysAndValues) {
  const std::vector<KvLayerShape> shapes = {{.kv_heads = 2, .key_dim = 16, .value_dim = 16},
                                            {.kv_heads = 3, .key_dim = 24, .value_dim = 8},
                                            {.kv_heads = 1, .key_dim = 7, .value_dim = 33},
                                            {1, 72, 64, KvValues::kPartOfKeys},
                                            {2, 20, 20, KvValues::kPartOfKeys}};
  const auto key_at = [](int64_t p, int64_t i) { return static_cast<float>(p * 1000 + i); };
  auto pool = KvPool::Create(shapes, FloatType::kF32, 70);
  ASSERT_TRUE(pool.ok());
  KvSequence sequence(**pool);
  ASSERT_TRUE(sequence.Reserve(70).ok());
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const KvLayerShape& shape = shapes[layer];
    for (int64_t p = 0; p < 70; ++p) {
      std::vector<float> keys, values;
      for (int64_t i = 0; i < shape.kv_heads * shape.key_dim; ++i) keys.push_back(key_at(p, i));
      for (int64_t i = 0; i < shape.kv_heads * shape.value_dim; ++i) values.push_back(-key_at(p, i));
      const bool separate = shape.values == KvValues::kSeparate;
      sequence.Store(static_cast<int>(layer), p, keys.data(), separate ? values.data() : nullptr);
    }
  }
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const KvLayerShape& shape = shapes[layer];
    const KvView view = sequence.View(static_cast<int>(layer));
    const bool latent = shape.values == KvValues::kPartOfKeys;
    EXPECT_EQ(view.key_blocks[1] == view.value_blocks[1], latent);
    EXPECT_EQ(view.value_stride, latent ? shape.key_dim : shape.value_dim);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int64_t p : {0, 1, 63, 64, 69}) {
        for (int i = 0; i < shape.key_dim; ++i) {
          ASSERT_EQ(ReadBack(view, head, p, i, false), key_at(p, head * shape.key_dim + i)) << layer;
        }
        for (int i = 0; i < shape.value_dim; ++i) {
          const float expected = latent ? key_at(p, head * shape.key_dim + i) : -key_at(p, head * shape.value_dim + i);
          ASSERT_EQ(ReadBack(view, head, p, i, true), expected) << layer;
        }
      }
    }
  }
}

TEST(KvCache, RefusesMoreThanWasPlannedAndReusesTruncatedBlocks) {
  auto pool = KvPool::Create({{1, 16, 16}}, FloatType::kF16, 128);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool);
  ASSERT_TRUE(first.Reserve(128).ok());
  KvSequence second(**pool);
  const Status refused = second.Reserve(1);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("128 planned"), std::string::npos) << refused.message();
  first.Truncate(64);
  EXPECT_TRUE(second.Reserve(64).ok());
  EXPECT_FALSE(first.Reserve(65).ok());
  EXPECT_EQ((*pool)->used_peak_bytes(), (*pool)->bytes());
}

TEST(KvCache, ASequenceTakesNoMoreThanItsOwnMost) {
  auto pool = KvPool::Create({{1, 16, 16}}, FloatType::kF16, 256);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool, 65);
  ASSERT_TRUE(first.Reserve(128).ok());
  EXPECT_NE(first.Reserve(129).message().find("128 planned"), std::string::npos);
  KvSequence second(**pool, 1000);
  EXPECT_TRUE(second.Reserve(128).ok());
  EXPECT_FALSE(second.Reserve(129).ok());
}

TEST(KvCache, PlansWhatItMaps) {
  const std::vector<KvLayerShape> shapes = {{2, 64, 64}, {2, 64, 64}};
  auto pool = KvPool::Create(shapes, FloatType::kF16, 100);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->bytes(), KvPool::PlanBytes(shapes, FloatType::kF16, 100));
  EXPECT_EQ((*pool)->bytes(), 2 * 2 * 2 * 2 * 64 * 64 * 2);
  // A latent is stored once.
  const std::vector<KvLayerShape> latent = {{1, 576, 512, KvValues::kPartOfKeys}};
  EXPECT_EQ(KvPool::PlanBytes(latent, FloatType::kF16, 100), 2 * 64 * 576 * 2);
  const std::vector<KvLayerShape> separate = {{1, 576, 512}};
  EXPECT_EQ(KvPool::PlanBytes(separate, FloatType::kF16, 100), 2 * 64 * (576 + 512) * 2);
  // Every layer costs what it holds, not what the largest one does.
  const std::vector<KvLayerShape> mixed = {{1, 576, 512}, {1, 16, 16}};
  EXPECT_EQ(KvPool::PlanBytes(mixed, FloatType::kF16, 100), 2 * 64 * (576 + 512 + 16 + 16) * 2);
}

TEST(KvCache, AForkSharesWholeBlocksAndCopiesThePartialOne) {
  auto pool = KvPool::Create(kPair, FloatType::kF32, 4 * 64);
  ASSERT_TRUE(pool.ok());
  const int64_t block_bytes = (*pool)->bytes() / 4;  // of both layers
  KvSequence first(**pool), fork(**pool);
  Extend(first, 130, 0);
  EXPECT_EQ((*pool)->used_bytes(), 3 * block_bytes);
  ASSERT_TRUE(fork.ForkFrom(first, 128).ok());
  EXPECT_EQ((*pool)->used_bytes(), 3 * block_bytes);
  ASSERT_TRUE(fork.ForkFrom(first, 129).ok());
  EXPECT_EQ((*pool)->used_bytes(), 4 * block_bytes);
  Extend(fork, 5, 1000);
  Extend(first, 5, 2000);
  std::vector<float> forked = Numbers(0, 129), whole = Numbers(0, 130);
  for (const float number : Numbers(1000, 5)) forked.push_back(number);
  for (const float number : Numbers(2000, 5)) whole.push_back(number);
  ExpectNumbers(fork, forked);
  ExpectNumbers(first, whole);
  first.Truncate(0);
  ExpectNumbers(fork, forked);
  fork.Truncate(0);
  EXPECT_EQ((*pool)->used_bytes(), 0);
}

// After a truncation into a shared block it must not be written: the other holder still reads it.
TEST(KvCache, ReserveCopiesASharedBlockBeforeItIsWritten) {
  auto pool = KvPool::Create(kPair, FloatType::kF32, 3 * 64);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool), fork(**pool);
  Extend(first, 128, 0);
  ASSERT_TRUE(fork.ForkFrom(first, 128).ok());
  fork.Truncate(70);
  Extend(fork, 2, 500);
  ExpectNumbers(first, Numbers(0, 128));
  std::vector<float> forked = Numbers(0, 70);
  forked.insert(forked.end(), {500, 501});
  ExpectNumbers(fork, forked);
  EXPECT_EQ((*pool)->used_bytes(), (*pool)->bytes());
  // Now there is no block for another copy, and what is stored stays as it is.
  KvSequence third(**pool);
  ASSERT_TRUE(third.ForkFrom(first, 128).ok());
  third.Truncate(100);
  EXPECT_EQ(third.Reserve(101).code(), StatusCode::kResourceExhausted);
  ExpectNumbers(third, Numbers(0, 100));
  EXPECT_EQ(third.ForkFrom(first, 127).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(third.length(), 0);
  ExpectNumbers(first, Numbers(0, 128));
}

TEST(KvCache, AForkThatIsLongerThanItsMostIsRefused) {
  auto pool = KvPool::Create(kPair, FloatType::kF32, 4 * 64);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool), small(**pool, 64);
  Extend(first, 65, 0);
  EXPECT_TRUE(small.ForkFrom(first, 64).ok());
  const Status refused = small.ForkFrom(first, 65);
  EXPECT_NE(refused.message().find("65 positions asked, 64 planned"), std::string::npos) << refused.message();
  EXPECT_EQ(small.length(), 0);
}

TEST(KvCache, ASequenceIsPutTogetherOfBlocksThatOthersHold) {
  auto pool = KvPool::Create(kPair, FloatType::kF32, 4 * 64);
  ASSERT_TRUE(pool.ok());
  const int64_t block_bytes = (*pool)->bytes() / 4;
  KvSequence first(**pool), second(**pool), fork(**pool), small(**pool, 64);
  Extend(first, 130, 0);
  ASSERT_TRUE(second.AppendShared(std::array{first.block(0, 0), first.block(1, 0)}).ok());
  // The second layer's first positions are seen no more.
  ASSERT_TRUE(small.AppendShared(std::array{first.block(0, 0), kNoKvBlock}).ok());
  EXPECT_EQ(small.AppendShared(std::array{first.block(0, 1), kNoKvBlock}).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(fork.ForkFrom(small, 64).ok());
  EXPECT_EQ(fork.block(1, 0), kNoKvBlock);
  EXPECT_EQ(fork.block(0, 1), kNoKvBlock);
  first.Truncate(0);
  EXPECT_EQ((*pool)->used_bytes(), block_bytes);
  Extend(second, 10, 64);
  ExpectNumbers(second, Numbers(0, 74));
  second.Truncate(0);
  EXPECT_EQ((*pool)->used_bytes(), (*pool)->block_bytes(0));
  small.Truncate(0);
  fork.Truncate(0);
  EXPECT_EQ((*pool)->used_bytes(), 0);
}

// Random operations on several sequences against plain lists of what they hold; blocks are neither lost nor held twice.
TEST(KvCache, RandomForksTruncationsAndSwapsKeepTheirContents) {
  constexpr int kSequences = 6;
  constexpr int64_t kBlocks = 9;
  int refused = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    auto pool = KvPool::Create(kPair, FloatType::kF32, kBlocks * 64);
    ASSERT_TRUE(pool.ok());
    const int64_t block_bytes[] = {16384, 12288};
    ASSERT_EQ((*pool)->bytes(), kBlocks * (16384 + 12288));
    std::mt19937_64 rng(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    {
      std::vector<std::unique_ptr<KvSequence>> sequences;
      for (int i = 0; i < kSequences; ++i) sequences.push_back(std::make_unique<KvSequence>(**pool, 7 * 64));
      std::array<std::vector<float>, kSequences> expected;
      float next = 0;
      for (int step = 0; step < 400; ++step) {
        const size_t i = static_cast<size_t>(below(kSequences));
        KvSequence& sequence = *sequences[i];
        switch (below(5)) {
          case 0:
          case 1: {
            const int64_t end = sequence.length() + 1 + below(90);
            if (!sequence.Reserve(end).ok()) {
              ++refused;
              sequence.Truncate(sequence.length());
              break;
            }
            for (int64_t p = sequence.length(); p < end; ++p) {
              expected[i].push_back(next);
              StoreNumber(sequence, p, next++);
            }
            sequence.Commit(end);
            break;
          }
          case 2: {
            const int64_t length = below(sequence.length() + 1);
            sequence.Truncate(length);
            expected[i].resize(static_cast<size_t>(length));
            break;
          }
          case 3: {
            const size_t from = (i + 1 + static_cast<size_t>(below(kSequences - 1))) % kSequences;
            const int64_t length = below(sequences[from]->length() + 1);
            const bool forked = sequence.ForkFrom(*sequences[from], length).ok();
            refused += forked ? 0 : 1;
            expected[i].assign(expected[from].begin(), expected[from].begin() + (forked ? length : 0));
            break;
          }
          default: {
            const size_t other = static_cast<size_t>(below(kSequences));
            sequence.Swap(*sequences[other]);
            std::swap(expected[i], expected[other]);
          }
        }
        ExpectNumbers(sequence, expected[i]);
        int64_t held_bytes = 0;
        for (int layer = 0; layer < 2; ++layer) {
          std::set<const uint8_t*> held;
          for (const auto& each : sequences) {
            for (int64_t p = 0; p < each->length(); p += 64) held.insert(each->View(layer).key_blocks[p / 64]);
          }
          held_bytes += static_cast<int64_t>(held.size()) * block_bytes[layer];
        }
        ASSERT_EQ((*pool)->used_bytes(), held_bytes);
      }
      for (size_t i = 0; i < kSequences; ++i) ExpectNumbers(*sequences[i], expected[i]);
    }
    EXPECT_EQ((*pool)->used_bytes(), 0);
    // Every block can be taken again.
    KvSequence all(**pool);
    EXPECT_TRUE(all.Reserve(kBlocks * 64).ok());
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace nunspark
