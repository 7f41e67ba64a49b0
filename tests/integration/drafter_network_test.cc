// Drafters that work on the target's hidden state, against recorded steps (tests/data/draft and the full set).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/thread_pool.h"
#include "decode/draft_network.h"
#include "engine/drafter_files.h"
#include "engine/model_files.h"
#include "formats/safetensors.h"
#include "integration/support.h"
#include "io/read_queue.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark {
namespace {

using test::DataPath;
using test::ReadF32;
using test::ReadI32;
using test::SharedPath;
using test::TempFolder;

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

// All weights of a model in memory.
struct Weights {
  std::unique_ptr<PieceIndex> index;  // stays where it is: the source refers to it
  std::unique_ptr<WeightSource> source;
};

Weights Load(const ModelLayout& layout, const Checkpoint& checkpoint) {
  Weights weights{.index = std::make_unique<PieceIndex>(PieceIndex::Build(layout, checkpoint.tensors)),
                  .source = nullptr};
  weights.source =
      CreateResidentSource(layout, *weights.index, OpenReadQueue(weights.index->paths(), {}).value()).value();
  return weights;
}

// A recorded case: target, drafter, and the network over both.
class DraftCase {
 public:
  DraftCase(const std::string& folder, int32_t max_rows, int threads = 2) : folder_(folder) {
    target_ = ModelFilesImpl::OpenFolder(folder + "/target").value();
    const HParams& target = target_->layout().hparams;
    drafter_ = eagle() ? OpenEagleFolder(folder + "/eagle", target).value()
                       : OpenAssistant(folder + "/assistant", target).value();
    target_weights_ = Load(target_->layout(), target_->checkpoint());
    weights_ = Load(drafter_.layout, drafter_.checkpoint);
    pool_ = ThreadPool::Create(threads).value();
    network_ = DraftNetwork::Create(drafter_.layout, *weights_.source, target_->layout(), *target_weights_.source,
                                    *pool_, max_rows, Numerics::kF32)
                   .value();
    if (!eagle()) FillKv();
  }

  bool eagle() const { return fs::exists(folder_ + "/eagle"); }
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
    const std::vector<KvLayerShape> shapes = Model::KvShapes(target);
    kv_pool_ = KvPool::Create(shapes, FloatType::kF32, position()).value();
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

double LargestDistance(const float* a, const float* b, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = std::abs(double{a[i]} - double{b[i]});
    if (!(distance <= largest)) largest = distance;
  }
  return largest;
}

void CheckSteps(const std::string& folder) {
  SCOPED_TRACE(folder);
  DraftCase the_case(folder, 1);
  DraftNetwork& network = the_case.network();
  const std::vector<int32_t> tokens = ReadI32(the_case.golden(), the_case.Steps("tokens"));
  const std::vector<float> logits = ReadF32(the_case.golden(), the_case.Steps("logits"));
  const std::vector<float> states = ReadF32(the_case.golden(), the_case.Steps("hidden"));
  std::vector<float> hidden = the_case.TargetHidden();
  int32_t token = the_case.first_token();
  ASSERT_EQ(logits.size(), tokens.size() * static_cast<size_t>(network.vocab_size()));
  for (size_t step = 0; step < tokens.size(); ++step) {
    SCOPED_TRACE(step);
    const DraftRow row{.token = token, .position = the_case.position(), .kv = the_case.kv()};
    const Status status = network.Step({&row, 1}, hidden.data(), [&](int32_t index, const float* found) {
      EXPECT_EQ(index, 0);
      const int64_t vocab = network.vocab_size();
      EXPECT_LE(LargestDistance(found, logits.data() + static_cast<int64_t>(step) * vocab, vocab), kTolerance);
      token = static_cast<int32_t>(Kernels().argmax(found, vocab));
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(token, tokens[step]);
    const int64_t dim = network.hidden_dim();
    EXPECT_LE(LargestDistance(hidden.data(), states.data() + static_cast<int64_t>(step) * dim, dim), kTolerance);
  }
}

constexpr const char* kCompactCases[] = {"eagle", "gemma4_assistant", "gemma4_assistant_shared_kv"};
constexpr const char* kOtherCases[] = {"eagle_1layer", "gemma4_assistant_dense"};

TEST(DraftNetwork, StepsAsTheReferenceDoes) {
  for (const char* name : kCompactCases) CheckSteps(DataPath(std::string("draft/") + name));
}

TEST(DraftNetwork, StepsAsTheReferenceDoesOnTheFullSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const char* name : kCompactCases) CheckSteps(SharedPath(std::string("goldens/draft/") + name));
  for (const char* name : kOtherCases) CheckSteps(SharedPath(std::string("goldens/draft/") + name));
}

// Bytes, not a tolerance: what a step gives must not depend on which sequences share it, or on threads.
TEST(DraftNetwork, RowsOfAStepEqualThoseRunAlone) {
  constexpr int32_t kRows = 11;
  for (const char* name : kCompactCases) {
    SCOPED_TRACE(name);
    DraftCase together(DataPath(std::string("draft/") + name), kRows, 3);
    DraftCase alone(DataPath(std::string("draft/") + name), 1, 1);
    const size_t dim = static_cast<size_t>(together.network().hidden_dim());
    const size_t vocab = static_cast<size_t>(together.network().vocab_size());
    const std::vector<float> all = ReadF32(together.golden(), "target_hidden");
    std::vector<float> hidden(all.begin(), all.begin() + static_cast<ptrdiff_t>(kRows * dim));
    std::vector<DraftRow> rows;
    for (int32_t r = 0; r < kRows; ++r) rows.push_back({.token = r * 7, .position = 30 + r % 10, .kv = together.kv()});
    const std::vector<float> before = hidden;
    std::vector<std::vector<float>> logits(kRows);
    ASSERT_TRUE(together.network()
                    .Step(rows, hidden.data(),
                          [&](int32_t index, const float* found) {
                            logits[static_cast<size_t>(index)].assign(found, found + vocab);
                          })
                    .ok());
    for (size_t r = 0; r < kRows; ++r) {
      std::vector<float> state(before.begin() + static_cast<ptrdiff_t>(r * dim),
                               before.begin() + static_cast<ptrdiff_t>((r + 1) * dim));
      DraftRow row = rows[r];
      row.kv = alone.kv();
      ASSERT_TRUE(alone.network()
                      .Step({&row, 1}, state.data(),
                            [&](int32_t, const float* found) {
                              EXPECT_EQ(std::vector<float>(found, found + vocab), logits[r]);
                            })
                      .ok());
      EXPECT_TRUE(std::equal(state.begin(), state.end(), hidden.begin() + static_cast<ptrdiff_t>(r * dim)));
    }
  }
}

// ---- files

class DrafterFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    target_ = ModelFilesImpl::OpenFolder(DataPath("draft/eagle/target")).value();
    fs::copy(DataPath("draft/eagle/eagle"), folder());
  }

  std::string folder() const { return temp_.path() + "/drafter"; }
  void WriteConfig(const std::string& text) { std::ofstream(folder() + "/config.json") << text; }
  Result<DrafterFiles> Open() const { return OpenEagleFolder(folder(), target_->layout().hparams); }
  std::string Refusal(StatusCode code) const {
    const Result<DrafterFiles> files = Open();
    EXPECT_FALSE(files.ok());
    if (files.ok()) return "";
    EXPECT_EQ(files.status().code(), code) << files.status().message();
    return files.status().message();
  }

  const TempFolder temp_;
  std::unique_ptr<ModelFilesImpl> target_;
};

using testing::AllOf;
using testing::HasSubstr;

TEST_F(DrafterFilesTest, AnEagleFolderOpensWithAndWithoutConfigJson) {
  const HParams with = Open().value().layout.hparams;
  fs::remove(folder() + "/config.json");
  // The target's feed-forward network is wider than this head's.
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), AllOf(HasSubstr("mlp.gate_proj"), HasSubstr("[128, 64]")));
  WriteConfig(
      "{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
      "\"head_dim\": 16}");
  EXPECT_EQ(Open().value().layout.hparams.layer, with.layer);  // two layers, 320 tokens are the defaults
}

TEST_F(DrafterFilesTest, QueriesAndKeysOfAnEagleHeadAreCheckedAndNotLoaded) {
  const DrafterFiles files = Open().value();
  for (const PieceLayout& piece : files.layout.pieces) {
    for (const TensorSlice& part : piece.parts) {
      EXPECT_THAT(part.name, testing::Not(testing::AnyOf(HasSubstr("q_proj"), HasSubstr("k_proj"))));
    }
  }
  EXPECT_TRUE(files.layout.ignored.empty());
  WriteConfig(
      "{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_attention_heads\": 2, \"num_key_value_heads\": 2,"
      "\"head_dim\": 16}");
  EXPECT_THAT(Refusal(StatusCode::kDataLoss),
              AllOf(HasSubstr("self_attn.q_proj.weight"), HasSubstr("[32, 64]"), HasSubstr("[64, 64]")));
}

TEST_F(DrafterFilesTest, OfTensorsThatTwoFilesHaveTheLaterNameCounts) {
  const std::vector<float> zeros(64, 0.0f);
  const std::string_view data(reinterpret_cast<const char*>(zeros.data()), zeros.size() * 4);
  for (const char* name : {"a.safetensors", "z.safetensors"}) {
    ASSERT_TRUE(WriteSafetensorsFile(folder() + "/" + name,
                                     {{.name = "norm.weight", .dtype = DType::kF32, .shape = {64}, .data = data}})
                    .ok());
    const DrafterFiles files = Open().value();
    const PieceLayout& ends = files.layout.pieces[static_cast<size_t>(files.layout.norm_head)];
    const WeightUse* const norm = FindWeight(ends, Role::kFinalNorm);
    const int32_t file = ends.parts[static_cast<size_t>(norm->data)].file;
    EXPECT_THAT(files.checkpoint.tensors.files()[static_cast<size_t>(file)].path,
                HasSubstr(name[0] == 'a' ? "model.safetensors" : "z.safetensors"));
  }
}

TEST_F(DrafterFilesTest, RefusesWhatIsNoEagleHeadForThisTargetAndSaysWhy) {
  EXPECT_THAT(OpenEagleFolder(folder() + "/model.safetensors", target_->layout().hparams).status().message(),
              HasSubstr("is no folder"));
  EXPECT_THAT(OpenEagleFolder(folder() + "/nowhere", target_->layout().hparams).status().message(),
              HasSubstr("is no folder"));
  WriteConfig("{\"hidden_size\": 64, \"model_type\": \"llama\"}");
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), AllOf(HasSubstr("\"model_type\""), HasSubstr("rope_theta")));
  WriteConfig("[]");
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), HasSubstr("expected an object"));
  WriteConfig("{\"hidden_size\": 128}");
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument), AllOf(HasSubstr("hidden_size: expected 64"), HasSubstr("128")));
  WriteConfig("{\"hidden_size\": 64, \"vocab_size\": 319}");
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument), AllOf(HasSubstr("vocab_size: expected 320"), HasSubstr("319")));
  fs::resize_file(folder() + "/model.safetensors", fs::file_size(folder() + "/model.safetensors") - 2);
  EXPECT_THAT(Refusal(StatusCode::kDataLoss), HasSubstr("model.safetensors"));
  fs::remove(folder() + "/model.safetensors");
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr("no weights"));
}

TEST_F(DrafterFilesTest, RefusesAnAssistantOfAnotherTarget) {
  const std::string assistant = DataPath("draft/gemma4_assistant/assistant");
  // As wide, with as many tokens, and without sliding layers.
  const Result<DrafterFiles> refused = OpenAssistant(assistant, target_->layout().hparams);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("sliding"));
  const Result<DrafterFiles> plain = OpenAssistant(DataPath("draft/eagle/target"), target_->layout().hparams);
  ASSERT_FALSE(plain.ok());
  EXPECT_THAT(plain.status().message(), AllOf(HasSubstr("drafts for others"), HasSubstr("llama")));

  const auto own = ModelFilesImpl::OpenFolder(DataPath("draft/gemma4_assistant/target")).value();
  for (auto& [change, word] : std::vector<std::pair<std::function<void(HParams&)>, std::string>>{
           {[](HParams& h) { h.model_dim = 128; }, "backbone_hidden_size: expected 128"},
           {[](HParams& h) { h.vocab_size = 400; }, "vocab_size: expected 400"},
           {[](HParams& h) { h.layer[4].window = 16; }, "sliding_window: expected 16"},
           {[](HParams& h) { h.layer[5].head_dim = 64; }, "head_dim: expected 64"},
           {[](HParams& h) { h.layer[5].kv_heads = 3; }, "multiple of 3"},
           {[](HParams& h) { h.kv_rank = 8; }, "latent"}}) {
    HParams target = own->layout().hparams;
    change(target);
    const Result<DrafterFiles> files = OpenAssistant(assistant, target);
    ASSERT_FALSE(files.ok()) << word;
    EXPECT_EQ(files.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(files.status().message(), HasSubstr(word));
  }
  EXPECT_TRUE(OpenAssistant(assistant, own->layout().hparams).ok());
}

TEST_F(DrafterFilesTest, RefusesAnOrderOfTokensThatIsNone) {
  const std::string copy = temp_.path() + "/assistant";
  fs::copy(DataPath("draft/gemma4_assistant/assistant"), copy);
  const auto target = ModelFilesImpl::OpenFolder(DataPath("draft/gemma4_assistant/target")).value();
  const DrafterFiles files = OpenAssistant(copy, target->layout().hparams).value();
  const TensorInfo order = *files.checkpoint.tensors.Find("masked_embedding.token_ordering");
  std::fstream file(copy + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  const int64_t bad = 320;
  file.seekp(order.offset + 8 * 17);
  file.write(reinterpret_cast<const char*>(&bad), 8);
  file.close();
  const Weights weights = Load(files.layout, files.checkpoint);
  const Weights target_weights = Load(target->layout(), target->checkpoint());
  const auto pool = ThreadPool::Create(1).value();
  const auto network = DraftNetwork::Create(files.layout, *weights.source, target->layout(), *target_weights.source,
                                            *pool, 1, Numerics::kF32);
  ASSERT_FALSE(network.ok());
  EXPECT_THAT(network.status().message(), AllOf(HasSubstr("token_ordering"), HasSubstr("0 to 319"), HasSubstr("320")));
}

}  // namespace
}  // namespace nunspark
