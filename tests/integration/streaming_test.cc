// Whole models over a drive that fails, is late or answers out of order.

#include <atomic>

#include "base/thread_pool.h"
#include "decode/generate.h"
#include "engine/model_files.h"
#include "integration/support.h"
#include "io/fault_queue_testing.h"
#include "io/read_queue.h"
#include "models/model.h"
#include "weights/memory_plan.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark::test {
namespace {

constexpr int64_t kContext = 64;
constexpr int kSteps = 4;
constexpr int64_t kFailingReads = 2000;

// A model streamed at the smallest budget, through a queue with faults. Experts are divided however small they are.
class Streamed {
 public:
  Streamed(const std::string& folder, FaultPlan faults, PieceCacheOptions options = {}) {
    files_ = ModelFilesImpl::OpenFolder(folder).value();
    index_ = PieceIndex::Build(files_->layout(), files_->checkpoint().tensors, 16 << 10, 1);
    const MemoryPlan ample = MakeMemoryPlan(files_->layout(), index_, {.budget_bytes = 1 << 30}, {}).value();
    plan_ = MakeMemoryPlan(files_->layout(), index_, {.budget_bytes = ample.floor_bytes}, {}).value();
    auto queue = std::make_unique<FaultQueue>(OpenReadQueue(index_.paths(), {.direct = false}).value(), index_.paths(),
                                              std::move(faults));
    queue_ = queue.get();
    Result<std::unique_ptr<PieceCache>> cache =
        PieceCache::Create(files_->layout(), index_, plan_, std::move(queue), options);
    if (!cache.ok()) {
      status_ = cache.status();
      return;
    }
    cache_ = std::move(cache).value();
    pool_ = ThreadPool::Create(2).value();
    model_ = Model::Create(files_->layout(), *pool_, static_cast<int32_t>(kContext), kDefaultNumerics).value();
    kv_ = KvPool::Create(Model::KvShapes(files_->layout().hparams), kContext).value();
  }

  // Of opening.
  const Status& status() const { return status_; }

  // The last logits of a prompt in two chunks and those of each token after it.
  Result<std::vector<float>> Run() {
    KvSequence sequence(*kv_);
    const std::atomic<bool> cancelled{false};
    Target target{.model = *model_,
                  .weights = *cache_,
                  .kv = sequence,
                  .prefill_chunk = 12,
                  .cancelled = cancelled,
                  .batch = {},
                  .tokens = {}};
    std::vector<float> all;
    const auto vocab = static_cast<size_t>(files_->vocab_size());
    const auto keep = [&](const float* logits) {
      all.insert(all.end(), logits, logits + vocab);
      return Status();
    };
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < 20; ++i) prompt.push_back(static_cast<int32_t>((i * 7919 + 13) % files_->vocab_size()));
    RETURN_IF_ERROR(RunPrompt(target, prompt, PromptLogits::kLast,
                              [&](int64_t, int64_t, const float* logits) { return keep(logits); }));
    for (int step = 0; step < kSteps; ++step) {
      const auto last = all.end() - static_cast<ptrdiff_t>(vocab);
      RETURN_IF_ERROR(RunToken(target, static_cast<int32_t>(std::max_element(last, all.end()) - last), keep));
    }
    return all;
  }

  const FaultQueue& queue() const { return *queue_; }
  CacheStats stats() const { return cache_->stats(); }
  int64_t experts() const { return files_->layout().hparams.experts; }

 private:
  std::unique_ptr<ModelFilesImpl> files_;
  PieceIndex index_;
  MemoryPlan plan_;
  FaultQueue* queue_ = nullptr;
  Status status_;
  std::unique_ptr<PieceCache> cache_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvPool> kv_;
};

class Streaming : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return DataPath("goldens/" + GetParam()); }
};

TEST_P(Streaming, ARequestSurvivesOrFailsClearlyWhicheverReadFails) {
  Streamed clean(folder(), {});
  const std::vector<float> want = clean.Run().value();
  const int64_t reads = clean.queue().submitted();
  const int64_t slots_filled = clean.stats().resident_bytes;
  ASSERT_GT(reads, 40);
  int64_t errors = 0;
  // Every one of a few hundred; of more, as many.
  const int64_t stride = std::max<int64_t>(1, reads / 400);
  for (int64_t read = 0; read < reads; read += stride) {
    Streamed failing(folder(), {.faults = {{.kind = Fault::Kind::kError, .request = read}}});
    if (!failing.status().ok()) {
      EXPECT_NE(failing.status().message().find("(EIO)"), std::string::npos) << failing.status().message();
      continue;
    }
    // How many reads a run makes depends a little on what was read ahead: the fault may come with the second one.
    Result<std::vector<float>> first = failing.Run();
    if (failing.queue().injected() == 0) first = failing.Run();
    if (first.ok()) {
      // A prefetch failed in silence.
      EXPECT_TRUE(SameBits(*first, want)) << "read " << read;
    } else {
      ++errors;
      const std::string& message = first.status().message();
      EXPECT_EQ(first.status().code(), StatusCode::kIo);
      for (const char* part : {"failed: Input/output error (EIO)", "safetensors", "bytes at"}) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
      }
      const bool names_piece = message.starts_with("layer ") || message.starts_with("embedding");
      EXPECT_TRUE(names_piece) << message;
    }
    const Result<std::vector<float>> again = failing.Run();
    ASSERT_TRUE(again.ok()) << "read " << read << ": " << again.status().message();
    EXPECT_TRUE(SameBits(*again, want)) << "read " << read;
    EXPECT_GE(failing.stats().resident_bytes, slots_filled) << "a slot was lost with read " << read;
  }
  EXPECT_GT(errors, 0);
}

// One engine for all of them: a failure leaves it as good as it was.
TEST(StreamingFaults, EachOfTwoThousandReadsMayFail) {
  const std::string folder = DataPath("goldens/qwen3_moe");
  Streamed clean(folder, {});
  const std::vector<float> want = clean.Run().value();
  // A run that meets a failure ends there; how far the next one gets is different each time.
  FaultPlan plan;
  int64_t next = clean.queue().submitted();
  for (int64_t i = 0; i < kFailingReads; ++i) {
    next += 1 + i * 7919 % 97;
    plan.faults.push_back({.kind = Fault::Kind::kError, .request = next});
  }
  Streamed failing(folder, plan);
  ASSERT_TRUE(failing.status().ok()) << failing.status().message();
  int64_t errors = 0;
  while (failing.queue().injected() < kFailingReads) {
    const Result<std::vector<float>> result = failing.Run();
    if (result.ok()) {
      EXPECT_TRUE(SameBits(*result, want));
      continue;
    }
    ++errors;
    ASSERT_EQ(result.status().code(), StatusCode::kIo);
    ASSERT_NE(result.status().message().find("(EIO)"), std::string::npos) << result.status().message();
  }
  EXPECT_GT(errors, kFailingReads / 20);
  EXPECT_TRUE(SameBits(failing.Run().value(), want)) << "after " << errors << " runs that failed";
  EXPECT_GE(failing.stats().resident_bytes, clean.stats().resident_bytes) << "a slot was lost";
}

TEST_P(Streaming, LateAndReorderedReadsLeaveNoTrace) {
  const std::vector<float> want = Streamed(folder(), {}).Run().value();
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Streamed late(folder(), {.faults = {}, .seed = seed, .delays_per_mille = 300});
    EXPECT_TRUE(SameBits(late.Run().value(), want)) << seed;
  }
}

// Checklist items 33 and 35.
TEST_P(Streaming, PredictionsRightAndWrongLeaveNoTrace) {
  const std::vector<float> want = Streamed(folder(), {}, {.prefetch = false}).Run().value();
  for (const double recall : {1.0, 0.75, 0.0}) {
    for (const Governed mode : {Governed::kOn, Governed::kAuto, Governed::kOff}) {
      Streamed predicted(folder(), {.faults = {}, .seed = 3, .delays_per_mille = 100},
                         {.lookahead = mode, .lookahead_top = 3, .prediction_recall = recall, .expert_prefetch = mode});
      EXPECT_TRUE(SameBits(predicted.Run().value(), want)) << recall;
      const bool can = mode == Governed::kOn && predicted.experts() > 0;
      if (mode == Governed::kOff) {
        EXPECT_EQ(predicted.stats().expert_prefetch.issued, 0);
      }
      if (can) {
        EXPECT_GT(predicted.stats().expert_prefetch.issued, 0);
      }
      if (can && recall == 1) {
        EXPECT_GT(predicted.stats().expert_prefetch.used, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Streaming, testing::Values("qwen3_moe", "gpt_oss", "gemma4_text_moe", "llama"),
                         CaseName);

}  // namespace
}  // namespace nunspark::test
