// Passes of several rows: what they read, and what they leave in memory.
#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "weights/cache_harness.h"

namespace nunspark {
namespace {

constexpr int kLayers = 6;
constexpr int kExperts = 32;
constexpr int kPerToken = 4;

// routing[token][layer]: experts that come and go slowly, as real ones do.
using Routing = std::vector<std::vector<std::vector<int>>>;

Routing MakeRouting(int tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int>> current(kLayers);
  Routing routing;
  for (int token = 0; token < tokens; ++token) {
    for (std::vector<int>& layer : current) {
      while (layer.size() < kPerToken || random() % 2 == 0) {
        const int expert = static_cast<int>(random() % kExperts);
        if (std::find(layer.begin(), layer.end(), expert) != layer.end()) continue;
        if (layer.size() == kPerToken) layer.erase(layer.begin() + static_cast<int>(random() % kPerToken));
        layer.push_back(expert);
      }
    }
    routing.push_back(current);
  }
  return routing;
}

// Tokens [begin, end) as one pass, layer by layer.
void RunPass(Harness& h, const Routing& routing, size_t begin, size_t end) {
  h.cache->BeginPass({.rows = static_cast<int64_t>(end - begin), .starts_sequence = begin == 0});
  for (int layer = 0; layer < kLayers; ++layer) {
    h.Touch(h.Core(layer));
    std::map<PieceId, int32_t> last;
    for (size_t token = begin; token < end; ++token) {
      for (const int expert : routing[token][static_cast<size_t>(layer)]) {
        last[h.model.Expert(layer, expert)] = static_cast<int32_t>(token - begin);
      }
    }
    std::vector<std::pair<int32_t, PieceId>> order;
    for (const auto& [id, row] : last) order.emplace_back(row, id);
    std::sort(order.begin(), order.end());
    std::vector<PieceId> pieces;
    std::vector<int32_t> last_rows;
    for (const auto& [row, id] : order) {
      pieces.push_back(id);
      last_rows.push_back(row);
    }
    h.cache->Announce({.layer = layer, .pieces = pieces, .last_rows = last_rows});
    while (!pieces.empty()) {
      const Result<Lease> lease = h.cache->AcquireAny(pieces, Arrived::kAll);
      ASSERT_TRUE(lease.ok() && h.model.IsRight(*lease));
      std::erase(pieces, lease->piece());
    }
  }
  h.cache->EndPass();
}

// What a least-recently-used cache misses when the tokens come one by one.
class TokenOrderLru {
 public:
  explicit TokenOrderLru(size_t slots) : slots_(slots) {}

  int64_t Misses(const Harness& h, const Routing& routing, size_t token) {
    int64_t misses = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const int expert : routing[token][static_cast<size_t>(layer)]) {
        const PieceId id = h.model.Expert(layer, expert);
        const auto found = std::find(order_.begin(), order_.end(), id);
        if (found != order_.end()) {
          order_.erase(found);
        } else {
          ++misses;
          if (order_.size() == slots_) order_.pop_back();
        }
        order_.push_front(id);
      }
    }
    return misses;
  }

 private:
  const size_t slots_;
  std::list<PieceId> order_;
};

Harness::Options OptionsOf(int32_t slots) {
  return {.model = {.layers = kLayers, .experts = kExperts, .experts_per_token = kPerToken},
          .expert_slots = slots,
          .cache = {.prefetch = false},
          .shuffle_seed = 7};
}

TEST(PromptPass, LeavesWhatATokenOrderLruWouldHold) {
  constexpr size_t kPrompt = 60, kDecode = 40;
  for (const int32_t slots : {kLayers * kPerToken + 4, 48, 80, 120}) {
    for (const size_t chunk : {60, 17, 4}) {
      Harness h(OptionsOf(slots));
      TokenOrderLru lru(static_cast<size_t>(slots));
      const Routing routing = MakeRouting(kPrompt + kDecode, 3);
      for (size_t begin = 0; begin < kPrompt; begin += chunk) {
        RunPass(h, routing, begin, std::min(begin + chunk, kPrompt));
      }
      for (size_t token = 0; token < kPrompt; ++token) lru.Misses(h, routing, token);
      int64_t first = 0, lru_first = 0, all = 0, lru_all = 0;
      for (size_t token = kPrompt; token < kPrompt + kDecode; ++token) {
        const int64_t before = h.cache->stats().expert.misses;
        RunPass(h, routing, token, token + 1);
        const int64_t misses = h.cache->stats().expert.misses - before;
        const int64_t lru_misses = lru.Misses(h, routing, token);
        if (token < kPrompt + 4) {
          first += misses;
          lru_first += lru_misses;
        }
        all += misses;
        lru_all += lru_misses;
      }
      // Shares are equal, what an LRU gives each layer is not quite; and some slots were for passing through.
      EXPECT_LE(first, lru_first + 4) << slots << " slots, chunks of " << chunk;
      EXPECT_LE(all, lru_all + 6) << slots << " slots, chunks of " << chunk;
      EXPECT_GE(all, lru_all - 6) << slots << " slots, chunks of " << chunk;
      EXPECT_LE(h.cache->stats().resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
    }
  }
}

// No part of an expert was read twice after the first `before` requests.
void ExpectEachReadOnce(const Harness& h, size_t before) {
  std::multiset<int64_t> reads;
  const std::vector<ReadRequest> submitted = h.control->Submitted();
  for (size_t i = before; i < submitted.size(); ++i) {
    if (submitted[i].file == 1) reads.insert(submitted[i].offset);
  }
  for (const int64_t offset : reads) EXPECT_EQ(reads.count(offset), 1u) << offset;
}

TEST(PromptPass, ReadsEachTouchedExpertOnceAPass) {
  for (const int32_t slots : {8, 40, 100}) {
    Harness h(OptionsOf(slots));
    const Routing routing = MakeRouting(120, 5);
    for (size_t begin = 0; begin < 120; begin += 40) {
      const size_t before = h.control->Submitted().size();
      RunPass(h, routing, begin, begin + 40);
      ExpectEachReadOnce(h, before);
    }
  }
}

// Each layer finds its own share again: a plain LRU would have thrown it away before the pass comes by again.
TEST(PromptPass, ChunksFindWhatTheLastOneKept) {
  const int32_t slots = 60;
  Harness h(OptionsOf(slots));
  const Routing half = MakeRouting(30, 5);
  Routing routing = half;
  routing.insert(routing.end(), half.begin(), half.end());  // the second chunk wants what the first one did
  RunPass(h, routing, 0, 30);
  const int64_t hits = h.cache->stats().expert.hits;
  RunPass(h, routing, 30, 60);
  EXPECT_GE(h.cache->stats().expert.hits - hits, slots * 3 / 4);  // of five sixths that the layers keep
}

// Rows of several sequences come at the same time: which of them is the last says nothing.
TEST(PromptPass, OfSeveralSequencesStaysWhatMostOfThemWantedLately) {
  Harness h(OptionsOf(2 * kLayers + 2));  // two of each layer, and two slots for what passes through
  // In each layer three of four sequences want `common`, the last one experts that come but once.
  const auto hits_of = [&](int pass, const std::vector<int>& common) {
    const int64_t before = h.cache->stats().expert.hits;
    h.cache->BeginPass({.rows = 4, .sequences = 4});
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<PieceId> pieces = h.Experts(layer, common);
      std::vector<int32_t> last_rows(common.size(), 2), row_counts(common.size(), 3);
      for (int i = 0; i < kPerToken; ++i) {
        pieces.push_back(h.model.Expert(layer, 4 + pass * kPerToken + i));
        last_rows.push_back(3);
        row_counts.push_back(1);
      }
      h.cache->Announce({.layer = layer, .pieces = pieces, .last_rows = last_rows, .row_counts = row_counts});
      while (!pieces.empty()) {
        const Result<Lease> lease = h.cache->AcquireAny(pieces, Arrived::kAll);
        if (!lease.ok()) return int64_t{-1};
        EXPECT_TRUE(h.model.IsRight(*lease));
        std::erase(pieces, lease->piece());
      }
    }
    h.cache->EndPass();
    return h.cache->stats().expert.hits - before;
  };
  EXPECT_EQ(hits_of(0, {0, 1}), 0);
  EXPECT_EQ(hits_of(1, {0, 1}), 2 * kLayers);
  EXPECT_EQ(hits_of(2, {0}), kLayers);
  EXPECT_EQ(hits_of(3, {0, 1}), 2 * kLayers) << "what one pass did not want was not lost";
  EXPECT_LE(h.cache->stats().resident_peak_bytes, h.plan.core_region_bytes + h.plan.expert_region_bytes);
}

// Checklist items 33 and 34. With the last pass's experts of the next layer read ahead, none is read twice, and what is
// used was worth it.
TEST(PromptPass, ReadsAheadWhatTheNextLayersNeededBefore) {
  for (const int32_t slots : {30, 60, 100}) {
    Harness::Options options = OptionsOf(slots);
    options.cache = {.prefetch = true, .lookahead = Governed::kOff, .expert_prefetch = Governed::kOn};
    Harness h(options);
    const Routing routing = MakeRouting(120, 5);
    for (size_t begin = 0; begin < 120; begin += 40) {
      const size_t before = h.control->Submitted().size();
      RunPass(h, routing, begin, begin + 40);
      ExpectEachReadOnce(h, before);
      if (begin == 0) {
        EXPECT_EQ(h.cache->stats().expert_prefetch.issued, 0) << "nothing is known yet";
      }
    }
    const PrefetchStats ahead = h.cache->stats().expert_prefetch;
    EXPECT_GT(ahead.issued, 0) << slots;
    EXPECT_GT(ahead.used * 2, ahead.issued - ahead.withdrawn) << slots;
    // A new sequence has nothing to do with the last one.
    RunPass(h, routing, 0, 40);
    EXPECT_EQ(h.cache->stats().expert_prefetch.issued, ahead.issued);
    // A pass of one row never does it, whatever came before.
    RunPass(h, routing, 40, 41);
    EXPECT_EQ(h.cache->stats().expert_prefetch.issued, ahead.issued);
  }
}

TEST(PromptPass, ReadsAheadAtOnceWhereItsRowsLeaveHardlyAnExpertOut) {
  for (const int32_t slots : {30, 60, 100}) {
    Harness::Options options = OptionsOf(slots);
    options.cache = {.prefetch = true, .lookahead = Governed::kOff, .expert_prefetch = Governed::kOn};
    Harness h(options);
    const size_t before = h.control->Submitted().size();
    RunPass(h, MakeRouting(120, 5), 0, 120);
    ExpectEachReadOnce(h, before);
    const PrefetchStats ahead = h.cache->stats().expert_prefetch;
    EXPECT_GT(ahead.issued, 0) << slots;
    EXPECT_GT(ahead.used * 4, (ahead.issued - ahead.withdrawn) * 3) << slots;
  }
}

TEST(PromptPass, StatsTellPassesOfOneRowFromOthers) {
  Harness h(OptionsOf(40));
  const Routing routing = MakeRouting(12, 1);
  RunPass(h, routing, 0, 10);
  RunPass(h, routing, 10, 11);
  RunPass(h, routing, 11, 12);
  const CacheStats stats = h.cache->stats();
  EXPECT_EQ(stats.prompt.passes, 1);
  EXPECT_EQ(stats.prompt.rows, 10);
  EXPECT_EQ(stats.decode.passes, 2);
  EXPECT_EQ(stats.prompt.bytes_read + stats.decode.bytes_read, stats.core.bytes_read + stats.expert.bytes_read);
  EXPECT_LE(stats.prompt.stall_us, stats.prompt.wall_us);
  LayerStats sum;
  for (const LayerStats& layer : h.cache->layer_stats()) {
    sum.hits += layer.hits;
    sum.misses += layer.misses;
    sum.bytes_read += layer.bytes_read;
  }
  EXPECT_EQ(sum.hits, stats.core.hits + stats.expert.hits);
  EXPECT_EQ(sum.misses, stats.core.misses + stats.expert.misses);
  EXPECT_EQ(sum.bytes_read, stats.core.bytes_read + stats.expert.bytes_read);
}

}  // namespace
}  // namespace nunspark
