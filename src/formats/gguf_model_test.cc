#include "formats/gguf_model.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/checkpoint.h"
#include "formats/gguf_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tiny model's keys and ends.
GgufBuilder Llama() {
  GgufBuilder builder;
  builder.Text("general.architecture", "llama")
      .U32("llama.block_count", 1)
      .U32("llama.embedding_length", 64)
      .U32("llama.attention.head_count", 4)
      .Texts("tokenizer.ggml.tokens", {"a", "b", "<|im_end|>"})
      .U32("tokenizer.ggml.eos_token_id", 1)
      .Zeros("token_embd.weight", "Q8_0", {3, 64});
  return builder;
}

GgufBuilder Shard(int number, int count) {
  GgufBuilder builder;
  if (number == 0) builder = Llama();
  builder.Number<uint16_t>("split.no", static_cast<uint16_t>(number))
      .Number<uint16_t>("split.count", static_cast<uint16_t>(count))
      .Number<int32_t>("split.tensors.count", count + 1);
  builder.Floats("t" + std::to_string(number), {1}, {static_cast<float>(number)});
  return builder;
}

std::string ShardFile(int number, int count) {
  return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
}

TEST(GgufModel, PublishesRowMajorShapesAndBlocksAsBytes) {
  const TestFolder folder;
  GgufBuilder builder = Llama();
  builder.Zeros("norm", "F32", {64})
      .Zeros("half", "BF16", {5, 3})
      .Zeros("experts", "Q4_K", {4, 2, 512})
      .Zeros("flat", "Q8_0", {64})
      .Zeros("ids", "I32", {7});
  const std::string path = folder.Write("a.gguf", builder.Bytes());
  const Result<GgufModel> model = OpenGgufModel(path);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_THAT(model->paths, ElementsAre(path));
  const auto shape = [&](std::string_view name) { return model->tensors.Find(name)->shape; };
  EXPECT_THAT(shape("token_embd.weight@q8_0"), ElementsAre(3, 68));
  EXPECT_EQ(model->tensors.Find("token_embd.weight@q8_0")->dtype, DType::kU8);
  EXPECT_EQ(model->tensors.Find("token_embd.weight"), nullptr);
  EXPECT_THAT(shape("norm"), ElementsAre(64));
  EXPECT_EQ(model->tensors.Find("norm")->dtype, DType::kF32);
  EXPECT_THAT(shape("half"), ElementsAre(5, 3));
  EXPECT_EQ(model->tensors.Find("half")->dtype, DType::kBF16);
  EXPECT_THAT(shape("experts@q4_k"), ElementsAre(4, 2, 288));
  EXPECT_THAT(shape("flat@q8_0"), ElementsAre(68));
  EXPECT_EQ(model->tensors.Find("ids")->dtype, DType::kI32);
  for (const TensorInfo& tensor : model->tensors.tensors()) {
    EXPECT_EQ(TensorBytes(tensor.shape, tensor.dtype), tensor.bytes) << tensor.name;
  }
}

TEST(GgufModel, TypesThatCannotBeReadAreNamed) {
  const TestFolder folder;
  for (const char* const type : {"IQ2_XXS", "TQ1_0", "Q8_K", "Q8_1", "NVFP4", "IQ1_M"}) {
    GgufBuilder builder = Llama();
    builder.Zeros("blk.0.attn_q.weight", type, {2, 256});
    const Status status = OpenGgufModel(folder.Write("a.gguf", builder.Bytes())).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("a.gguf"), HasSubstr("blk.0.attn_q.weight"), HasSubstr(type),
                                        HasSubstr("expected one of F32, F16, BF16, Q4_0")));
  }
}

TEST(GgufModel, AFileWithoutTensorsIsNoModel) {
  const TestFolder folder;
  GgufBuilder builder;
  builder.Text("general.architecture", "llama");
  EXPECT_THAT(OpenGgufModel(folder.Write("a.gguf", builder.Bytes())).status().message(), HasSubstr("expected tensors"));
}

class SplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) folder_.Write(ShardFile(i + 1, 3), Shard(i, 3).Bytes());
  }
  Status Open(int shard = 1) { return OpenGgufModel(folder_.Path(ShardFile(shard, 3))).status(); }

  TestFolder folder_;
};

TEST_F(SplitTest, AnyShardOpensAll) {
  for (int shard = 1; shard <= 3; ++shard) {
    const Result<GgufModel> model = OpenGgufModel(folder_.Path(ShardFile(shard, 3)));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->paths.size(), 3U);
    EXPECT_EQ(model->paths[0], folder_.Path(ShardFile(1, 3)));
    EXPECT_EQ(model->first.Find("general.architecture")->Text(), "llama");
    EXPECT_EQ(model->tensors.tensors().size(), 4U);
    EXPECT_EQ(model->tensors.Find("t2")->file, 2);
  }
}

TEST_F(SplitTest, MissingShardsAreNamed) {
  std::filesystem::remove(folder_.Path(ShardFile(2, 3)));
  EXPECT_EQ(Open().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Open().message(),
              AllOf(HasSubstr("m-00002-of-00003.gguf is missing"), HasSubstr("expected 3 shards, found 2")));
  std::filesystem::remove(folder_.Path(ShardFile(1, 3)));
  EXPECT_THAT(Open(3).message(),
              AllOf(HasSubstr("m-00001-of-00003.gguf is missing"), HasSubstr("expected 3 shards, found 1")));
}

TEST_F(SplitTest, NumbersInTheFilesMustFitTheNames) {
  folder_.Write(ShardFile(2, 3), Shard(2, 3).Bytes());
  EXPECT_THAT(Open().message(),
              AllOf(HasSubstr("m-00002-of-00003.gguf: key \"split.no\": expected 1"), HasSubstr("found 2")));
  folder_.Write(ShardFile(2, 3), Shard(1, 4).Bytes());
  EXPECT_THAT(Open().message(), AllOf(HasSubstr("key \"split.count\": expected 3"), HasSubstr("found 4")));
  folder_.Write(ShardFile(2, 3), Llama().Bytes());
  EXPECT_THAT(Open().message(), AllOf(HasSubstr("key \"split.count\": expected 3"), HasSubstr("found 0")));
  GgufBuilder wrong;
  wrong.Text("split.count", "3").Zeros("t", "F32", {1});
  folder_.Write(ShardFile(2, 3), wrong.Bytes());
  EXPECT_THAT(Open().message(), HasSubstr("key \"split.count\": expected a whole number, found string"));
}

TEST_F(SplitTest, AShardUnderAnotherNameIsRefused) {
  const std::string path = folder_.Write("renamed.gguf", Shard(0, 3).Bytes());
  EXPECT_THAT(OpenGgufModel(path).status().message(), AllOf(HasSubstr("key \"split.count\": expected 1"),
                                                            HasSubstr("found 3"), HasSubstr("PREFIX-00001-of-0000N")));
}

TEST_F(SplitTest, TheNumberOfTensorsIsChecked) {
  GgufBuilder builder = Shard(2, 3);
  builder.Floats("more", {1}, {1});
  folder_.Write(ShardFile(3, 3), builder.Bytes());
  EXPECT_THAT(Open().message(), AllOf(HasSubstr("key \"split.tensors.count\": expected 5"), HasSubstr("found 4")));
}

TEST_F(SplitTest, ATensorInTwoShardsIsRefused) {
  const auto write = [&](std::string_view name, std::string_view type) {
    GgufBuilder builder;
    builder.Number<uint16_t>("split.no", 2).Number<uint16_t>("split.count", 3);
    builder.Zeros(name, type, {32});
    folder_.Write(ShardFile(3, 3), builder.Bytes());
  };
  write("t1", "F32");
  EXPECT_THAT(Open().message(), AllOf(HasSubstr("\"t1\""), HasSubstr(ShardFile(3, 3))));
  write("token_embd.weight", "Q4_0");  // in the first shard as Q8_0
  EXPECT_THAT(Open().message(),
              AllOf(HasSubstr("\"token_embd.weight\": the name occurs twice"), HasSubstr(ShardFile(3, 3))));
}

TEST_F(SplitTest, ASeriesOfOneIsAModel) {
  GgufBuilder builder = Llama();
  EXPECT_TRUE(OpenGgufModel(folder_.Write("one-00001-of-00001.gguf", builder.Bytes())).ok());
}

TEST(GgufFolder, HoldsOneModel) {
  const TestFolder folder;
  EXPECT_EQ(FindGgufModel(folder.path()).value(), "");
  folder.Write("mmproj-model.gguf", Llama().Bytes());
  EXPECT_EQ(FindGgufModel(folder.path()).value(), "");
  for (int i = 0; i < 3; ++i) folder.Write(ShardFile(i + 1, 3), Shard(i, 3).Bytes());
  EXPECT_EQ(FindGgufModel(folder.path()).value(), folder.Path(ShardFile(1, 3)));
  EXPECT_TRUE(OpenCheckpoint(folder.path()).ok());
  folder.Write("other.gguf", Llama().Bytes());
  const Status status = OpenCheckpoint(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("several GGUF models"), HasSubstr("m-00001-of-00003.gguf, other.gguf"),
                                      HasSubstr("give the file's path")));
  EXPECT_TRUE(OpenCheckpoint(folder.Path("other.gguf")).ok());
}

TEST(GgufFolder, AConfigBesideItMeansACheckpointInAnotherForm) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.gguf", Llama().Bytes());
  const Status status = OpenCheckpoint(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("it has model.gguf: give that file's path to open it"));
}

TEST(GgufCheckpoint, SaysWhatItIs) {
  const TestFolder folder;
  const std::string path = folder.Write("model.gguf", Llama().Bytes());
  for (const std::string& given : {path, folder.path()}) {
    const Result<Checkpoint> checkpoint = OpenCheckpoint(given);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_TRUE(checkpoint->is_gguf);
    EXPECT_FALSE(checkpoint->is_pack);
    EXPECT_EQ(checkpoint->gguf_path, path);
    EXPECT_EQ(checkpoint->folder, folder.path());
    EXPECT_THAT(checkpoint->eos_ids, ElementsAre(1, 2));
    EXPECT_EQ(checkpoint->config.Find("model_type")->as_string(), "llama");
    EXPECT_EQ(checkpoint->source_hash.size(), 32U);
    EXPECT_FALSE(checkpoint->quantization.present);
  }
  EXPECT_EQ(OpenCheckpoint(folder.Path("missing.gguf")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nunspark
