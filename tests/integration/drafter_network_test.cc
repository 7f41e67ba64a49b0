// Drafters that work on the target's hidden state, against recorded steps (tests/data/drafts and the full set).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "formats/safetensors_testing.h"
#include "integration/draft_case.h"
#include "integration/support.h"

namespace nunspark {
namespace {

using test::DataPath;
using test::DraftCase;
using test::kCompactDraftCases;
using test::kOtherDraftCases;
using test::LoadWeights;
using test::ReadF32;
using test::ReadI32;
using test::SharedPath;
using test::TempFolder;
using test::Weights;

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

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

TEST(DraftNetwork, StepsAsTheReferenceDoes) {
  for (const char* name : kCompactDraftCases) CheckSteps(DataPath(std::string("drafts/") + name));
}

TEST(DraftNetwork, StepsAsTheReferenceDoesOnTheFullSet) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  for (const char* name : kCompactDraftCases) CheckSteps(SharedPath(std::string("goldens/draft/") + name));
  for (const char* name : kOtherDraftCases) CheckSteps(SharedPath(std::string("goldens/draft/") + name));
}

// Bytes, not a tolerance: what a step gives must not depend on which sequences share it, or on threads.
TEST(DraftNetwork, RowsOfAStepEqualThoseRunAlone) {
  constexpr int32_t kRows = 11;
  for (const char* name : kCompactDraftCases) {
    SCOPED_TRACE(name);
    DraftCase together(DataPath(std::string("drafts/") + name), kRows, 3);
    DraftCase alone(DataPath(std::string("drafts/") + name), 1, 1);
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

// Codes of a pack lie in another order than those of a checkpoint.
TEST(DraftNetwork, AQuantisedAssistantGivesTheSameFromEitherLayout) {
  const TempFolder temp;
  const std::string folder = DataPath("drafts/gemma4_assistant");
  std::vector<std::vector<float>> logits;
  for (const std::string layout : {"rows", "lanes"}) {
    const std::string pack = temp.path() + "/" + layout;
    ASSERT_EQ(test::RunShell(std::string(NUNSPARK_BINARY) + " pack " + folder + "/assistant " + pack +
                                 " --quantize affine:8:32 --layout " + layout,
                             nullptr),
              0);
    DraftCase the_case(folder, 1, 2, pack);
    std::vector<float> hidden = the_case.TargetHidden();
    const DraftRow row{.token = the_case.first_token(), .position = the_case.position(), .kv = the_case.kv()};
    ASSERT_TRUE(the_case.network()
                    .Step({&row, 1}, hidden.data(),
                          [&](int32_t, const float* found) {
                            logits.emplace_back(found, found + the_case.network().vocab_size());
                          })
                    .ok());
  }
  EXPECT_EQ(logits[0], logits[1]);
  // Eight bits choose as sixteen do, here.
  const std::vector<int32_t> tokens = ReadI32(folder + "/golden.safetensors", "window.tokens");
  EXPECT_EQ(std::max_element(logits[0].begin(), logits[0].end()) - logits[0].begin(), tokens.front());
}

// ---- files

class DrafterFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    target_ = ModelFilesImpl::OpenFolder(DataPath("drafts/eagle/target")).value();
    fs::copy(DataPath("drafts/eagle/eagle"), folder());
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
  const std::string assistant = DataPath("drafts/gemma4_assistant/assistant");
  // As wide, with as many tokens, and without sliding layers.
  const Result<DrafterFiles> refused = OpenAssistant(assistant, target_->layout().hparams);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("sliding"));
  const Result<DrafterFiles> plain = OpenAssistant(DataPath("drafts/eagle/target"), target_->layout().hparams);
  ASSERT_FALSE(plain.ok());
  EXPECT_THAT(plain.status().message(), AllOf(HasSubstr("drafts for others"), HasSubstr("llama")));

  const auto own = ModelFilesImpl::OpenFolder(DataPath("drafts/gemma4_assistant/target")).value();
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
  fs::copy(DataPath("drafts/gemma4_assistant/assistant"), copy);
  const auto target = ModelFilesImpl::OpenFolder(DataPath("drafts/gemma4_assistant/target")).value();
  const DrafterFiles files = OpenAssistant(copy, target->layout().hparams).value();
  const TensorInfo order = *files.checkpoint.tensors.Find("masked_embedding.token_ordering");
  std::fstream file(copy + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  const int64_t bad = 320;
  file.seekp(order.offset + 8 * 17);
  file.write(reinterpret_cast<const char*>(&bad), 8);
  file.close();
  const Weights weights = LoadWeights(files.layout, files.checkpoint);
  const Weights target_weights = LoadWeights(target->layout(), target->checkpoint());
  const auto pool = ThreadPool::Create(1).value();
  const auto network = DraftNetwork::Create(files.layout, *weights.source, target->layout(), *target_weights.source,
                                            *pool, 1, Numerics::kF32);
  ASSERT_FALSE(network.ok());
  EXPECT_THAT(network.status().message(), AllOf(HasSubstr("token_ordering"), HasSubstr("0 to 319"), HasSubstr("320")));
}

}  // namespace
}  // namespace nunspark
