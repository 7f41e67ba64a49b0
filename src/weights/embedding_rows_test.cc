#include "weights/embedding_rows.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/fake_model.h"
#include "weights/piece_cache.h"

namespace nunspark {
namespace {

// A cache that reads rows on demand beside a source that has the whole table.
struct Pair {
  explicit Pair(const FakeModelOptions& options) : model(options), control(std::make_shared<FakeQueueControl>(model)) {
    const MemoryPlan plan = MakeMemoryPlan(model.layout, model.index, {.budget_bytes = int64_t{1} << 30}, {}).value();
    cache = PieceCache::Create(model.layout, model.index, plan, std::make_unique<FakeReadQueue>(control), {}).value();
    resident = CreateResidentSource(model.layout, model.index,
                                    std::make_unique<FakeReadQueue>(std::make_shared<FakeQueueControl>(model)))
                   .value();
    opened = control->SubmittedCount();
  }

  // Whether both give the same bits.
  bool Same(const std::vector<int32_t>& rows) {
    std::vector<float> a(rows.size() * static_cast<size_t>(model.layout.hparams.model_dim), -1.0f);
    std::vector<float> b(a.size(), -2.0f);
    EXPECT_TRUE(cache->ReadRows(model.layout.embed, rows, a.data()).ok());
    EXPECT_TRUE(resident->ReadRows(model.layout.embed, rows, b.data()).ok());
    return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
  int64_t Requests() const { return control->SubmittedCount() - opened; }

  FakeModel model;
  std::shared_ptr<FakeQueueControl> control;
  std::unique_ptr<PieceCache> cache;
  std::unique_ptr<WeightSource> resident;
  int64_t opened = 0;
};

TEST(EmbeddingRows, GivesTheRowsOfTheTable) {
  for (const bool tied : {false, true}) {
    for (const bool affine : {false, true}) {
      Pair pair({.tied = tied, .affine_embedding = affine, .vocab = 300, .dim = 192});
      std::vector<int32_t> all(300);
      for (int32_t row = 0; row < 300; ++row) all[static_cast<size_t>(row)] = 299 - row;
      EXPECT_TRUE(pair.Same(all));
      EXPECT_TRUE(pair.Same({0, 299, 7, 7, 0}));
      EXPECT_TRUE(pair.Same({}));
      if (tied) {
        EXPECT_EQ(pair.Requests(), 0);
      }
    }
  }
}

TEST(EmbeddingRows, ReadsARowOnceAndKeepsIt) {
  Pair pair({.vocab = 300});
  EXPECT_TRUE(pair.Same({5, 9, 5, 5, 9}));
  EXPECT_EQ(pair.Requests(), 6) << "codes, scales and offsets of two rows";
  EXPECT_TRUE(pair.Same({9, 5}));
  EXPECT_EQ(pair.Requests(), 6);
}

TEST(EmbeddingRows, RowsOfAPromptAreInFlightTogether) {
  Pair pair({.affine_embedding = false, .vocab = 300});
  pair.control->Hold();
  std::vector<float> out(40 * 128);
  std::vector<int32_t> rows(40);
  for (int32_t i = 0; i < 40; ++i) rows[static_cast<size_t>(i)] = i;
  std::thread forward([&] { EXPECT_TRUE(pair.cache->ReadRows(pair.model.layout.embed, rows, out.data()).ok()); });
  pair.control->AwaitSubmitted(pair.opened + 40);
  pair.control->Release();
  forward.join();
}

// Far more rows than entries: 20 KB a row, so about a hundred entries.
TEST(EmbeddingRows, StaysRightWhenRowsAreReplaced) {
  Pair pair({.affine_embedding = false, .vocab = 400, .dim = 10240});
  pair.control->Shuffle(3);
  std::mt19937 random(5);
  for (int call = 0; call < 60; ++call) {
    std::vector<int32_t> rows(1 + random() % 150);
    for (int32_t& row : rows) row = static_cast<int32_t>(random() % (call % 2 == 0 ? 400 : 60));
    ASSERT_TRUE(pair.Same(rows)) << call;
  }
  EXPECT_LE(EmbeddingRows::MemoryBytes(pair.model.layout.pieces[0]), 4 << 20);
}

TEST(EmbeddingRows, EvictsTheLeastRecentlyUsedRow) {
  Pair pair({.affine_embedding = false, .vocab = 400, .dim = 10240});
  EXPECT_TRUE(pair.Same({0}));
  const int64_t one = pair.Requests();
  // Touched every time, row 0 outlives all others.
  for (int32_t row = 1; row < 400; ++row) EXPECT_TRUE(pair.Same({row, 0}));
  EXPECT_EQ(pair.Requests(), 400 * one);
  EXPECT_TRUE(pair.Same({1}));
  EXPECT_EQ(pair.Requests(), 401 * one);
}

TEST(EmbeddingRows, FailedReadNamesTheRowAndIsTriedAgain) {
  Pair pair({.vocab = 300});
  pair.control->SetFault([left = 1](const ReadRequest&) mutable { return left-- > 0 ? IoError("EIO") : Status(); });
  std::vector<float> out(2 * 128);
  const std::vector<int32_t> rows = {41, 42};
  const Status status = pair.cache->ReadRows(pair.model.layout.embed, rows, out.data());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "embedding row 41: EIO");
  EXPECT_TRUE(pair.Same(rows));
}

TEST(EmbeddingRows, CountsItsBytes) {
  Pair pair({.affine_embedding = false, .vocab = 300});
  const int64_t before = pair.cache->stats().other_bytes_read;
  EXPECT_TRUE(pair.Same({100}));
  int64_t bytes = 0;
  const std::vector<ReadRequest> submitted = pair.control->Submitted();
  for (size_t i = static_cast<size_t>(pair.opened); i < submitted.size(); ++i) bytes += submitted[i].bytes;
  EXPECT_EQ(pair.cache->stats().other_bytes_read - before, bytes);
}

}  // namespace
}  // namespace nunspark
