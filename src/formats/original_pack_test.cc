#include "formats/original_pack.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "formats/checkpoint.h"
#include "formats/safetensors_testing.h"
#include "io/file.h"

namespace nunspark {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kFullPacks = NUNSPARK_SOURCE_DIR "/../shared/packs/";

// A pack of two layers, the second with two experts, written into a folder of its own.
class OriginalPackTest : public testing::Test {
 protected:
  OriginalPackTest() {
    std::string pattern = testing::TempDir() + "/nunspark_original_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    Piece("embed", {"embed_tokens.weight"});
    Piece("layer_000", {"input_layernorm.weight", "mlp.up_proj.weight"});
    Piece("layer_001_core", {"mlp.gate.weight"});
    Piece("layer_001_expert_0", {"mlp.switch_mlp.up_proj.weight", "mlp.switch_mlp.up_proj.scales"});
    Piece("layer_001_expert_1", {"mlp.switch_mlp.up_proj.weight", "mlp.switch_mlp.up_proj.scales"});
    Piece("norm_head", {"lm_head.weight", "norm.weight"});
    manifest_.Set("model_type", "some_type");
    manifest_.Set("config", Json(Json::Object{{"model_type", "some_type"}, {"eos_token_id", 7}}));
    manifest_.Set("tie_word_embeddings", false);
    manifest_.Set("num_layers", 2);
    manifest_.Set("pieces", Json(pieces_));
    WriteManifest();
  }
  ~OriginalPackTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  std::string Path(const std::string& name) const { return JoinPath(folder_, name); }

  // Writes the piece's file, each tensor of two numbers, and appends it to the manifest.
  void Piece(const std::string& id, const std::vector<std::string>& keys) {
    WriteTensors(id + ".safetensors", keys);
    Json::Array names;
    for (const std::string& key : keys) names.push_back(key);
    pieces_.push_back(Json(Json::Object{{"piece_id", Json(id)},
                                        {"file", Json(id + ".safetensors")},
                                        {"keys", Json(std::move(names))},
                                        {"quant", Json()}}));
  }

  void WriteTensors(const std::string& file, const std::vector<std::string>& keys) const {
    std::vector<TensorToWrite> tensors;
    for (const std::string& key : keys) {
      tensors.push_back({.name = key, .dtype = DType::kBF16, .shape = {2}, .data = "abcd"});
    }
    ASSERT_TRUE(WriteSafetensorsFile(Path(file), tensors).ok());
  }

  void WriteManifest() const { ASSERT_TRUE(WriteFileAtomically(Path("manifest.json"), WriteJson(manifest_, 2)).ok()); }

  // The error of opening the folder with a member of the manifest changed.
  std::string ErrorWith(const std::string& key, Json value) {
    Json changed = manifest_;
    changed.Set(key, std::move(value));
    std::swap(changed, manifest_);
    WriteManifest();
    std::swap(changed, manifest_);
    return Open();
  }

  // The same with a member of one piece changed.
  std::string ErrorWithPiece(size_t piece, const std::string& key, Json value) {
    Json::Array pieces = pieces_;
    pieces[piece].Set(key, std::move(value));
    return ErrorWith("pieces", Json(std::move(pieces)));
  }

  std::string Open() const {
    const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
    EXPECT_FALSE(checkpoint.ok());
    EXPECT_THAT(checkpoint.status().message(), HasSubstr(folder_));
    return checkpoint.status().message();
  }

  std::string folder_;
  Json manifest_;
  Json::Array pieces_;
};

TEST_F(OriginalPackTest, BecomesACheckpointWithUnstackedExperts) {
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE(checkpoint->is_original_pack);
  EXPECT_FALSE(checkpoint->is_pack);
  EXPECT_THAT(checkpoint->eos_ids, testing::ElementsAre(7));
  EXPECT_EQ(checkpoint->source_hash.size(), 32U);
  EXPECT_EQ(checkpoint->tensors.files().size(), 6U);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : checkpoint->tensors.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                         "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.gate.weight",
                         "model.layers.1.mlp.experts.0.up_proj.weight", "model.layers.1.mlp.experts.0.up_proj.scales",
                         "model.layers.1.mlp.experts.1.up_proj.weight", "model.layers.1.mlp.experts.1.up_proj.scales",
                         "model.norm.weight", "lm_head.weight"));
  const TensorInfo* const tensor = checkpoint->tensors.Find("model.layers.1.mlp.experts.1.up_proj.scales");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(checkpoint->tensors.files()[static_cast<size_t>(tensor->file)].path,
            Path("layer_001_expert_1.safetensors"));
}

TEST_F(OriginalPackTest, TheManifestCompletesTheConfig) {
  manifest_.Set("config", Json(Json::Object{{"hidden_size", 8}}));
  manifest_.Set("tie_word_embeddings", true);
  WriteManifest();
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(*checkpoint->config.Find("model_type"), Json("some_type"));
  EXPECT_EQ(*checkpoint->config.Find("tie_word_embeddings"), Json(true));
  // The text part of a wrapped model.
  manifest_.Set("config", Json(Json::Object{{"model_type", "some_type_text"}}));
  WriteManifest();
  EXPECT_EQ(*OpenCheckpoint(folder_)->config.Find("model_type"), Json("some_type_text"));
}

TEST(OriginalPack, NamesFollowThePiece) {
  const auto name = [](const char* id, int32_t layer, int32_t expert, const char* key) {
    return OriginalTensorName({.piece_id = id, .layer = layer, .expert = expert, .file = "", .keys = {}}, key);
  };
  EXPECT_EQ(name("embed", -1, -1, "embed_tokens.scales"), "model.embed_tokens.scales");
  EXPECT_EQ(name("norm_head", -1, -1, "norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("norm_head", -1, -1, "lm_head.biases"), "lm_head.biases");
  EXPECT_EQ(name("masked_embed", -1, -1, "masked_embedding.centroids.weight"), "masked_embedding.centroids.weight");
  EXPECT_EQ(name("layer_012", 12, -1, "self_attn.sinks"), "model.layers.12.self_attn.sinks");
  EXPECT_EQ(name("e", 3, 14, "mlp.experts.down_proj.bias"), "model.layers.3.mlp.experts.14.down_proj.bias");
  EXPECT_EQ(name("e", 3, 14, "experts.switch_glu.up_proj.weight"), "model.layers.3.experts.14.up_proj.weight");
  EXPECT_EQ(name("e", 3, 14, "mlp.up_proj.weight"), "");
  EXPECT_EQ(name("e", 3, 14, "mlp.experts."), "");
}

TEST_F(OriginalPackTest, FilesThatAreMissingOrCutAreNamed) {
  const std::string file = Path("layer_001_expert_1.safetensors");
  const int64_t bytes = static_cast<int64_t>(std::filesystem::file_size(file));
  for (int64_t cut = 0; cut < bytes; ++cut) {
    std::filesystem::resize_file(file, static_cast<uintmax_t>(cut));
    EXPECT_THAT(Open(), HasSubstr(file)) << cut;
  }
  std::filesystem::remove(file);
  EXPECT_THAT(Open(), HasSubstr(file + " is missing: the pack's manifest lists it as layer_001_expert_1"));
}

TEST_F(OriginalPackTest, FilesWithOtherTensorsAreNamed) {
  WriteTensors("layer_000.safetensors", {"input_layernorm.weight"});
  EXPECT_THAT(Open(), AllOf(HasSubstr("layer_000.safetensors"), HasSubstr("\"mlp.up_proj.weight\" is missing")));
  WriteTensors("layer_000.safetensors", {"input_layernorm.weight", "mlp.up_proj.weight", "mlp.gate_proj.weight"});
  EXPECT_THAT(Open(), HasSubstr("\"mlp.gate_proj.weight\" is in it, but the pack's manifest does not list it"));
}

TEST_F(OriginalPackTest, BadManifestsNameTheField) {
  EXPECT_THAT(ErrorWith("model_type", 7), HasSubstr("model_type: expected a string, found integer"));
  EXPECT_THAT(ErrorWith("config", Json()), HasSubstr("config"));
  EXPECT_THAT(ErrorWith("config", Json(Json::Object{{"model_type", "another"}})),
              HasSubstr("config.model_type: expected \"some_type\", as the manifest says, found \"another\""));
  EXPECT_THAT(ErrorWith("tie_word_embeddings", 1), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(ErrorWith("num_layers", 0), HasSubstr("num_layers: expected an integer from 1"));
  EXPECT_THAT(ErrorWith("num_layers", 3), HasSubstr("layer_002 or layer_002_core is missing"));
  EXPECT_THAT(ErrorWith("num_layers", 1), HasSubstr("layer_001_core is beyond the 1 layers"));
  EXPECT_THAT(ErrorWith("extra", 1), HasSubstr("extra"));
  EXPECT_THAT(ErrorWithPiece(0, "extra", 1), HasSubstr("pieces[0].\"extra\""));
  EXPECT_THAT(ErrorWithPiece(2, "quant", Json(Json::Object())), HasSubstr("pieces[2].quant: expected null"));
  for (const char* const id : {"", "layer_", "layer_1", "layer_00x", "layer_000_", "layer_000_expert_", "head",
                               "layer_000_expert_1x", "layer_-01", "layer_99999999999", "layer_000_core_1"}) {
    EXPECT_THAT(ErrorWithPiece(1, "piece_id", id), HasSubstr("pieces[1].piece_id: expected embed")) << id;
  }
  for (const char* const file : {"", "../layer_000.safetensors", "a/b.safetensors", "layer_000.bin", "/etc/passwd"}) {
    EXPECT_THAT(ErrorWithPiece(1, "file", file), HasSubstr("pieces[1].file: expected a file name")) << file;
  }
  EXPECT_THAT(ErrorWithPiece(1, "keys", Json(Json::Array{7})), HasSubstr("pieces[1].keys"));
  EXPECT_THAT(ErrorWithPiece(1, "keys", Json(Json::Array{"a", "a"})), HasSubstr("\"a\" twice"));
  EXPECT_THAT(ErrorWithPiece(3, "keys", Json(Json::Array{"mlp.up_proj.weight"})),
              HasSubstr("names of tensors of layer_001_expert_0, found \"mlp.up_proj.weight\""));
}

TEST_F(OriginalPackTest, PiecesComeOnceAndAllOfThem) {
  const auto without = [&](size_t index) {
    Json::Array pieces = pieces_;
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(index));
    return ErrorWith("pieces", Json(std::move(pieces)));
  };
  EXPECT_THAT(without(0), HasSubstr("embed is missing"));
  EXPECT_THAT(without(1), HasSubstr("layer_000 or layer_000_core is missing"));
  EXPECT_THAT(without(5), HasSubstr("norm_head is missing"));
  EXPECT_THAT(ErrorWithPiece(4, "piece_id", "layer_001_expert_0"), HasSubstr("layer_001_expert_0 is there twice"));
  EXPECT_THAT(ErrorWithPiece(4, "file", "layer_001_expert_0.safetensors"), HasSubstr("belongs to two pieces"));
  EXPECT_THAT(ErrorWithPiece(2, "piece_id", "layer_000_core"), HasSubstr("layer 0 is there as a whole and as a core"));
  // Without a first piece nothing tells whose manifest it is.
  EXPECT_THAT(ErrorWith("pieces", Json(Json::Array())), HasSubstr("format_version"));
}

TEST_F(OriginalPackTest, OtherManifestsAreNotTaken) {
  EXPECT_TRUE(IsOriginalManifest(WriteJson(manifest_)));
  for (const char* const text : {"", "{", "[]", "7", R"({"pieces":[]})", R"({"pieces":[1]})", R"({"pieces":{}})",
                                 R"({"format_version":2,"pieces":[{"keys":[],"file":"a"}]})"}) {
    EXPECT_FALSE(IsOriginalManifest(text)) << text;
  }
}

TEST(OriginalPack, OpensTheFullReferenceSet) {
  if (!std::filesystem::exists(kFullPacks)) GTEST_SKIP() << "full reference set not present";
  for (const char* const name : {"llama", "qwen3_moe_4bit", "gpt_oss_mxfp4_q8", "gemma3_mm"}) {
    const Result<Checkpoint> checkpoint = OpenCheckpoint(kFullPacks + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_TRUE(checkpoint->is_original_pack);
    const TensorIndex& tensors = checkpoint->tensors;
    EXPECT_NE(tensors.Find("model.embed_tokens.weight"), nullptr) << name;
    EXPECT_NE(tensors.Find("model.norm.weight"), nullptr) << name;
    EXPECT_NE(tensors.Find("model.layers.1.self_attn.q_proj.weight"), nullptr) << name;
  }
}

}  // namespace
}  // namespace nunspark
