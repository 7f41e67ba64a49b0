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
  for (const KvFormat& format : AllKvFormats()) {
    auto pool = KvPool::Create(Stored(shapes, format), 130);
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
          EXPECT_NEAR(ReadBack(view, i / view.key_dim, p, i % view.key_dim, false), want, want / 100 + 0.02f);
          EXPECT_NEAR(ReadBack(view, i / view.value_dim, p, i % view.value_dim, true), -want, want / 100 + 0.02f);
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
  auto pool = KvPool::Create(Stored(shapes, {.type = FloatType::kF32}), 70);
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
    EXPECT_EQ(view.value_width, latent ? shape.key_dim : shape.value_dim);
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
  auto pool = KvPool::Create({{1, 16, 16}}, 128);
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
  EXPECT_EQ((*pool)->stats().resident_peak_bytes, (*pool)->bytes());
}

TEST(KvCache, ASequenceTakesNoMoreThanItsOwnMost) {
  auto pool = KvPool::Create({{1, 16, 16}}, 256);
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
  auto pool = KvPool::Create(shapes, 100);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->bytes(), KvPool::PlanBytes(shapes, 100));
  EXPECT_EQ((*pool)->bytes(), 2 * 2 * 2 * 2 * 64 * 64 * 2);
  // A latent is stored once.
  const std::vector<KvLayerShape> latent = {{1, 576, 512, KvValues::kPartOfKeys}};
  EXPECT_EQ(KvPool::PlanBytes(latent, 100), 2 * 64 * 576 * 2);
  const std::vector<KvLayerShape> separate = {{1, 576, 512}};
  EXPECT_EQ(KvPool::PlanBytes(separate, 100), 2 * 64 * (576 + 512) * 2);
  // Every layer costs what it holds, not what the largest one does.
  const std::vector<KvLayerShape> mixed = {{1, 576, 512}, {1, 16, 16}};
  EXPECT_EQ(KvPool::PlanBytes(mixed, 100), 2 * 64 * (576 + 512 + 16 + 16) * 2);
}

TEST(KvCache, AForkSharesWholeBlocksAndCopiesThePartialOne) {
  auto pool = KvPool::Create(kPair, 4 * 64);
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
  auto pool = KvPool::Create(kPair, 3 * 64);
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
  auto pool = KvPool::Create(kPair, 4 * 64);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool), small(**pool, 64);
  Extend(first, 65, 0);
  EXPECT_TRUE(small.ForkFrom(first, 64).ok());
  const Status refused = small.ForkFrom(first, 65);
  EXPECT_NE(refused.message().find("65 positions asked, 64 planned"), std::string::npos) << refused.message();
  EXPECT_EQ(small.length(), 0);
}

TEST(KvCache, ASequenceIsPutTogetherOfBlocksThatOthersHold) {
  auto pool = KvPool::Create(kPair, 4 * 64);
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
    auto pool = KvPool::Create(kPair, kBlocks * 64);
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

// ---- codes

// Checklist item 45.
TEST(KvCache, AnEmptySequenceOfCodesHoldsNothing) {
  auto pool = KvPool::Create(Stored({{2, 16, 16}}, {.bits = 4, .group_size = 32}), 128);
  ASSERT_TRUE(pool.ok());
  KvSequence sequence(**pool);
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ((*pool)->used_bytes(), 0);
  EXPECT_EQ(sequence.Truncate(0), 0);
  KvSequence fork(**pool);
  EXPECT_TRUE(fork.ForkFrom(sequence, 0).ok());
  EXPECT_EQ(fork.length(), 0);
  EXPECT_EQ((*pool)->stats().resident_peak_bytes, 0);
}

TEST(KvCache, AForkHasTheCodesOfItsBeginning) {
  for (const KvFormat& format : CodeKvFormats()) {
    auto pool = KvPool::Create(Stored({{2, 16, 16}}, format), 4 * 64);
    ASSERT_TRUE(pool.ok());
    KvSequence sequence(**pool), fork(**pool);
    const auto extend = [](KvSequence& extended, int64_t end, float number) {
      ASSERT_TRUE(extended.Reserve(end).ok());
      for (int64_t p = extended.length(); p < end; ++p) {
        std::vector<float> keys;
        for (int i = 0; i < 32; ++i) keys.push_back(number + static_cast<float>(p) + static_cast<float>(i) / 8);
        extended.Store(0, p, keys.data(), keys.data());
      }
      extended.Commit(end);
    };
    extend(sequence, 100, 5);
    ASSERT_TRUE(fork.ForkFrom(sequence, 90).ok());
    extend(fork, 100, 900);
    for (const bool value : {false, true}) {
      for (int64_t p = 0; p < 90; ++p) {
        ASSERT_EQ(ReadBack(fork.View(0), 1, p, 7, value), ReadBack(sequence.View(0), 1, p, 7, value))
            << KvFormatName(format) << " " << p;
      }
      EXPECT_GT(ReadBack(fork.View(0), 1, 95, 7, value), 800);
      EXPECT_LT(ReadBack(sequence.View(0), 1, 95, 7, value), 200);
    }
  }
}

// ---- windows

constexpr int64_t kTakeBack = 64;

std::vector<KvLayerShape> WithWindows(int64_t first, int64_t second) {
  std::vector<KvLayerShape> layers = kPair;
  layers[0].window = first;
  layers[1].window = second;
  return layers;
}

TEST(KvCache, ALayerWithAWindowKeepsWhatIsSeenAndGivesTheRestBack) {
  auto pool =
      KvPool::Create(WithWindows(0, 70),
                     {.positions = 20 * 64, .beside = 0, .sequences = 1, .pass_rows = 100, .take_back = kTakeBack});
  ASSERT_TRUE(pool.ok());
  // 70 + 64 positions from the last one of a block on are in four; 100 more end in two more.
  EXPECT_EQ((*pool)->blocks(0), 20);
  EXPECT_EQ((*pool)->blocks(1), 4 + 2);
  KvSequence sequence(**pool);
  for (int64_t p = 0; p + 100 <= 20 * 64; p += 100) {
    Extend(sequence, 100, static_cast<float>(p));
    ExpectNumbers(sequence, Numbers(0, static_cast<int>(p + 100)));
    for (size_t at = 0; at < 20; ++at) {
      const int64_t end = static_cast<int64_t>(at + 1) * 64;
      const bool held = sequence.block(1, at) != kNoKvBlock;
      EXPECT_FALSE(held && end <= sequence.length() - kTakeBack + 1 - 70) << at << " at " << sequence.length();
      EXPECT_EQ(sequence.block(0, at) != kNoKvBlock, end - 64 < sequence.length()) << at << " at " << sequence.length();
    }
  }
}

TEST(KvCache, ASequenceGoesBackAsFarAsWasPlannedAndBeyondThatForgetsAll) {
  auto pool =
      KvPool::Create(WithWindows(0, 70),
                     {.positions = 20 * 64, .beside = 64, .sequences = 1, .pass_rows = 700, .take_back = kTakeBack});
  ASSERT_TRUE(pool.ok());
  KvSequence sequence(**pool), fork(**pool);
  EXPECT_EQ(sequence.shortest(), 0);
  Extend(sequence, 100, 0);
  EXPECT_EQ(sequence.shortest(), 0);
  Extend(sequence, 600, 100);
  EXPECT_LE(sequence.shortest(), 700 - kTakeBack);
  EXPECT_GT(sequence.shortest(), 700 - kTakeBack - 64);
  EXPECT_EQ(sequence.Truncate(700 - kTakeBack), 700 - kTakeBack);
  ExpectNumbers(sequence, Numbers(0, 700 - kTakeBack));
  ASSERT_TRUE(fork.ForkFrom(sequence, sequence.shortest()).ok());
  ExpectNumbers(fork, Numbers(0, static_cast<int>(sequence.shortest())));
  EXPECT_EQ(fork.shortest(), sequence.shortest());
  fork.Truncate(0);
  EXPECT_EQ(fork.shortest(), 0);
  EXPECT_EQ(sequence.Truncate(sequence.shortest()), sequence.shortest());
  EXPECT_EQ(sequence.Truncate(sequence.shortest() - 1), 0);
  EXPECT_EQ((*pool)->used_bytes(), 0);
  Extend(sequence, 200, 3);
  ExpectNumbers(sequence, Numbers(3, 200));
}

// Whatever sequences do within what was planned, there is always a block.
TEST(KvCache, WindowsNeedNoMoreThanWasPlanned) {
  constexpr int64_t kContext = 9 * 64, kRows = 90;
  constexpr size_t kSequences = 3;
  std::mt19937 random(3);
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{0, 70}, {1, 64}, {65, 200}, {0, 1000}}) {
    const std::vector<KvLayerShape> layers = WithWindows(first, second);
    const KvRoom room{.positions = kContext * static_cast<int64_t>(kSequences),
                      .beside = 0,
                      .sequences = kSequences,
                      .pass_rows = kRows,
                      .take_back = kTakeBack};
    auto pool = KvPool::Create(layers, room);
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ((*pool)->bytes(), KvPool::PlanBytes(layers, room));
    std::vector<std::unique_ptr<KvSequence>> sequences;
    for (size_t i = 0; i < kSequences; ++i) sequences.push_back(std::make_unique<KvSequence>(**pool, kContext));
    std::vector<std::vector<float>> expected(kSequences);
    float next = 1;
    for (int step = 0; step < 400; ++step) {
      int64_t left = kRows;
      std::array<int64_t, kSequences> rows{};
      for (size_t i = 0; i < kSequences; ++i) {
        if (below(40) == 0 || sequences[i]->length() == kContext) {
          sequences[i]->Truncate(0);
          expected[i].clear();
        }
        rows[i] = std::min(below(left + 1), kContext - sequences[i]->length());
        left -= rows[i];
        ASSERT_TRUE(sequences[i]->Reserve(sequences[i]->length() + rows[i]).ok()) << step;
      }
      for (size_t i = 0; i < kSequences; ++i) {
        KvSequence& sequence = *sequences[i];
        const int64_t end = sequence.length() + rows[i];
        for (int64_t p = sequence.length(); p < end; ++p) {
          expected[i].push_back(next);
          StoreNumber(sequence, p, next++);
        }
        sequence.Commit(end);
        // Drafts that were not accepted.
        const int64_t kept = end - std::min(rows[i], below(kTakeBack + 1));
        ASSERT_EQ(sequence.Truncate(kept), kept);
        expected[i].resize(static_cast<size_t>(kept));
        ExpectNumbers(sequence, expected[i]);
      }
    }
    sequences.clear();
    EXPECT_EQ((*pool)->used_bytes(), 0);
  }
}

TEST(KvCache, ThePlanOfAWindowDoesNotGrowWithTheContext) {
  const std::vector<KvLayerShape> windowed = {{.kv_heads = 1, .key_dim = 16, .value_dim = 16, .window = 512}};
  const auto blocks = [&](int64_t context, int64_t sequences) {
    const KvRoom room{.positions = context * sequences,
                      .beside = 0,
                      .sequences = sequences,
                      .pass_rows = 256,
                      .take_back = kTakeBack};
    return KvPool::PlanBytes(windowed, room) / KvPool::PlanBytes(windowed, 64);
  };
  EXPECT_EQ(blocks(512, 1), 8);
  EXPECT_EQ(blocks(32768, 1), 10 + 4);
  EXPECT_EQ(blocks(131072, 1), 10 + 4);
  EXPECT_EQ(blocks(131072, 4), 4 * 10 + 7);
}

}  // namespace
}  // namespace nunspark
