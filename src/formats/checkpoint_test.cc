#include "formats/checkpoint.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/manifest.h"
#include "formats/safetensors_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of small F32 tensors with the given names.
std::string Shard(const TestFolder& folder, std::string_view file, const std::vector<std::string>& names) {
  std::vector<TensorToWrite> tensors;
  for (const std::string& name : names) {
    tensors.push_back(
        {.name = name, .dtype = DType::kF32, .shape = {2}, .data = std::string_view("\0\0\0\0\0\0\0\0", 8)});
  }
  EXPECT_TRUE(WriteSafetensorsFile(folder.Path(file), tensors).ok());
  return folder.Path(file);
}

Status Open(const TestFolder& folder) { return OpenCheckpoint(folder.path()).status(); }

TEST(Checkpoint, OpensASingleFile) {
  const TestFolder folder;
  folder.Write("config.json",
               R"({"model_type":"llama","eos_token_id":2,"rope_parameters":{"rope_theta":10,"rope_type":"default"},
                                  "quantization":{"bits":8,"group_size":32}})");
  folder.Write("generation_config.json", R"({"eos_token_id":[5,6]})");
  Shard(folder, "model.safetensors", {"a", "b"});
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder.path() + "/");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors.tensors().size(), 2U);
  EXPECT_THAT(checkpoint->eos_ids, ElementsAre(5, 6));
  EXPECT_EQ(checkpoint->config.Find("rope_theta")->as_int(), 10);
  EXPECT_EQ(checkpoint->quantization.base.bits, 8);
  EXPECT_FALSE(checkpoint->is_pack);
  EXPECT_EQ(checkpoint->source_hash.size(), 32U);
}

TEST(Checkpoint, OpensShardsWithAndWithoutAnIndex) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  Shard(folder, "model-00001-of-00002.safetensors", {"a"});
  Shard(folder, "model-00002-of-00002.safetensors", {"b", "c"});
  folder.Write("consolidated.safetensors", "something else");
  const Result<Checkpoint> without = OpenCheckpoint(folder.path());
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_EQ(without->tensors.tensors().size(), 3U);
  folder.Write("model.safetensors.index.json", R"({"metadata":{"total_size":24},"weight_map":{
      "a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  const Result<Checkpoint> with = OpenCheckpoint(folder.path());
  ASSERT_TRUE(with.ok()) << with.status().message();
  EXPECT_EQ(with->tensors.files().size(), 2U);
  EXPECT_EQ(with->source_hash, without->source_hash);
}

TEST(Checkpoint, IdentityFollowsNamesSizesAndHeadersButNotTheFolder) {
  const auto hash = [](std::string_view file, const std::vector<std::string>& names) {
    const TestFolder folder;
    folder.Write("config.json", "{}");
    Shard(folder, file, names);
    return OpenCheckpoint(folder.path())->source_hash;
  };
  EXPECT_EQ(hash("model.safetensors", {"a"}), hash("model.safetensors", {"a"}));
  EXPECT_NE(hash("model.safetensors", {"a"}), hash("model.safetensors", {"b"}));
  EXPECT_NE(hash("model.safetensors", {"a"}), hash("model2.safetensors", {"a"}));
}

TEST(Checkpoint, FollowsSymbolicLinks) {
  const TestFolder blobs;
  const TestFolder folder;
  std::filesystem::create_symlink(blobs.Write("0123", "{}"), folder.Path("config.json"));
  std::filesystem::create_symlink(Shard(blobs, "4567", {"a"}), folder.Path("model.safetensors"));
  EXPECT_TRUE(Open(folder).ok()) << Open(folder).message();
}

TEST(Checkpoint, SaysWhatAFolderLacks) {
  const TestFolder folder;
  EXPECT_EQ(Open(folder).code(), StatusCode::kNotFound);
  EXPECT_THAT(Open(folder).message(), HasSubstr("has no config.json"));
  folder.Write("config.json", "{}");
  EXPECT_EQ(Open(folder).code(), StatusCode::kNotFound);
  EXPECT_THAT(Open(folder).message(), HasSubstr("has no model.safetensors"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Open(folder).message(), HasSubstr("it has pytorch_model.bin, which is not read"));
}

TEST(Checkpoint, RepositoryIdsAreRefusedWithTheReason) {
  for (const char* const id : {"Qwen/Qwen3-0.6B", "mlx-community/SmolLM2-135M-Instruct-4bit"}) {
    const Status status = OpenCheckpoint(id).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(id), HasSubstr("download it with 'nunspark pull")));
  }
  for (const char* const path : {"/nonexistent/model", "./model", "../a/b", "a/b/c", "missing", ""}) {
    const Status status = OpenCheckpoint(path).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << path;
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("download"))) << path;
  }
  const TestFolder folder;
  EXPECT_EQ(OpenCheckpoint(folder.Write("model.onnx", "ONNX")).status().code(), StatusCode::kInvalidArgument);
}

class ShardedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("config.json", "{}");
    first_ = Shard(folder_, "model-00001-of-00002.safetensors", {"a", "b"});
    second_ = Shard(folder_, "model-00002-of-00002.safetensors", {"c"});
  }
  void Index(const std::string& map) { folder_.Write("model.safetensors.index.json", "{\"weight_map\":" + map + "}"); }
  std::string Message() {
    const Status status = Open(folder_);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return status.message();
  }

  TestFolder folder_;
  std::string first_;
  std::string second_;
};

TEST_F(ShardedTest, AMissingShardIsNamed) {
  ASSERT_EQ(::unlink(second_.c_str()), 0);
  EXPECT_THAT(Message(), HasSubstr("shard 2 of 2 is missing: expected 2 files model-*-of-00002.safetensors, found 1"));
  Index(
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(Message(), second_ + " is missing: expected the 2 shards that model.safetensors.index.json lists, found 1");
}

TEST_F(ShardedTest, ATensorThatTheShardLacksIsNamed) {
  Index(
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors",
            "d":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(Message(), second_ +
                           ": tensor \"d\" is not in it, but model.safetensors.index.json places it there (2 tensors "
                           "expected, 1 found)");
}

TEST_F(ShardedTest, ATensorThatTheIndexLacksIsNamed) {
  Index(R"({"a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(Message(), first_ + " holds tensor \"b\", which model.safetensors.index.json does not list");
}

TEST_F(ShardedTest, ATensorInAnotherShardIsNamed) {
  Index(
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(Message(), first_ +
                           " holds tensor \"b\", which model.safetensors.index.json places in "
                           "model-00002-of-00002.safetensors");
}

TEST_F(ShardedTest, ATruncatedShardIsNamed) {
  Index(
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})");
  const auto size = static_cast<int64_t>(std::filesystem::file_size(second_));
  ASSERT_EQ(::truncate(second_.c_str(), size - 1), 0);
  EXPECT_EQ(Message(), second_ + " is truncated: expected " + std::to_string(size) + " bytes by its header, found " +
                           std::to_string(size - 1));
}

TEST_F(ShardedTest, HostileIndexesAreRefused) {
  Index(R"({"a":"../model-00001-of-00002.safetensors"})");
  EXPECT_THAT(Message(), HasSubstr("weight_map of \"a\": expected a file name without folders"));
  Index(R"({"a":"/etc/passwd"})");
  EXPECT_THAT(Message(), HasSubstr("expected a file name without folders, found \"/etc/passwd\""));
  Index(R"({"a":1})");
  EXPECT_THAT(Message(), HasSubstr("found integer"));
  Index("[]");
  EXPECT_THAT(Message(), HasSubstr("weight_map: expected an object, found array"));
  Index("{}");
  EXPECT_THAT(Message(), HasSubstr("weight_map: expected tensors of 1 to"));
  folder_.Write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(Message(), HasSubstr("Git LFS pointer"));
  folder_.Write("model.safetensors.index.json", "{");
  EXPECT_THAT(Message(), HasSubstr("not valid JSON"));
}

TEST(Checkpoint, BadDocumentsAreNamed) {
  const TestFolder folder;
  Shard(folder, "model.safetensors", {"a"});
  folder.Write("config.json", "[1]");
  EXPECT_EQ(Open(folder).message(), folder.Path("config.json") + ": expected an object, found array");
  folder.Write("config.json", "{\"a\":");
  EXPECT_THAT(Open(folder).message(), HasSubstr(folder.Path("config.json")));
  folder.Write("config.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(Open(folder).message(), HasSubstr("Git LFS pointer"));
  folder.Write("config.json", R"({"quantization_config":{"quant_method":"gptq"}})");
  EXPECT_EQ(Open(folder).code(), StatusCode::kUnsupported);
  folder.Write("config.json", "{}");
  folder.Write("generation_config.json", "nonsense");
  EXPECT_THAT(Open(folder).message(), HasSubstr(folder.Path("generation_config.json")));
  folder.Write("generation_config.json", "{}");
  EXPECT_TRUE(Open(folder).ok());
}

TEST(Checkpoint, OpensAPackByItsManifestAlone) {
  const TestFolder folder;
  // No valid header anywhere: only sizes count.
  folder.Write("model-core.safetensors", std::string(8192, 'x'));
  Manifest manifest;
  manifest.model_type = "llama";
  manifest.num_layers = 1;
  manifest.source_hash = "0123456789abcdef0123456789abcdef";
  manifest.config = *ParseJson(R"({"eos_token_id":3,"rope_parameters":{"rope_theta":5,"rope_type":"default"}})", "c");
  manifest.files = {{.path = "model-core.safetensors", .bytes = 8192}};
  manifest.pieces = {{.piece_id = "embed",
                      .file = 0,
                      .offset = 4096,
                      .bytes = 4096,
                      .checksum = "xxh3:00000000000000000000000000000000",
                      .tensors = {{.name = "t", .dtype = DType::kU8, .shape = {7}, .offset = 0, .bytes = 7}}}};
  folder.Write("manifest.json", WriteManifest(manifest));
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE(checkpoint->is_pack);
  EXPECT_EQ(checkpoint->source_hash, manifest.source_hash);
  EXPECT_EQ(checkpoint->config.Find("rope_theta")->as_int(), 5);
  EXPECT_THAT(checkpoint->eos_ids, ElementsAre(3));
  EXPECT_EQ(checkpoint->tensors.Find("t")->offset, 4096);
}

// Sparse files: nothing of their size is stored or read.
TEST(Checkpoint, RefusesDocumentsBeyondTheirLimitsAndSaysWhy) {
  const TestFolder folder;
  const auto refuse = [&](std::string_view name, int64_t limit) {
    const std::string path = folder.Write(name, "{}");
    EXPECT_EQ(::truncate(path.c_str(), limit + 1), 0);
    const Status status = Open(folder);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    std::filesystem::remove(path);
    return status.message().substr(path.size());
  };
  EXPECT_EQ(refuse("config.json", 16 << 20),
            " is larger than 16777216 bytes, the most that a model's configuration may have");
  folder.Write("config.json", "{}");
  EXPECT_THAT(refuse("generation_config.json", 16 << 20), HasSubstr("the most that a model's configuration may have"));
  EXPECT_THAT(refuse("model.safetensors.index.json", 64 << 20),
              AllOf(HasSubstr(" is larger than 67108864 bytes, the most that an index of shards may have"),
                    HasSubstr("without an index")));
  EXPECT_EQ(refuse("manifest.json", 256 << 20),
            " is larger than 268435456 bytes, the most that a manifest may have (about 220000 experts with nine "
            "tensors each)");
}

TEST(Checkpoint, OpensTheReferenceSet) {
  const std::filesystem::path reference = std::filesystem::path(NUNSPARK_SOURCE_DIR) / "../shared";
  if (!std::filesystem::exists(reference / "goldens")) GTEST_SKIP() << "full reference set not present";
  int opened = 0;
  for (const char* const part : {"goldens/float", "goldens/quant", "models"}) {
    for (const auto& entry : std::filesystem::directory_iterator(reference / part)) {
      if (!std::filesystem::exists(entry.path() / "config.json")) continue;
      const Result<Checkpoint> checkpoint = OpenCheckpoint(entry.path().string());
      if (checkpoint.ok()) {
        ++opened;
        EXPECT_FALSE(checkpoint->tensors.tensors().empty());
      } else {
        EXPECT_EQ(checkpoint.status().code(), StatusCode::kUnsupported) << checkpoint.status().message();
      }
    }
  }
  EXPECT_GT(opened, 60);
  for (const auto& entry : std::filesystem::directory_iterator(reference / "packs")) {
    if (!entry.is_directory()) continue;
    EXPECT_TRUE(OpenCheckpoint(entry.path().string())->is_original_pack);
  }
}

}  // namespace
}  // namespace nunspark
