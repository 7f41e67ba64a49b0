// For tests: a piece cache over a fake model, used as the forward pass does.
#ifndef NUNSPARK_WEIGHTS_CACHE_HARNESS_H_
#define NUNSPARK_WEIGHTS_CACHE_HARNESS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "io/fault_queue_testing.h"
#include "weights/fake_model.h"
#include "weights/piece_cache.h"

namespace nunspark {

// A cache over a fake model. expert_slots and ring_slots say how much memory it gets.
class Harness {
 public:
  struct Options {
    FakeModelOptions model = {};
    int32_t expert_slots = 4;
    int32_t pinned_cores = 100;  // at most the layers
    PieceCacheOptions cache = {};
    uint32_t shuffle_seed = 0;  // 0 = in order
    std::optional<FaultPlan> faults = {};
    std::function<void(const FakeModel&, FakeQueueControl&)> before_open = {};
  };

  explicit Harness(const Options& options) : model(options.model), control(std::make_shared<FakeQueueControl>(model)) {
    if (options.shuffle_seed != 0) control->Shuffle(options.shuffle_seed);
    if (options.before_open) options.before_open(model, *control);
    plan.pinned_cores = std::min(options.pinned_cores, options.model.layers);
    plan.ring_slots = plan.pinned_cores == options.model.layers ? 0 : 2;
    for (int layer = 0; layer < options.model.layers; ++layer) {
      const int64_t bytes = SlotBytes(model.layout.core[static_cast<size_t>(layer)]);
      if (layer < plan.pinned_cores) {
        plan.core_region_bytes += bytes;
      } else {
        plan.core_slot_bytes = std::max(plan.core_slot_bytes, bytes);
      }
    }
    plan.core_region_bytes += plan.ring_slots * plan.core_slot_bytes;
    plan.expert_slots = options.model.experts > 0 ? options.expert_slots : 0;
    for (PieceId id = 0; id < model.index.size(); ++id) {
      if (model.layout.pieces[static_cast<size_t>(id)].kind == PieceKind::kExpert) {
        plan.expert_slot_bytes = std::max(plan.expert_slot_bytes, SlotBytes(id));
      }
    }
    plan.expert_region_bytes = plan.expert_slots * plan.expert_slot_bytes;
    plan.norm_head_bytes = SlotBytes(model.layout.norm_head);
    plan.embed_bytes =
        options.model.tied
            ? SlotBytes(model.layout.embed)
            : MakeMemoryPlan(model.layout, model.index, {.budget_bytes = 1 << 30}, {}).value().embed_bytes;
    std::unique_ptr<ReadQueue> queue = std::make_unique<FakeReadQueue>(control);
    if (options.faults) {
      queue = std::make_unique<FaultQueue>(std::move(queue), model.index.paths(), *options.faults);
    }
    Result<std::unique_ptr<PieceCache>> created =
        PieceCache::Create(model.layout, model.index, plan, std::move(queue), options.cache);
    CHECK(created.ok());
    cache = std::move(created).value();
    opened_requests = control->SubmittedCount();
  }

  int64_t SlotBytes(PieceId id) const { return model.index.piece(id).slot_bytes; }
  PieceId Core(int layer) const { return model.layout.core[static_cast<size_t>(layer)]; }
  std::vector<PieceId> Experts(int layer, const std::vector<int>& experts) const {
    std::vector<PieceId> ids;
    for (const int expert : experts) ids.push_back(model.Expert(layer, expert));
    return ids;
  }

  // Leases a piece, looks at it and lets go. True when it was a hit.
  bool Touch(PieceId id) {
    const CacheStats before = cache->stats();
    const Result<Lease> lease = cache->Acquire(id);
    EXPECT_TRUE(lease.ok());
    EXPECT_TRUE(model.IsRight(*lease));
    const CacheStats after = cache->stats();
    const auto misses = [](const CacheStats& s) { return s.dense.misses + s.core.misses + s.expert.misses; };
    return misses(after) == misses(before);
  }

  // As in a pass of one row.
  void Announce(int layer, const std::vector<PieceId>& ids) const {
    const std::vector<int32_t> last_rows(ids.size(), 0);
    cache->Announce({.layer = layer, .pieces = ids, .last_rows = last_rows});
  }

  // Uses every expert of a layer once, as many at a time as there are slots: whether no slot has been lost.
  bool AllSlotsWork(int layer) {
    PieceId next = model.Expert(layer, 0);
    const PieceId end = next + static_cast<PieceId>(model.layout.hparams.experts);
    while (next < end) {
      std::vector<Lease> leases;
      while (static_cast<int32_t>(leases.size()) < plan.expert_slots && next < end) {
        leases.push_back(cache->Acquire(next++).value());
        if (!model.IsRight(leases.back())) return false;
      }
    }
    return true;
  }

  // Announces and uses all of `ids` as the forward pass does; returns the order in which they came.
  std::vector<PieceId> Pass(int layer, std::vector<PieceId> ids) {
    Announce(layer, ids);
    std::vector<PieceId> order;
    while (!ids.empty()) {
      const Result<Lease> lease = cache->AcquireAny(ids, Arrived::kAll);
      if (!lease.ok()) {
        ADD_FAILURE() << lease.status().message();
        return order;
      }
      EXPECT_TRUE(model.IsRight(*lease));
      order.push_back(lease->piece());
      EXPECT_EQ(std::erase(ids, lease->piece()), 1u);
    }
    return order;
  }

  FakeModel model;
  MemoryPlan plan;
  std::shared_ptr<FakeQueueControl> control;
  std::unique_ptr<PieceCache> cache;
  int64_t opened_requests = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_CACHE_HARNESS_H_
