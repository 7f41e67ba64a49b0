// What a pack holds: pieces, names, bytes, and that any safetensors reader can read it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/read_file.h"
#include "formats/checksums.h"
#include "formats/content_hash.h"
#include "formats/manifest.h"
#include "pack/pack_plan.h"
#include "pack/test_model.h"
#include "pack/verify.h"

namespace nunspark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Packed {
  Checkpoint checkpoint;
  Manifest manifest;
  ModelLayout layout;
  PackReport report;
};

// Writes the model to `work`/model, packs it to `work`/pack and opens the pack. In rows: the items speak of the
// source's names and bytes (encodings_pack_test.cc has lanes).
Result<Packed> PackAndOpen(const TestModel& model, const TempFolder& work, PackOptions options = {}) {
  model.WriteTo(work / "model");
  options.out_folder = work / "pack";
  options.layout = PackLayout::kRows;
  Packed packed;
  ASSIGN_OR_RETURN(packed.report, PackFolder(work / "model", options));
  ASSIGN_OR_RETURN(packed.checkpoint, OpenCheckpoint(work / "pack"));
  ASSIGN_OR_RETURN(packed.layout, ResolveModel(packed.checkpoint));
  ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(work / "pack/manifest.json"));
  ASSIGN_OR_RETURN(packed.manifest, ParseManifest(text, "manifest.json"));
  return packed;
}

std::vector<std::string> PieceIds(const Packed& packed) {
  std::vector<std::string> ids;
  for (const ManifestPiece& piece : packed.manifest.pieces) ids.push_back(piece.piece_id);
  return ids;
}

std::vector<std::string> TensorNames(const Packed& packed, std::string_view piece_id) {
  std::vector<std::string> names;
  const ManifestPiece* const piece = FindPiece(packed.manifest, piece_id);
  for (const ManifestTensor& tensor : piece->tensors) names.push_back(tensor.name);
  return names;
}

// A tensor's bytes out of the pack's files, by the manifest.
std::string Bytes(const Packed& packed, std::string_view name) {
  const TensorInfo* const tensor = packed.checkpoint.tensors.Find(name);
  if (tensor == nullptr) return "missing";
  const File file = File::OpenRead(packed.checkpoint.tensors.files()[static_cast<size_t>(tensor->file)].path).value();
  std::string data(static_cast<size_t>(tensor->bytes), '\0');
  const Status status = file.ReadAt(tensor->offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()});
  return status.ok() ? data : status.message();
}

void ExpectSameTensor(const Packed& packed, const TestModel& model, const std::string& name) {
  const TestTensor& source = model.tensor(name);
  const TensorInfo* const tensor = packed.checkpoint.tensors.Find(name);
  ASSERT_NE(tensor, nullptr) << name;
  EXPECT_EQ(tensor->dtype, source.dtype) << name;
  EXPECT_EQ(tensor->shape, source.shape) << name;
  EXPECT_TRUE(Bytes(packed, name) == source.data) << name;
}

// Names in a safetensors file's header, read here with nothing of the project's safetensors code: the data must be
// covered from its first to the file's last byte by tensors that follow each other, in the order of the header.
std::vector<std::string> StrictlyRead(const std::string& file, int64_t alignment) {
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(file.at(i))} << (8 * i);
  EXPECT_EQ((8 + length) % static_cast<uint64_t>(alignment), 0U);
  const Json header = ParseJson(std::string_view(file).substr(8, length), "header").value();
  std::vector<std::string> names;
  int64_t end = 0;
  for (const auto& [name, entry] : header.as_object()) {
    int64_t elements = 1;
    for (const Json& dimension : entry.Find("shape")->as_array()) elements *= dimension.as_int();
    const std::map<std::string, int64_t> sizes = {{"BF16", 2}, {"F16", 2}, {"U32", 4}, {"U8", 1}};
    const Json::Array& offsets = entry.Find("data_offsets")->as_array();
    EXPECT_EQ(offsets.at(0).as_int(), end) << "a hole or overlap before " << name;
    EXPECT_EQ(offsets.at(1).as_int() - end, elements * sizes.at(entry.Find("dtype")->as_string())) << name;
    if (name.starts_with("__gap_")) {
      EXPECT_EQ(entry.Find("dtype")->as_string(), "U8");
      const std::string gap = file.substr(8 + length + static_cast<uint64_t>(end), static_cast<size_t>(elements));
      EXPECT_EQ(gap.find_first_not_of('\0'), std::string::npos);
    } else {
      EXPECT_EQ(end % 64, 0) << name;
    }
    end = offsets.at(1).as_int();
    names.push_back(name);
  }
  EXPECT_EQ(8 + length + static_cast<uint64_t>(end), file.size());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  return names;
}

TEST(PackContract, Item1_DenseModelHasOnePieceALayerAndItsTensors) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 4});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ(packed->report.layers, 4);
  EXPECT_EQ(packed->report.pieces, 6);
  EXPECT_THAT(PieceIds(*packed), ElementsAre("embed", "layer_000", "layer_001", "layer_002", "layer_003", "norm_head"));
  EXPECT_THAT(TensorNames(*packed, "embed"), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(TensorNames(*packed, "layer_002"),
              ElementsAre("model.layers.2.input_layernorm.weight", "model.layers.2.self_attn.q_proj.weight",
                          "model.layers.2.self_attn.k_proj.weight", "model.layers.2.self_attn.v_proj.weight",
                          "model.layers.2.self_attn.o_proj.weight", "model.layers.2.post_attention_layernorm.weight",
                          "model.layers.2.mlp.gate_proj.weight", "model.layers.2.mlp.up_proj.weight",
                          "model.layers.2.mlp.down_proj.weight"));
  EXPECT_THAT(TensorNames(*packed, "norm_head"), ElementsAre("model.norm.weight", "lm_head.weight"));
  EXPECT_EQ(packed->checkpoint.tensors.tensors().size(), model.tensors.size());
  for (const TestTensor& tensor : model.tensors) ExpectSameTensor(*packed, model, tensor.name);
  EXPECT_THAT(Names(FolderContent(work / "pack")),
              ElementsAre("checksums.json", "manifest.json", "model-core.safetensors"));
  int64_t bytes = 0;
  for (const auto& [name, content] : FolderContent(work / "pack")) bytes += static_cast<int64_t>(content.size());
  EXPECT_EQ(packed->report.bytes, bytes);
}

TEST(PackContract, Item1_TiedModelHasNoHead) {
  const TempFolder work;
  const Result<Packed> packed = PackAndOpen(MakeTestModel({.layers = 1, .tied = true}), work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_THAT(TensorNames(*packed, "norm_head"), ElementsAre("model.norm.weight"));
  EXPECT_TRUE(packed->manifest.tie_word_embeddings);
}

TEST(PackContract, Item2_TensorsInMemoryGiveTheSamePackAsFiles) {
  const TempFolder work;
  TestModel model = MakeTestModel({.layers = 2, .bits = 4});
  model.side_files["tokenizer.json"] = "{}";
  model.WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "from_files").ok());
  const MemoryFolder memory(model);
  const Result<PackReport> report = PackTo(memory.path(), work / "from_memory");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(FolderContent(work / "from_files") == FolderContent(work / "from_memory"));
}

TEST(PackContract, Item3_QuantisedTripletsAndConfigAreRecorded) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 2, .bits = 4});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_THAT(TensorNames(*packed, "embed"),
              ElementsAre("model.embed_tokens.weight", "model.embed_tokens.scales", "model.embed_tokens.biases"));
  EXPECT_THAT(TensorNames(*packed, "norm_head"),
              ElementsAre("model.norm.weight", "lm_head.weight", "lm_head.scales", "lm_head.biases"));
  const std::vector<std::string> layer = TensorNames(*packed, "layer_001");
  EXPECT_THAT(std::vector<std::string>(layer.begin() + 1, layer.begin() + 4),
              ElementsAre("model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.scales",
                          "model.layers.1.self_attn.q_proj.biases"));
  for (const TestTensor& tensor : model.tensors) ExpectSameTensor(*packed, model, tensor.name);
  // As the source has it: rope_parameters not lifted, unknown keys kept, in the same order.
  EXPECT_EQ(packed->manifest.config, model.config);
  EXPECT_EQ(packed->manifest.config.Find("rope_theta"), nullptr);
  const Result<Checkpoint> source = OpenCheckpoint(work / "model");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(packed->checkpoint.config, source->config);
  EXPECT_EQ(packed->checkpoint.source_hash, source->source_hash);
}

TEST(PackContract, Item4_CoresHoldTheRouterAndNoExperts) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 2, .experts = 3});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_THAT(PieceIds(*packed), ElementsAre("embed", "layer_000_core", "layer_000_expert_0", "layer_000_expert_1",
                                             "layer_000_expert_2", "layer_001_core", "layer_001_expert_0",
                                             "layer_001_expert_1", "layer_001_expert_2", "norm_head"));
  const std::vector<std::string> core = TensorNames(*packed, "layer_001_core");
  EXPECT_THAT(core, testing::Contains("model.layers.1.mlp.gate.weight"));
  EXPECT_THAT(core, testing::Each(testing::Not(HasSubstr("expert"))));
  EXPECT_THAT(core, testing::Each(testing::Not(HasSubstr("switch_mlp"))));
  EXPECT_EQ(FindPiece(packed->manifest, "layer_001"), nullptr);
  // Experts and cores are in different files.
  const Manifest& manifest = packed->manifest;
  for (const ManifestPiece& piece : manifest.pieces) {
    const bool expert = piece.piece_id.find("_expert_") != std::string::npos;
    EXPECT_EQ(manifest.files[static_cast<size_t>(piece.file)].path,
              expert ? "model-experts-00001.safetensors" : "model-core.safetensors");
  }
}

TEST(PackContract, Item5_ExpertIsItsRowOfTheStackedTensorsAndNothingElse) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 2, .experts = 3, .bits = 8});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  for (int expert = 0; expert < 3; ++expert) {
    std::vector<std::string> expected;
    for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
      for (const char* part : {"weight", "scales", "biases"}) {
        const std::string name = fmt::format("model.layers.1.mlp.experts.{}.{}.{}", expert, module, part);
        expected.push_back(name);
        const TestTensor& stacked = model.tensor(fmt::format("model.layers.1.mlp.switch_mlp.{}.{}", module, part));
        const size_t row = stacked.data.size() / 3;
        EXPECT_TRUE(Bytes(*packed, name) == stacked.data.substr(row * static_cast<size_t>(expert), row)) << name;
        EXPECT_EQ(packed->checkpoint.tensors.Find(name)->shape,
                  std::vector<int64_t>(stacked.shape.begin() + 1, stacked.shape.end()));
      }
    }
    EXPECT_EQ(TensorNames(*packed, fmt::format("layer_001_expert_{}", expert)), expected);
  }
}

TEST(PackContract, Item6_DenseAndExpertLayersMix) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 3, .experts = 2, .dense_layers = {1}});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_THAT(PieceIds(*packed),
              ElementsAre("embed", "layer_000_core", "layer_000_expert_0", "layer_000_expert_1", "layer_001",
                          "layer_002_core", "layer_002_expert_0", "layer_002_expert_1", "norm_head"));
  EXPECT_THAT(TensorNames(*packed, "layer_001"), testing::Contains("model.layers.1.mlp.gate_proj.weight"));
}

TEST(PackContract, StackedAndUnstackedSourcesGiveTheSameRecords) {
  const TempFolder a;
  const TempFolder b;
  const TestModel stacked = MakeTestModel({.layers = 2, .experts = 3});
  TestModel unstacked = MakeTestModel({.layers = 2, .experts = 3, .stacked = false});
  for (TestTensor& tensor : unstacked.tensors) {
    const size_t at = tensor.name.find("mlp.experts.");
    if (at == std::string::npos) {
      tensor.data = stacked.tensor(tensor.name).data;
      continue;
    }
    const size_t expert = static_cast<size_t>(tensor.name[at + 12] - '0');
    const std::string& data =
        stacked.tensor(tensor.name.substr(0, at) + "mlp.switch_mlp." + tensor.name.substr(at + 14)).data;
    tensor.data = data.substr(data.size() / 3 * expert, data.size() / 3);
  }
  ASSERT_TRUE(PackAndOpen(stacked, a).ok());
  ASSERT_TRUE(PackAndOpen(unstacked, b).ok());
  for (const char* name : {"model-core.safetensors", "model-experts-00001.safetensors"}) {
    EXPECT_TRUE(FolderContent(a / "pack").at(name) == FolderContent(b / "pack").at(name)) << name;
  }
}

TEST(PackContract, Item7_TokenizerFilesAreCopiedAndOthersAreNot) {
  const TempFolder work;
  TestModel model = MakeTestModel({.layers = 1});
  const std::vector<std::string> wanted = {
      "added_tokens.json",       "chat_template.jinja", "chat_template.json", "generation_config.json", "merges.txt",
      "special_tokens_map.json", "tokenizer.json",      "tokenizer.model",    "tokenizer_config.json",  "vocab.json"};
  for (const std::string& name : wanted) model.side_files[name] = "content of " + name + std::string("\0\xFF", 2);
  model.side_files["generation_config.json"] = "{\"eos_token_id\": [7, 9]}";
  for (const char* name : {"README.md", "preprocessor_config.json", "training_args.bin", ".gitattributes"}) {
    model.side_files[name] = "not wanted";
  }
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  std::map<std::string, std::string> content = FolderContent(work / "pack");
  for (const std::string& name : wanted) EXPECT_EQ(content[name], model.side_files[name]) << name;
  std::vector<std::string> expected = wanted;
  expected.insert(expected.end(), {"checksums.json", "manifest.json", "model-core.safetensors"});
  EXPECT_THAT(Names(content), testing::UnorderedElementsAreArray(expected));
  EXPECT_THAT(packed->checkpoint.eos_ids, ElementsAre(7, 9));
}

TEST(PackContract, Item8_EveryLayerOfGptOssIsSplit) {
  const TempFolder work;
  const Result<Packed> packed = PackAndOpen(MakeGptOss(), work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_THAT(PieceIds(*packed), ElementsAre("embed", "layer_000_core", "layer_000_expert_0", "layer_000_expert_1",
                                             "layer_000_expert_2", "layer_001_core", "layer_001_expert_0",
                                             "layer_001_expert_1", "layer_001_expert_2", "norm_head"));
  const std::vector<std::string> core = TensorNames(*packed, "layer_001_core");
  EXPECT_THAT(core, testing::IsSupersetOf({"model.layers.1.mlp.router.weight", "model.layers.1.mlp.router.bias",
                                           "model.layers.1.self_attn.sinks"}));
  EXPECT_THAT(core, testing::Each(testing::Not(HasSubstr("experts"))));
  EXPECT_THAT(
      TensorNames(*packed, "layer_001_expert_2"),
      ElementsAre("model.layers.1.mlp.experts.2.gate_up_proj_blocks",
                  "model.layers.1.mlp.experts.2.gate_up_proj_scales", "model.layers.1.mlp.experts.2.gate_up_proj_bias",
                  "model.layers.1.mlp.experts.2.down_proj_blocks", "model.layers.1.mlp.experts.2.down_proj_scales",
                  "model.layers.1.mlp.experts.2.down_proj_bias"));
}

TEST(PackContract, Item10_ManifestSurvivesTheRoundTrip) {
  const TempFolder work;
  const Result<Packed> packed = PackAndOpen(MakeTestModel({.layers = 2, .experts = 2}), work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const std::string text = FolderContent(work / "pack").at("manifest.json");
  const Result<Manifest> manifest = ParseManifest(text, "manifest.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(WriteManifest(*manifest), text);
  EXPECT_EQ(manifest->model_type, "qwen3_moe");
  EXPECT_EQ(manifest->num_layers, 2);
  EXPECT_FALSE(manifest->tie_word_embeddings);
}

TEST(PackFormat, AnySafetensorsReaderCanReadTheFiles) {
  for (const int64_t alignment : {4096, 16384}) {
    const TempFolder work;
    const TestModel model = MakeTestModel({.layers = 2, .experts = 5, .dense_layers = {0}, .bits = 4});
    const PackOptions options{.out_folder = "", .alignment = alignment, .split_bytes = 2 * alignment};
    const Result<Packed> packed = PackAndOpen(model, work, options);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    std::set<std::string> names;
    size_t files = 0;
    for (const auto& [name, content] : FolderContent(work / "pack")) {
      if (!name.ends_with(".safetensors")) continue;
      ++files;
      for (const std::string& tensor : StrictlyRead(content, alignment)) {
        EXPECT_TRUE(names.insert(tensor).second) << tensor << " is in two files";
      }
    }
    EXPECT_GT(files, 2U);
    for (const ManifestPiece& piece : packed->manifest.pieces) {
      EXPECT_EQ(piece.offset % alignment, 0);
      EXPECT_EQ(piece.bytes % alignment, 0);
      for (const ManifestTensor& tensor : piece.tensors) EXPECT_EQ(names.count(tensor.name), 1U) << tensor.name;
    }
  }
}

TEST(PackFormat, WeightFilesAloneAreAnOrdinaryCheckpoint) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 2, .experts = 3, .bits = 4});
  const Result<Packed> packed = PackAndOpen(model, work);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  std::filesystem::remove(work / "pack/manifest.json");
  std::filesystem::copy_file(work / "model/config.json", work / "pack/config.json");
  const Result<Checkpoint> checkpoint = OpenCheckpoint(work / "pack");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Result<ModelLayout> layout = ResolveModel(*checkpoint);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  ASSERT_EQ(layout->pieces.size(), packed->layout.pieces.size());
  for (size_t i = 0; i < layout->pieces.size(); ++i) {
    ASSERT_EQ(layout->pieces[i].parts.size(), packed->layout.pieces[i].parts.size());
    for (size_t j = 0; j < layout->pieces[i].parts.size(); ++j) {
      EXPECT_EQ(layout->pieces[i].parts[j].offset, packed->layout.pieces[i].parts[j].offset);
      EXPECT_EQ(layout->pieces[i].parts[j].name, packed->layout.pieces[i].parts[j].name);
    }
  }
  // And it packs again, to the same records.
  const Result<PackReport> report =
      Pack(*checkpoint, *layout, {.out_folder = work / "again", .layout = PackLayout::kRows});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->dropped, testing::IsEmpty());
  for (const char* name : {"model-core.safetensors", "model-experts-00001.safetensors"}) {
    EXPECT_TRUE(FolderContent(work / "again").at(name) == FolderContent(work / "pack").at(name)) << name;
  }
}

TEST(PackFormat, ExpertFilesAreSplitAtTheGivenSize) {
  const TempFolder work;
  const PackOptions options{.out_folder = "", .split_bytes = 40000};
  const Result<Packed> packed = PackAndOpen(MakeTestModel({.layers = 2, .experts = 8}), work, options);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const Manifest& manifest = packed->manifest;
  std::vector<int64_t> data(manifest.files.size());
  for (const ManifestPiece& piece : manifest.pieces) data[static_cast<size_t>(piece.file)] += piece.bytes;
  // A record is 3 x 32 x 64 x 2 bytes = 3 units of 4096; three of them fit into 40000.
  ASSERT_EQ(data.size(), 1U + 6U);
  for (size_t i = 1; i < data.size(); ++i) EXPECT_EQ(data[i], i == 6 ? 12288 : 3 * 12288) << i;
  EXPECT_EQ(manifest.files[6].path, "model-experts-00006.safetensors");
}

TEST(PackFormat, RecordLargerThanTheSplitSizeHasItsOwnFile) {
  const TempFolder work;
  const PackOptions options{.out_folder = "", .split_bytes = 4096};
  const Result<Packed> packed = PackAndOpen(MakeTestModel({.layers = 1, .experts = 3}), work, options);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ(packed->manifest.files.size(), 4U);
}

TEST(PackFormat, ShardsChangeNothingButTheIdentity) {
  const TempFolder work;
  const TestModel model = MakeTestModel({.layers = 3});
  model.WriteTo(work / "one");
  model.WriteTo(work / "many", 7);
  ASSERT_TRUE(PackTo(work / "one", work / "one_pack").ok());
  const Result<PackReport> report = PackTo(work / "many", work / "many_pack");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(FolderContent(work / "one_pack").at("model-core.safetensors") ==
              FolderContent(work / "many_pack").at("model-core.safetensors"));
}

// Every model of the full set that this build knows: the pack resolves to the same pieces with the same bytes.
TEST(PackFullSet, PacksHoldTheBytesOfTheirSources) {
  const std::string shared = std::string(NUNSPARK_SOURCE_DIR) + "/../shared";
  if (!FolderExists(shared)) GTEST_SKIP() << "full reference set not present";
  int packed_models = 0;
  for (const char* family : {"/goldens/float", "/goldens/quant", "/models"}) {
    const std::vector<std::string> names = ListFolder(shared + family).value();
    for (const std::string& name : names) {
      const std::string folder = shared + family + "/" + name;
      if (!FolderExists(folder)) continue;
      const Result<Checkpoint> source = OpenCheckpoint(folder);
      if (!source.ok()) continue;
      const Result<ModelLayout> layout = ResolveModel(*source);
      if (!layout.ok()) continue;
      SCOPED_TRACE(folder);
      const TempFolder work;
      const Result<PackReport> report = Pack(*source, *layout, {.out_folder = work / "pack", .split_bytes = 1 << 20});
      ASSERT_TRUE(report.ok()) << report.status().message();
      // To lanes and back.
      const Result<PackReport> turned =
          PackFolder(work / "pack", {.out_folder = work / "rows", .layout = PackLayout::kRows});
      ASSERT_TRUE(turned.ok()) << turned.status().message();
      const Checkpoint pack = OpenCheckpoint(work / "rows").value();
      const Result<ModelLayout> again = ResolveModel(pack);
      ASSERT_TRUE(again.ok()) << again.status().message();
      ASSERT_EQ(again->pieces.size(), layout->pieces.size());
      const auto read = [](const Checkpoint& checkpoint, const TensorSlice& part) {
        std::string data(static_cast<size_t>(part.bytes), '\0');
        const File file = File::OpenRead(checkpoint.tensors.files()[static_cast<size_t>(part.file)].path).value();
        EXPECT_TRUE(file.ReadAt(part.offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()}).ok());
        return data;
      };
      for (size_t i = 0; i < layout->pieces.size(); ++i) {
        const PieceLayout& before = layout->pieces[i];
        const PieceLayout& after = again->pieces[i];
        ASSERT_EQ(after.id, before.id);
        ASSERT_EQ(after.parts.size(), before.parts.size());
        ASSERT_EQ(after.weights.size(), before.weights.size());
        for (size_t j = 0; j < before.parts.size(); ++j) {
          ASSERT_EQ(after.parts[j].name, before.parts[j].name);
          ASSERT_EQ(after.parts[j].shape, before.parts[j].shape);
          ASSERT_TRUE(read(pack, after.parts[j]) == read(*source, before.parts[j])) << before.parts[j].name;
        }
      }
      EXPECT_EQ(pack.eos_ids, source->eos_ids);
      const Result<VerifyReport> verified = Verify(work / "pack");
      ASSERT_TRUE(verified.ok()) << verified.status().message();
      EXPECT_TRUE(verified->ok()) << ProblemText(verified->problems.at(0));
      ++packed_models;
    }
  }
  EXPECT_GT(packed_models, 0);
}

}  // namespace
}  // namespace nunspark
