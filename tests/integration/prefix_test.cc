// Prefixes that were computed before: what follows them has the same logits, bit for bit, as without - shared with
// sequences that go on, saved and restored, spilled, for every kind of attention.

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "decode/generate.h"
#include "engine/model_files.h"
#include "integration/support.h"
#include "io/read_queue.h"
#include "kernels/kernels.h"
#include "kv/prefix_store.h"
#include "models/model.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark::test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kChunk = 64;
constexpr int64_t kPositions = 1024;

class Prefixes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    files_ = ModelFilesImpl::OpenFolder(DataPath("goldens/" + GetParam())).value();
    index_ = PieceIndex::Build(files_->layout(), files_->checkpoint().tensors);
    weights_ = CreateResidentSource(files_->layout(), index_, OpenReadQueue(index_.paths(), {}).value()).value();
    threads_ = ThreadPool::Create(2).value();
    model_ = Model::Create(files_->layout(), *threads_, kChunk, kDefaultNumerics).value();
  }

  const HParams& hparams() const { return files_->layout().hparams; }
  size_t vocab() const { return static_cast<size_t>(hparams().vocab_size); }

  std::unique_ptr<KvPool> Pool(int64_t budget = std::numeric_limits<int64_t>::max()) const {
    return KvPool::Create(Model::KvShapes(hparams()), kPositions,
                          {.budget_bytes = budget, .order = Model::KvOrder(hparams())})
        .value();
  }

  // `count` tokens that differ by `kind`.
  Tokens Text(int kind, int count) const {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back((i * 7919 + kind * 104729 + 13) % static_cast<int32_t>(vocab()));
    return tokens;
  }

  static Tokens Joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  uint32_t SaltOf(const Tokens& prompt) const { return hparams().rotation_side(std::ssize(prompt)); }

  // Computes what of the prompt the sequence does not have; keeps prefixes in the store on the way. The logits of every
  // row that was computed.
  std::vector<float> Feed(KvSequence& sequence, const Tokens& prompt, PrefixStore* store) {
    std::vector<float> logits;
    EXPECT_TRUE(sequence.Reserve(std::ssize(prompt)).ok());
    while (sequence.length() < std::ssize(prompt)) {
      const int64_t end = std::min<int64_t>(sequence.length() + kChunk, std::ssize(prompt));
      Forward(sequence, prompt, end, &logits);
      if (store != nullptr) store->Insert(prompt, SaltOf(prompt), sequence);
    }
    return logits;
  }

  // Greedy tokens after the prompt, each fed as a generation does.
  Tokens Continue(KvSequence& sequence, Tokens tokens, std::vector<float> logits, int count) {
    for (int i = 0; i < count; ++i) {
      const float* const last = logits.data() + logits.size() - vocab();
      tokens.push_back(static_cast<int32_t>(std::max_element(last, last + vocab()) - last));
      EXPECT_TRUE(sequence.Reserve(std::ssize(tokens)).ok());
      Forward(sequence, tokens, std::ssize(tokens), &logits);
    }
    return tokens;
  }

  std::vector<float> Cold(const Tokens& prompt) {
    const std::unique_ptr<KvPool> pool = Pool();
    KvSequence sequence(*pool);
    return Feed(sequence, prompt, nullptr);
  }

  // The prompt after what the store knows of it; the same bits as `cold`. Returns how much was known.
  int64_t Warm(PrefixStore& store, KvPool& pool, const Tokens& prompt, const std::vector<float>& cold) {
    KvSequence sequence(pool);
    const int64_t found = store.Match(prompt, SaltOf(prompt), sequence);
    const std::vector<float> logits = Feed(sequence, prompt, &store);
    const size_t skipped = static_cast<size_t>(found) * vocab();
    EXPECT_EQ(logits.size(), cold.size() - skipped);
    EXPECT_EQ(std::memcmp(logits.data(), cold.data() + skipped, logits.size() * sizeof(float)), 0) << found;
    return found;
  }

  std::unique_ptr<ModelFilesImpl> files_;
  PieceIndex index_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Model> model_;

 private:
  void Forward(KvSequence& sequence, const Tokens& tokens, int64_t end, std::vector<float>* logits) {
    Batch batch;
    AppendRows(tokens, sequence.length(), end, 0, batch);
    batch.sequences = {&sequence};
    for (int32_t i = 0; i < std::ssize(batch.rows); ++i) batch.logit_rows.push_back(i);
    const Status status = model_->Forward(batch, *weights_, [&](const HeadRows& head) {
      logits->insert(logits->end(), head.logits, head.logits + static_cast<size_t>(head.count) * vocab());
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.message();
  }
};

// Checklist item 70, but for whole blocks and many conversations.
TEST_P(Prefixes, ReusedOnesGiveTheSameBitsAsAColdRun) {
  const Tokens system = Text(1, 130);
  const Tokens first = Joined(system, Text(2, 90)), second = Joined(system, Text(3, 90));
  const std::vector<float> cold_first = Cold(first), cold_second = Cold(second);
  const std::unique_ptr<KvPool> pool = Pool();
  PrefixStore store(*pool, pool->bytes());
  EXPECT_EQ(Warm(store, *pool, first, cold_first), 0);
  EXPECT_EQ(Warm(store, *pool, second, cold_second), 128);
  EXPECT_EQ(Warm(store, *pool, first, cold_first), 192);
  EXPECT_EQ(Warm(store, *pool, second, cold_second), 192);
  // What is shared with no one is found by no one.
  EXPECT_EQ(Warm(store, *pool, Text(4, 100), Cold(Text(4, 100))), 0);
}

// The next turn of a conversation begins with what was generated in the one before.
TEST_P(Prefixes, GeneratedTokensAreReusedToo) {
  const Tokens prompt = Text(1, 100);
  const std::unique_ptr<KvPool> pool = Pool();
  PrefixStore store(*pool, pool->bytes());
  Tokens said;
  {
    KvSequence sequence(*pool);
    said = Continue(sequence, prompt, Feed(sequence, prompt, &store), 40);
    store.Insert(said, SaltOf(prompt), sequence);
  }
  const Tokens next = Joined(said, Text(5, 50));
  const int64_t found = Warm(store, *pool, next, Cold(next));
  EXPECT_EQ(found, SaltOf(next) == SaltOf(prompt) && SaltOf(said) == SaltOf(prompt) ? 128 : 0);
}

TEST_P(Prefixes, SavedAndRestoredOnesNeverLeft) {
  const TempFolder temp;
  const Tokens prompt = Joined(Text(1, 150), Text(2, 60));
  const std::vector<float> cold = Cold(prompt);
  {
    const std::unique_ptr<KvPool> pool = Pool();
    PrefixStore store(*pool, pool->bytes());
    EXPECT_EQ(Warm(store, *pool, prompt, cold), 0);
    ASSERT_TRUE(store.Save(GetParam(), temp.path() + "/saved").ok());
  }
  for (const int64_t kv_budget : {std::numeric_limits<int64_t>::max(), int64_t{1}}) {
    const std::unique_ptr<KvPool> pool = Pool(kv_budget);
    PrefixStore store(*pool, int64_t{1} << 40);
    ASSERT_TRUE(store.Load(GetParam(), temp.path() + "/saved").ok());
    EXPECT_EQ(Warm(store, *pool, prompt, cold), 192);
    EXPECT_EQ(pool->stats().spilled_bytes > 0, kv_budget == 1);
  }
}

// While blocks are few and memory for them is less, conversations push each other out and come back.
TEST_P(Prefixes, AreExactWhileTheyComeAndGo) {
  std::vector<Tokens> prompts;
  std::vector<std::vector<float>> cold;
  for (int kind = 0; kind < 4; ++kind) {
    prompts.push_back(Joined(Text(kind % 2, 128), Text(10 + kind, 70)));
    cold.push_back(Cold(prompts.back()));
  }
  const std::unique_ptr<KvPool> pool = Pool(1);
  PrefixStore store(*pool, pool->block_bytes(0) * std::ssize(pool->layers()) * 6);
  int64_t found = 0;
  for (const int turn : {0, 1, 2, 3, 0, 2, 1, 3, 3, 0}) {
    found += Warm(store, *pool, prompts[static_cast<size_t>(turn)], cold[static_cast<size_t>(turn)]);
    EXPECT_LE(store.bytes(), store.budget_bytes());
  }
  EXPECT_GT(found, 0);
}

// Keys that were rotated for another length never stand for each other.
TEST(PrefixesOfLengths, RotationsThatDependOnTheLengthKeepPrefixesApart) {
  HParams h;
  h.ropes = {{.kind = RopeKind::kLongRope, .original_positions = 100, .short_factor = {1}, .long_factor = {2}}};
  EXPECT_EQ(h.rotation_side(1), h.rotation_side(100));
  EXPECT_NE(h.rotation_side(100), h.rotation_side(101));
  EXPECT_EQ(h.rotation_side(101), h.rotation_side(5000));
  h.ropes = {{.kind = RopeKind::kDynamic, .original_positions = 100}};
  EXPECT_EQ(h.rotation_side(1), h.rotation_side(100));
  EXPECT_NE(h.rotation_side(101), h.rotation_side(102));
  EXPECT_NE(h.rotation_side(101), h.rotation_side(100));
  h.ropes = {{.kind = RopeKind::kYarn, .original_positions = 100}};
  EXPECT_EQ(h.rotation_side(1), h.rotation_side(5000));
}

INSTANTIATE_TEST_SUITE_P(Models, Prefixes, testing::ValuesIn(GoldenNames()), CaseName);

}  // namespace
}  // namespace nunspark::test
