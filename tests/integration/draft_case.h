// A recorded case of tests/data/drafts: a target, its drafter, and the drafter's network over both.
#ifndef NUNSPARK_TESTS_INTEGRATION_DRAFT_CASE_H_
#define NUNSPARK_TESTS_INTEGRATION_DRAFT_CASE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "decode/draft_network.h"
#include "engine/drafter_files.h"
#include "engine/model_files.h"
#include "integration/support.h"
#include "io/read_queue.h"
#include "kv/kv_cache.h"
#include "models/model.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark::test {

constexpr const char* kCompactDraftCases[] = {"eagle", "gemma4_assistant", "gemma4_assistant_shared_kv"};
constexpr const char* kOtherDraftCases[] = {"eagle_1layer", "gemma4_assistant_dense"};

// All weights of a model in memory.
struct Weights {
  std::unique_ptr<PieceIndex> index;  // stays where it is: the source refers to it
  std::unique_ptr<WeightSource> source;
};

inline Weights LoadWeights(const ModelLayout& layout, const Checkpoint& checkpoint) {
  Weights weights{.index = std::make_unique<PieceIndex>(PieceIndex::Build(layout, checkpoint.tensors)),
                  .source = nullptr};
  weights.source =
      CreateResidentSource(layout, *weights.index, OpenReadQueue(weights.index->paths(), {}).value()).value();
  return weights;
}

// A recorded case: target, drafter, and the network over both.
class DraftCase {
 public:
  // `assistant`: another one than the case's own; "" = that.
  DraftCase(const std::string& folder, int32_t max_rows, int threads = 2, const std::string& assistant = "")
      : folder_(folder) {
    target_ = ModelFilesImpl::OpenFolder(folder + "/target").value();
    const HParams& target = target_->layout().hparams;
    drafter_ = eagle() ? OpenEagleFolder(folder + "/eagle", target).value()
                       : OpenAssistant(assistant.empty() ? folder + "/assistant" : assistant, target).value();
    target_weights_ = LoadWeights(target_->layout(), target_->checkpoint());
    weights_ = LoadWeights(drafter_.layout, drafter_.checkpoint);
    pool_ = ThreadPool::Create(threads).value();
    network_ = DraftNetwork::Create(drafter_.layout, *weights_.source, target_->layout(), *target_weights_.source,
                                    *pool_, max_rows, Numerics::kI16)
                   .value();
    if (!eagle()) FillKv();
  }

  bool eagle() const { return std::filesystem::exists(folder_ + "/eagle"); }
  const ModelFilesImpl& target() const { return *target_; }
  WeightSource& target_weights() { return *target_weights_.source; }
  ThreadPool& pool() { return *pool_; }
  DraftNetwork& network() { return *network_; }
  KvSequence* kv() { return kv_.get(); }
  std::string golden() const { return folder_ + "/golden.safetensors"; }
  // Of the recorded steps: tokens, logits, hidden.
  std::string Steps(const std::string& what) const { return (eagle() ? "draft." : "window.") + what; }
  int32_t first_token() const { return ReadI32(golden(), "first_token").front(); }
  int32_t position() const { return static_cast<int32_t>(ReadI32(golden(), "prompt").size()); }

  // After the final norm at the last position of the prompt.
  std::vector<float> TargetHidden() const {
    const std::vector<float> all = ReadF32(golden(), "target_hidden");
    return {all.end() - network_->hidden_dim(), all.end()};
  }

 private:
  // The target's keys and values of the prompt, as recorded, in the layers that an assistant looks at.
  void FillKv() {
    const HParams& target = target_->layout().hparams;
    const std::vector<KvLayerShape> shapes = Model::KvShapes(target, {.type = FloatType::kF32});
    kv_pool_ = KvPool::Create(shapes, position()).value();
    kv_ = std::make_unique<KvSequence>(*kv_pool_);
    ASSERT_TRUE(kv_->Reserve(position()).ok());
    int kv_layer = 0;
    for (int32_t i = 0; i < target.layers; ++i) {
      const LayerShape& layer = target.layer[static_cast<size_t>(i)];
      if (layer.kv_layer != i) continue;
      const std::string type = layer.window > 0 ? "kv.sliding_attention." : "kv.full_attention.";
      const std::vector<float> keys = Heads(ReadF32(golden(), type + "k"), layer);
      const std::vector<float> values = Heads(ReadF32(golden(), type + "v"), layer);
      const int64_t width = layer.kv_heads * layer.head_dim;
      for (int64_t p = 0; p < position(); ++p) {
        kv_->Store(kv_layer, p, keys.data() + p * width, values.data() + p * width);
      }
      ++kv_layer;
    }
    kv_->Commit(position());
  }

  // [kv_heads, positions, dim] -> [positions, kv_heads, dim]
  std::vector<float> Heads(const std::vector<float>& recorded, const LayerShape& layer) const {
    std::vector<float> turned(recorded.size());
    const int64_t dim = layer.head_dim;
    for (int64_t head = 0; head < layer.kv_heads; ++head) {
      for (int64_t p = 0; p < position(); ++p) {
        std::copy_n(recorded.begin() + (head * position() + p) * dim, dim,
                    turned.begin() + (p * layer.kv_heads + head) * dim);
      }
    }
    return turned;
  }

  const std::string folder_;
  std::unique_ptr<ModelFilesImpl> target_;
  DrafterFiles drafter_;
  Weights target_weights_, weights_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<KvSequence> kv_;
  std::unique_ptr<DraftNetwork> network_;
};

}  // namespace nunspark::test

#endif  // NUNSPARK_TESTS_INTEGRATION_DRAFT_CASE_H_
