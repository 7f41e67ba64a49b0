// Sequences that join, are cancelled and meet failing reads at random, by the thousand: whoever ends as it should has
// its very own tokens, and nothing is left behind.

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/sanitized_testing.h"
#include "base/thread_pool.h"
#include "decode/ngram_drafter.h"
#include "decode/sequence_group.h"
#include "engine/model_files.h"
#include "integration/support.h"
#include "io/fault_queue_testing.h"
#include "io/read_queue.h"
#include "kv/prefix_store.h"
#include "models/model.h"
#include "weights/memory_plan.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark::test {
namespace {

#ifdef NUNSPARK_SANITIZED
constexpr int kOperations = 1000;
#else
constexpr int kOperations = 10000;
#endif
constexpr int32_t kSequences = 5;
constexpr int64_t kContext = 128;
constexpr int kKinds = 12;

// A model at its smallest budget, and all that a group of sequences needs.
struct Machine {
  explicit Machine(const std::string& folder, FaultPlan faults, int32_t max_rows = 64) {
    files = ModelFilesImpl::OpenFolder(folder).value();
    index = PieceIndex::Build(files->layout(), files->checkpoint().tensors, 16 << 10, 1);
    const MemoryPlan ample = MakeMemoryPlan(files->layout(), index, {.budget_bytes = 1 << 30}, {}).value();
    const MemoryPlan plan = MakeMemoryPlan(files->layout(), index, {.budget_bytes = ample.floor_bytes}, {}).value();
    auto queue = std::make_unique<FaultQueue>(OpenReadQueue(index.paths(), {.direct = false}).value(), index.paths(),
                                              std::move(faults));
    cache = PieceCache::Create(files->layout(), index, plan, std::move(queue), {}).value();
    pool = ThreadPool::Create(2).value();
    model = Model::Create(files->layout(), *pool, max_rows, kDefaultNumerics).value();
    kv = KvPool::Create(Model::KvShapes(files->layout().hparams), kSequences * kContext).value();
    drafter = std::make_unique<NgramDrafter>(NgramOptions{.most_tokens = 4}, kSequences);
    prefixes = std::make_unique<PrefixStore>(*kv, kv->bytes());
  }

  GroupTarget Target() {
    return {.model = *model,
            .weights = *cache,
            .kv = *kv,
            .context = kContext,
            .max_sequences = kSequences,
            .prefill_chunk = 24,
            .cancelled = cancelled,
            .stop_ids = {},
            .bytes_read = [] { return int64_t{0}; },
            .prefixes = prefixes.get(),
            .drafter = drafter.get(),
            .shape = TreeShape::Chain(4),
            .governed = false};
  }

  std::unique_ptr<ModelFilesImpl> files;
  PieceIndex index;
  std::unique_ptr<PieceCache> cache;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> kv;
  std::unique_ptr<NgramDrafter> drafter;
  std::unique_ptr<PrefixStore> prefixes;
  std::atomic<bool> cancelled{false};
};

SequenceRequest RequestOf(int kind, int64_t vocab) {
  SequenceRequest request;
  const int length = 1 + kind * 17 % 70;
  for (int i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i % (5 + kind) * 7919 + kind % 3 * 104729) % vocab));
  }
  request.options = {.max_tokens = 1 + kind * 7 % 40, .sampling = {}, .ignore_eos = true};
  if (kind % 2 == 1) request.options.sampling = {.temperature = 0.9, .seed = static_cast<uint64_t>(kind)};
  return request;
}

TEST(Storm, OfJoinsCancelsAndFaultsLeavesNothingBehind) {
  const std::string folder = DataPath("goldens/qwen3_moe");
  std::mt19937 random(7);
  const auto below = [&random](uint32_t n) { return static_cast<int>(random() % n); };
  FaultPlan faults;
  faults.seed = 3;
  faults.delays_per_mille = 20;
  for (int64_t read = 300; read < 400000; read += 1 + below(4000)) {
    faults.faults.push_back({.kind = Fault::Kind::kError, .request = read});
  }
  // What each kind gives alone, without faults and drafts.
  std::vector<std::vector<int32_t>> alone(kKinds);
  {
    Machine clean(folder, {});
    GroupTarget target = clean.Target();
    target.drafter = nullptr;
    target.shape = TreeShape::Chain(0);
    target.prefixes = nullptr;
    for (int kind = 0; kind < kKinds; ++kind) {
      SequenceGroup group(target, {.on_token = [](int32_t, const GeneratedToken&) { return true; },
                                   .on_prompt = {},
                                   .on_end =
                                       [&](int32_t, Result<GenerateResult> result) {
                                         alone[static_cast<size_t>(kind)] = result.value().ids;
                                       }});
      ASSERT_TRUE(group.Join(0, RequestOf(kind, clean.files->vocab_size())).ok());
      while (!group.empty()) ASSERT_TRUE(group.Step().ok());
    }
  }

  Machine machine(folder, faults);
  std::map<int32_t, int> running;  // tag -> kind
  int64_t whole = 0, cut = 0, failed = 0;
  const auto on_end = [&](int32_t tag, Result<GenerateResult> result) {
    const std::vector<int32_t>& want = alone[static_cast<size_t>(running.at(tag))];
    running.erase(tag);
    if (!result.ok()) {
      ++failed;
      return;
    }
    const bool cancelled = result->finish_reason == FinishReason::kCancelled;
    ++(cancelled ? cut : whole);
    const size_t count = result->ids.size();
    ASSERT_TRUE(cancelled ? count <= want.size() : count == want.size());
    EXPECT_TRUE(std::equal(result->ids.begin(), result->ids.end(), want.begin()));
  };
  {
    SequenceGroup group(machine.Target(), {.on_token = [&](int32_t, const GeneratedToken&) { return below(60) != 0; },
                                           .on_prompt = [&](int32_t, int64_t, int64_t) { return below(40) != 0; },
                                           .on_end = on_end});
    int32_t next_tag = 0;
    for (int operation = 0; operation < kOperations; ++operation) {
      const int what = below(10);
      if (what < 3 && group.size() < kSequences) {
        const int kind = below(kKinds);
        running[next_tag] = kind;
        ASSERT_TRUE(group.Join(next_tag, RequestOf(kind, machine.files->vocab_size())).ok());
        ++next_tag;
      } else if (what == 3 && !running.empty()) {
        group.Leave(std::next(running.begin(), below(static_cast<uint32_t>(running.size())))->first);
      } else if (!group.empty()) {
        const Status status = group.Step();
        if (!status.ok()) group.EndAll(status);
      }
    }
    group.EndAll(Status());
  }
  EXPECT_TRUE(running.empty());
  EXPECT_GT(whole, kOperations / 40);
  EXPECT_GT(cut, kOperations / 100);
  EXPECT_GT(failed, 0);
  machine.prefixes->Clear();
  EXPECT_EQ(machine.kv->used_bytes(), 0);
  EXPECT_EQ(machine.cache->stats().quarantined_slots, 0);

  // Every slot and block can still be used.
  GroupTarget target = machine.Target();
  std::map<int32_t, std::vector<int32_t>> last;
  SequenceGroup group(target, {.on_token = [](int32_t, const GeneratedToken&) { return true; },
                               .on_prompt = {},
                               .on_end =
                                   [&](int32_t tag, Result<GenerateResult> result) {
                                     if (result.ok()) last[tag] = result->ids;
                                   }});
  while (last.size() < kSequences) {  // the planned faults go on
    for (int32_t tag = 0; tag < kSequences; ++tag) {
      if (last.contains(tag)) continue;
      ASSERT_TRUE(group.Join(tag, RequestOf(tag + 4, machine.files->vocab_size())).ok());
    }
    while (!group.empty()) {
      const Status status = group.Step();
      if (!status.ok()) group.EndAll(status);
    }
  }
  for (const auto& [tag, ids] : last) EXPECT_EQ(ids, alone[static_cast<size_t>(tag + 4)]);
}

// Always proposes as much as may be.
class EagerDrafter : public Drafter {
 public:
  bool WantsHidden() const override { return false; }
  bool DraftsTrees() const override { return false; }
  void Begin(int32_t) override {}
  int32_t WantedLength(int32_t, int32_t most) override { return most; }
  Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>&) override {
    for (const DraftRequest& request : requests) {
      for (int32_t i = 0; i < request.shape->depth(); ++i) request.draft->Add(0, i - 1);
    }
    return Status();
  }
  void Observe(int32_t, int32_t, int32_t) override {}
};

TEST(Storm, OfDraftsLeavesRoomForPrompts) {
  Machine machine(DataPath("goldens/qwen3_moe"), {}, 10);  // two sequences with their drafts
  EagerDrafter drafter;
  GroupTarget target = machine.Target();
  target.drafter = &drafter;
  target.prefixes = nullptr;
  std::map<int32_t, int> tokens;  // tag -> so far
  SequenceGroup group(target, {.on_token =
                                   [&](int32_t tag, const GeneratedToken&) {
                                     ++tokens[tag];
                                     return true;
                                   },
                               .on_prompt = {},
                               .on_end = [](int32_t, Result<GenerateResult>) {}});
  const SequenceRequest request{.prompt = {5}, .options = {.max_tokens = 40, .sampling = {}, .ignore_eos = true}};
  for (const int32_t tag : {0, 1}) ASSERT_TRUE(group.Join(tag, request).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(group.Step().ok());
  ASSERT_TRUE(group.Join(2, request).ok());
  ASSERT_TRUE(group.Step().ok());
  EXPECT_EQ(tokens[2], 1);
  group.EndAll(Status());
}

}  // namespace
}  // namespace nunspark::test
