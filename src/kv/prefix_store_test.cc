#include "kv/prefix_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "kv/test_numbers.h"

namespace nunspark {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Repeat(std::initializer_list<int32_t> blocks, int extra = 0) {
  Tokens tokens;
  for (const int32_t block : blocks) {
    for (int i = 0; i < 64; ++i) tokens.push_back(block * 100 + i);
  }
  for (int i = 0; i < extra; ++i) tokens.push_back(9000 + i);
  return tokens;
}

// What a position holds depends on all tokens up to it, as in a model.
std::vector<float> NumbersOf(const Tokens& tokens) {
  std::vector<float> numbers;
  uint32_t state = 17;
  for (const int32_t token : tokens) {
    state = state * 1664525 + static_cast<uint32_t>(token) + 1013904223;
    numbers.push_back(static_cast<float>(state >> 16));
  }
  return numbers;
}

// Computes what is missing of the tokens.
Status Compute(KvSequence& sequence, const Tokens& tokens) {
  RETURN_IF_ERROR(sequence.Reserve(static_cast<int64_t>(tokens.size())));
  const std::vector<float> numbers = NumbersOf(tokens);
  for (size_t p = static_cast<size_t>(sequence.length()); p < tokens.size(); ++p) {
    StoreNumber(sequence, static_cast<int64_t>(p), numbers[p]);
  }
  sequence.Commit(static_cast<int64_t>(tokens.size()));
  return Status();
}

void ExpectPrefix(const KvSequence& sequence, const Tokens& tokens) {
  std::vector<float> numbers = NumbersOf(tokens);
  numbers.resize(static_cast<size_t>(sequence.length()));
  ExpectNumbers(sequence, numbers);
}

std::unique_ptr<KvPool> MakePool(int64_t blocks, std::vector<KvLayerShape> layers = kPair) {
  auto pool = KvPool::Create(std::move(layers), blocks * 64);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

int64_t OneBlock(const KvPool& pool) { return pool.bytes() / pool.blocks(); }  // of every layer

// Runs a conversation: the rest of its tokens is computed, the whole is kept. Returns what was found.
int64_t Converse(PrefixStore& store, KvPool& pool, const Tokens& tokens, uint32_t salt = 0) {
  KvSequence sequence(pool);
  const int64_t found = store.Match(tokens, salt, sequence);
  ExpectPrefix(sequence, tokens);
  EXPECT_TRUE(Compute(sequence, tokens).ok());
  store.Insert(tokens, salt, sequence);
  ExpectPrefix(sequence, tokens);
  return found;
}

TEST(PrefixStore, FindsTheLongestPrefixOfManyConversations) {
  auto pool = MakePool(40);
  PrefixStore store(*pool, pool->bytes());
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2, 3}, 5)), 0);
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2, 4}, 5)), 128);
  EXPECT_EQ(Converse(store, *pool, Repeat({7, 8}, 63)), 0);
  EXPECT_EQ(store.nodes(), 6);
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2, 4, 5, 6}, 1)), 192);
  EXPECT_EQ(Converse(store, *pool, Repeat({7, 8, 1}, 1)), 128);
  EXPECT_EQ(Converse(store, *pool, Repeat({2, 1})), 0);
  EXPECT_EQ(pool->used_bytes(), store.bytes());
  EXPECT_EQ(store.stats().hits, 3);
  EXPECT_EQ(store.stats().tokens_found, 128 + 192 + 128);
}

TEST(PrefixStore, LeavesATokenToBeFedAndWhatTheSequenceCannotHold) {
  auto pool = MakePool(10);
  PrefixStore store(*pool, pool->bytes());
  Converse(store, *pool, Repeat({1, 2, 3}));
  KvSequence sequence(*pool), small(*pool, 65);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3}), 0, sequence), 128);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3}, 1), 0, sequence), 192);
  EXPECT_EQ(store.Match(Repeat({1}), 0, sequence), 0);
  EXPECT_EQ(store.Match({}, 0, sequence), 0);
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3}, 1), 0, small), 128);
}

TEST(PrefixStore, DifferentSaltsNeverMatch) {
  auto pool = MakePool(10);
  PrefixStore store(*pool, pool->bytes());
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2}, 1), 0), 0);
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2}, 1), 7), 0);
  EXPECT_EQ(Converse(store, *pool, Repeat({1, 2}, 1), 7), 128);
  EXPECT_EQ(store.nodes(), 4);
}

TEST(PrefixStore, KeepingARunningSequenceTakesNoFurtherBlock) {
  auto pool = MakePool(3);
  PrefixStore store(*pool, pool->bytes());
  KvSequence sequence(*pool);
  const Tokens tokens = Repeat({1, 2}, 9);
  ASSERT_TRUE(Compute(sequence, tokens).ok());
  store.Insert(tokens, 0, sequence);
  EXPECT_EQ(pool->used_bytes(), pool->bytes());
  EXPECT_EQ(store.bytes(), 2 * OneBlock(*pool));
  ASSERT_TRUE(Compute(sequence, Repeat({1, 2}, 60)).ok());
  ExpectPrefix(sequence, Repeat({1, 2}, 60));
}

TEST(PrefixStore, WhatWasNotUsedForLongestGoesFirst) {
  auto pool = MakePool(40);
  PrefixStore store(*pool, 5 * OneBlock(*pool));
  Converse(store, *pool, Repeat({1, 2}, 1));
  Converse(store, *pool, Repeat({1, 3}, 1));
  Converse(store, *pool, Repeat({4, 5}, 1));
  EXPECT_EQ(store.stats().evicted_nodes, 0);
  Converse(store, *pool, Repeat({1, 2}, 1));  // used again: now 1, 3 is the oldest
  Converse(store, *pool, Repeat({6}, 1));
  EXPECT_EQ(store.stats().evicted_nodes, 1);
  KvSequence sequence(*pool);
  EXPECT_EQ(store.Match(Repeat({1, 3}, 1), 0, sequence), 64);
  EXPECT_EQ(store.Match(Repeat({1, 2}, 1), 0, sequence), 128);
  EXPECT_EQ(store.Match(Repeat({4, 5}, 1), 0, sequence), 128);
  EXPECT_LE(store.stats().peak_bytes, store.budget_bytes());
}

// A prefix that is longer than the budget is kept from its start, and does not push itself out.
TEST(PrefixStore, APrefixBeyondTheBudgetIsKeptAsFarAsItFits) {
  auto pool = MakePool(40);
  PrefixStore store(*pool, 3 * OneBlock(*pool));
  Converse(store, *pool, Repeat({9}, 1));
  Converse(store, *pool, Repeat({1, 2, 3, 4, 5}, 1));
  EXPECT_EQ(store.nodes(), 3);
  KvSequence sequence(*pool);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4, 5}, 1), 0, sequence), 192);
  sequence.Truncate(0);
  PrefixStore none(*pool, 0);
  Converse(none, *pool, Repeat({1}, 1));
  EXPECT_EQ(none.nodes(), 0);
}

TEST(PrefixStore, GivesBlocksBackWhenThePoolHasNone) {
  auto pool = MakePool(6);
  PrefixStore store(*pool, pool->bytes());
  Converse(store, *pool, Repeat({1, 2, 3}));
  Converse(store, *pool, Repeat({1, 2, 4}));
  ASSERT_EQ(store.nodes(), 4);
  KvSequence sequence(*pool), running(*pool);
  EXPECT_EQ(store.Match(Repeat({1, 2, 4}, 1), 0, running), 192);
  // The leaf that nobody uses goes; those of the running sequence would free nothing.
  ASSERT_TRUE(sequence.Reserve(3 * 64).ok());
  EXPECT_EQ(store.nodes(), 3);
  EXPECT_EQ(sequence.Reserve(4 * 64).code(), StatusCode::kResourceExhausted);
  ExpectPrefix(running, Repeat({1, 2, 4}, 1));
  running.Truncate(0);
  ASSERT_TRUE(sequence.Reserve(6 * 64).ok());
  EXPECT_EQ(store.nodes(), 0);
}

// A parent that could be freed behind a leaf that a sequence holds: both go.
TEST(PrefixStore, APoolThatRunsShortReachesParentsToo) {
  auto pool = MakePool(3);
  PrefixStore store(*pool, pool->bytes());
  KvSequence other(*pool), running(*pool);
  Converse(store, *pool, Repeat({1}));
  ASSERT_TRUE(Compute(running, Repeat({1, 2})).ok());
  store.Insert(Repeat({1, 2}), 0, running);  // its first block is not the store's
  ASSERT_EQ(pool->used_bytes(), pool->bytes());
  ASSERT_TRUE(other.Reserve(64).ok());
  EXPECT_EQ(store.nodes(), 0);
  ExpectPrefix(running, Repeat({1, 2}));
}

// ---- windows

const std::vector<KvLayerShape> kWithWindow = [] {
  std::vector<KvLayerShape> layers = kPair;
  layers[1].window = 70;
  return layers;
}();

// The sequence without its windowed layer's blocks before `first`.
void ForgetBefore(KvSequence& sequence, size_t first) {
  KvSequence shorter(sequence.pool(), sequence.most_positions());
  for (size_t at = 0; at < static_cast<size_t>(sequence.length()) / 64; ++at) {
    const int32_t blocks[] = {sequence.block(0, at), at < first ? kNoKvBlock : sequence.block(1, at)};
    ASSERT_TRUE(shorter.AppendShared(blocks).ok());
  }
  sequence.Swap(shorter);
}

TEST(PrefixStore, AWindowedPrefixIsUsableOnlyWhereTheWindowIsStillThere) {
  auto pool = MakePool(20, kWithWindow);
  PrefixStore store(*pool, pool->bytes());
  KvSequence sequence(*pool), next(*pool);
  const Tokens tokens = Repeat({1, 2, 3, 4, 5});
  ASSERT_TRUE(Compute(sequence, tokens).ok());
  ForgetBefore(sequence, 3);
  store.Insert(tokens, 0, sequence);
  // A query at 320 sees from 251 on: blocks 3 and 4. One at 256 sees from 187 on, which is block 2.
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4, 5}, 1), 0, next), 320);
  EXPECT_EQ(next.block(1, 2), kNoKvBlock);
  EXPECT_NE(next.block(1, 3), kNoKvBlock);
  EXPECT_NE(next.block(0, 0), kNoKvBlock);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4}, 1), 0, next), 0);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4, 6}), 0, next), 0);
  // A shorter sequence that still has its window makes it usable there too.
  KvSequence earlier(*pool);
  ASSERT_TRUE(Compute(earlier, Repeat({1, 2})).ok());
  store.Insert(Repeat({1, 2}), 0, earlier);
  EXPECT_EQ(store.nodes(), 5);
  EXPECT_EQ(store.Match(Repeat({1, 2, 6}), 0, next), 128);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4}, 1), 0, next), 128);
  // What no query of the new sequence sees is not handed to it.
  EXPECT_EQ(store.Match(Repeat({1, 2, 3, 4, 5}, 1), 0, next), 320);
  EXPECT_EQ(next.block(1, 0), kNoKvBlock);
}

TEST(PrefixStore, AModelOfWindowsOnlyIsServedToo) {
  auto pool = MakePool(20, {{.kv_heads = 1, .key_dim = 16, .value_dim = 16, .window = 64}});
  PrefixStore store(*pool, 3 * pool->block_bytes(0));
  KvSequence sequence(*pool), shorter(*pool), next(*pool);
  ASSERT_TRUE(sequence.Reserve(192).ok());
  sequence.Commit(192);
  for (const int32_t block : {kNoKvBlock, sequence.block(0, 1), sequence.block(0, 2)}) {
    ASSERT_TRUE(shorter.AppendShared({&block, 1}).ok());
  }
  store.Insert(Repeat({1, 2, 3}), 0, shorter);
  EXPECT_EQ(store.nodes(), 3);
  EXPECT_EQ(store.bytes(), 2 * pool->block_bytes(0));
  EXPECT_EQ(store.Match(Repeat({1, 2, 3}, 1), 0, next), 192);
  EXPECT_EQ(store.Match(Repeat({1, 2, 3}), 0, next), 128);
  EXPECT_EQ(store.Match(Repeat({1, 2}), 0, next), 0);
}

// ---- bounds

// Which the store itself checks.
TEST(PrefixStore, ItsBookkeepingIsWhatWasPlanned) {
  for (const std::vector<KvLayerShape>& layers : {kPair, kWithWindow}) {
    for (const int64_t blocks : {1, 7, 40}) {
      auto pool = MakePool(blocks, layers);
      for (const int64_t budget : {int64_t{0}, pool->bytes() / 3, pool->bytes(), pool->bytes() * 10}) {
        const PrefixStore store(*pool, budget);
        EXPECT_EQ(store.budget_bytes(), budget);
      }
    }
  }
}

// Random conversations against a plain set of what was inserted: whatever is found has the right contents, the budget
// holds, and no block is lost.
TEST(PrefixStore, RandomConversationsFindWhatTheyWouldCompute) {
  int64_t found = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    auto pool = MakePool(14);
    std::mt19937_64 rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
    {
      PrefixStore store(*pool, 12 * OneBlock(*pool));
      std::vector<std::unique_ptr<KvSequence>> running(4);
      std::vector<Tokens> tokens(4);
      std::vector<uint32_t> salts(4);
      std::set<std::pair<uint32_t, Tokens>> inserted;  // prefixes of whole blocks
      for (int step = 0; step < 500; ++step) {
        const size_t i = static_cast<size_t>(below(4));
        if (running[i] == nullptr) {
          tokens[i].clear();
          for (int block = below(6); block >= 0; --block) {
            const Tokens more = Repeat({below(2)});
            tokens[i].insert(tokens[i].end(), more.begin(), more.end());
          }
          tokens[i].resize(tokens[i].size() - static_cast<size_t>(below(64)));
          salts[i] = static_cast<uint32_t>(below(2));
          running[i] = std::make_unique<KvSequence>(*pool, 7 * 64);
          const int64_t length = store.Match(tokens[i], salts[i], *running[i]);
          found += length;
          ASSERT_LT(length, static_cast<int64_t>(tokens[i].size()));
          ExpectPrefix(*running[i], tokens[i]);
          const Tokens prefix(tokens[i].begin(), tokens[i].begin() + length);
          ASSERT_TRUE(length == 0 || inserted.contains({salts[i], prefix}));
        } else if (below(2) == 0) {
          if (!Compute(*running[i], tokens[i]).ok()) {
            ++refused;
            running[i] = nullptr;
            continue;
          }
          ExpectPrefix(*running[i], tokens[i]);
          store.Insert(tokens[i], salts[i], *running[i]);
          for (int64_t end = 64; end <= running[i]->length(); end += 64) {
            inserted.insert({salts[i], Tokens(tokens[i].begin(), tokens[i].begin() + end)});
          }
        } else {
          running[i] = nullptr;
        }
        ASSERT_LE(store.bytes(), store.budget_bytes());
        ASSERT_EQ(store.bytes(), store.nodes() * OneBlock(*pool));
      }
      running.clear();
      EXPECT_EQ(pool->used_bytes(), store.bytes());
      EXPECT_GT(store.stats().evicted_nodes, 10);
    }
    EXPECT_EQ(pool->used_bytes(), 0);
  }
  EXPECT_GT(found, 10000);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace nunspark
