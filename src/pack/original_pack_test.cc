// Packs of the original Nunspark as sources: the packer's output holds the same tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/manifest.h"
#include "pack/test_model.h"
#include "pack/verify.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

const std::string kFullPacks = NUNSPARK_SOURCE_DIR "/../shared/packs/";

std::string TensorBytesOf(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const File file = File::OpenRead(checkpoint.tensors.files()[static_cast<size_t>(tensor.file)].path).value();
  std::string data(static_cast<size_t>(tensor.bytes), '\0');
  EXPECT_TRUE(file.ReadAt(tensor.offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()}).ok());
  return data;
}

// A pack holds the same tensors under the same names, once what it has turned to lanes is turned back.
void ExpectSameTensors(const std::string& one, const std::string& pack) {
  const TempFolder work(FolderPlace::kMemory);
  const Result<PackReport> turned = PackFolder(pack, {.out_folder = work / "rows", .layout = PackLayout::kRows});
  ASSERT_TRUE(turned.ok()) << turned.status().message();
  const Result<Checkpoint> a = OpenCheckpoint(one);
  const Result<Checkpoint> b = OpenCheckpoint(work / "rows");
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(a->tensors.tensors().size(), b->tensors.tensors().size());
  for (const TensorInfo& tensor : a->tensors.tensors()) {
    const TensorInfo* const same = b->tensors.Find(tensor.name);
    ASSERT_NE(same, nullptr) << tensor.name;
    EXPECT_EQ(same->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(same->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(TensorBytesOf(*a, tensor) == TensorBytesOf(*b, *same)) << tensor.name;
  }
}

// The original's pack of a model, from its own description: one file for each piece, experts as rows of stacked
// tensors.
void WriteOriginalPack(const TestModel& model, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::map<std::string, TestModel> pieces;  // only their tensors
  int layers = 0;
  for (const TestTensor& tensor : model.tensors) {
    std::string_view name = tensor.name;
    constexpr std::string_view kLayers = "model.layers.";
    if (!name.starts_with(kLayers)) {
      TestTensor renamed = tensor;
      if (name.starts_with("model.")) renamed.name = name.substr(6);
      pieces[name.starts_with("model.embed") ? "embed" : "norm_head"].tensors.push_back(std::move(renamed));
      continue;
    }
    name.remove_prefix(kLayers.size());
    const int layer = std::stoi(std::string(name));
    layers = std::max(layers, layer + 1);
    name.remove_prefix(name.find('.') + 1);
    const bool moe = model.config.Find("num_experts") != nullptr;
    if (!name.starts_with("mlp.switch_mlp.")) {
      TestTensor renamed = tensor;
      renamed.name = name;
      pieces[fmt::format("layer_{:03}{}", layer, moe ? "_core" : "")].tensors.push_back(std::move(renamed));
      continue;
    }
    const auto experts = static_cast<size_t>(tensor.shape[0]);
    for (size_t expert = 0; expert < experts; ++expert) {
      const size_t bytes = tensor.data.size() / experts;
      pieces[fmt::format("layer_{:03}_expert_{}", layer, expert)].tensors.push_back(
          {std::string(name),
           tensor.dtype,
           {tensor.shape.begin() + 1, tensor.shape.end()},
           tensor.data.substr(expert * bytes, bytes)});
    }
  }
  Json::Array list;
  for (const auto& [id, piece] : pieces) {
    const Status written =
        WriteFileAtomically(JoinPath(folder, id + ".safetensors"), piece.FileBytes(0, piece.tensors.size()));
    ASSERT_TRUE(written.ok()) << written.message();
    Json::Array keys;
    for (const TestTensor& tensor : piece.tensors) keys.push_back(tensor.name);
    list.push_back(Json(
        Json::Object{{"piece_id", Json(id)}, {"file", Json(id + ".safetensors")}, {"keys", Json(std::move(keys))}}));
  }
  const Json manifest(Json::Object{{"model_type", *model.config.Find("model_type")},
                                   {"config", model.config},
                                   {"tie_word_embeddings", *model.config.Find("tie_word_embeddings")},
                                   {"num_layers", layers},
                                   {"pieces", Json(std::move(list))}});
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, kManifestFile), WriteJson(manifest, 2)).ok());
}

TEST(OriginalPackSource, GivesTheSamePackAsTheCheckpoint) {
  for (const TestShape& shape : {TestShape{.layers = 2}, TestShape{.layers = 2, .tied = true, .bits = 4},
                                 TestShape{.layers = 3, .experts = 5, .bits = 4}}) {
    const TempFolder work;
    TestModel model = MakeTestModel(shape);
    model.WriteTo(work / "model");
    WriteOriginalPack(model, work / "original");
    ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
    const Result<PackReport> report = PackTo(work / "original", work / "repacked");
    ASSERT_TRUE(report.ok()) << report.status().message();
    ExpectSameTensors(work / "original", work / "repacked");
    const auto pack = FolderContent(work / "pack");
    const auto repacked = FolderContent(work / "repacked");
    EXPECT_EQ(Names(pack), Names(repacked));
    for (const auto& [name, content] : pack) {
      if (!name.ends_with(".safetensors")) continue;
      EXPECT_TRUE(content == repacked.at(name)) << name;
    }
    EXPECT_EQ(Verify(work / "repacked", nullptr)->problem_count, 0);
  }
}

TEST(OriginalPackSource, AMissingExpertIsNamed) {
  const TempFolder work;
  WriteOriginalPack(MakeTestModel({.layers = 2, .experts = 3}), work / "original");
  const std::string path = work / "original/manifest.json";
  Json manifest = ParseJson(ReadWholeFile(path).value(), path).value();
  Json::Array pieces = manifest.Find("pieces")->as_array();
  std::erase_if(pieces, [](const Json& piece) { return piece.Find("piece_id")->as_string() == "layer_001_expert_2"; });
  manifest.Set("pieces", Json(std::move(pieces)));
  ASSERT_TRUE(WriteFileAtomically(path, WriteJson(manifest)).ok());
  const Result<Checkpoint> checkpoint = OpenCheckpoint(work / "original");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Result<ModelLayout> layout = ResolveModel(*checkpoint);
  EXPECT_EQ(layout.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(layout.status().message(), HasSubstr("model.layers.1.mlp.experts.2.gate_proj"));
}

TEST(OriginalPackSource, TheFullReferenceSetIsPackedWithIdenticalTensors) {
  if (!std::filesystem::exists(kFullPacks)) GTEST_SKIP() << "full reference set not present";
  for (const std::string name : {"llama", "qwen3_moe_4bit", "gpt_oss_mxfp4_q8", "gemma3_mm"}) {
    const TempFolder work;
    const Result<PackReport> report = PackTo(kFullPacks + name, work / "pack");
    ASSERT_TRUE(report.ok()) << report.status().message();
    ExpectSameTensors(kFullPacks + name, work / "pack");
    EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0) << name;
    EXPECT_EQ(OpenCheckpoint(work / "pack")->config, OpenCheckpoint(kFullPacks + name)->config) << name;
  }
}

}  // namespace
}  // namespace nunspark
