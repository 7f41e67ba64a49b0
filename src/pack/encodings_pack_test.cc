// Packs keep every encoding of a checkpoint, tensor by tensor, and find it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "pack/test_model.h"
#include "pack/verify.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

// A llama of one layer, each of whose linear weights [rows, cols] `add` puts under its module's name.
TestModel ModelWith(
    const std::function<void(TestModel& model, const std::string& module, int64_t rows, int64_t cols)>& add,
    Json::Object config) {
  TestModel plain = MakeTestModel({.layers = 1, .vocab = 96, .dim = 128, .ffn = 256});
  TestModel model;
  model.config = plain.config;
  for (auto& [key, value] : config) model.config.Set(key, value);
  for (const TestTensor& tensor : plain.tensors) {
    if (tensor.shape.size() != 2 || tensor.name == "model.embed_tokens.weight") {
      model.tensors.push_back(tensor);
      continue;
    }
    add(model, tensor.name.substr(0, tensor.name.size() - std::string(".weight").size()), tensor.shape[0],
        tensor.shape[1]);
  }
  return model;
}

Json Settings(Json::Object members) { return Json(std::move(members)); }

// The format that the model's down projection has once it is packed.
std::string PackedFormat(const TestModel& model) {
  const TempFolder work;
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackTo(work / "model", work / "pack");
  if (!report.ok()) return report.status().message();
  ExpectSameModel(work / "model", work / "pack");
  EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0);
  const Result<Checkpoint> pack = OpenCheckpoint(work / "pack");
  EXPECT_EQ(pack->tensors.tensors().size(), model.tensors.size());
  const ModelLayout layout = ResolveModel(*pack).value();
  return FormatName(FindWeight(layout.pieces[static_cast<size_t>(layout.core[0])], Role::kDown)->format);
}

TestModel Mlx(const std::string& mode, int bits, int64_t group) {
  return ModelWith(
      [&](TestModel& model, const std::string& module, int64_t rows, int64_t cols) {
        model.Add(module + ".weight", DType::kU32, {rows, cols * bits / 32});
        model.Add(module + ".scales", mode == "affine" ? DType::kF32 : DType::kU8, {rows, cols / group});
        if (mode == "affine") model.Add(module + ".biases", DType::kF32, {rows, cols / group});
      },
      {{"quantization", Settings({{"group_size", group}, {"bits", bits}, {"mode", Json(mode)}})}});
}

TEST(EncodingsPack, OfMlx) {
  EXPECT_EQ(PackedFormat(Mlx("mxfp4", 4, 32)), "mxfp4-lanes16");
  EXPECT_EQ(PackedFormat(Mlx("mxfp8", 8, 32)), "mxfp8");
  EXPECT_EQ(PackedFormat(Mlx("nvfp4", 4, 16)), "nvfp4");
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    EXPECT_EQ(PackedFormat(Mlx("affine", bits, 64)), fmt::format("affine{}-g64/f32-lanes16", bits));
  }
}

TEST(EncodingsPack, RowsWhenAskedAndBackFromLanes) {
  const TempFolder work;
  Mlx("affine", 5, 32).WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "lanes").ok());
  ASSERT_TRUE(PackFolder(work / "model", {.out_folder = work / "rows", .layout = PackLayout::kRows}).ok());
  ASSERT_TRUE(PackFolder(work / "lanes", {.out_folder = work / "back", .layout = PackLayout::kRows}).ok());
  const std::map<std::string, std::string> rows = FolderContent(work / "rows"), back = FolderContent(work / "back"),
                                           lanes = FolderContent(work / "lanes");
  EXPECT_EQ(Names(back), Names(rows));
  // All but what says where it came from.
  EXPECT_TRUE(back.at("model-core.safetensors") == rows.at("model-core.safetensors"));
  EXPECT_FALSE(lanes.at("model-core.safetensors") == rows.at("model-core.safetensors"));
  EXPECT_EQ(OpenCheckpoint(work / "rows")->tensors.Find("model.layers.0.mlp.up_proj.weight@lanes16"), nullptr);
  EXPECT_NE(OpenCheckpoint(work / "lanes")->tensors.Find("model.layers.0.mlp.up_proj.weight@lanes16"), nullptr);
}

TEST(EncodingsPack, EveryRowIsTheOneOfTheSource) {
  for (const int bits : {2, 3, 4, 6, 8}) {
    const TempFolder work;
    Mlx("affine", bits, 64).WriteTo(work / "model");
    ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
    const Checkpoint checkpoints[2] = {OpenCheckpoint(work / "model").value(), OpenCheckpoint(work / "pack").value()};
    std::vector<std::vector<float>> rows[2];
    for (int i = 0; i < 2; ++i) {
      const ModelLayout layout = ResolveModel(checkpoints[i]).value();
      for (const PieceLayout& piece : layout.pieces) {
        for (const WeightUse& use : piece.weights) {
          if (use.scales < 0) continue;
          const auto part = [&](int32_t index) {
            return PartBytes(checkpoints[i], piece.parts[static_cast<size_t>(index)]);
          };
          const std::string data = part(use.data), scales = part(use.scales), biases = part(use.biases);
          const auto bytes = [](const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); };
          const WeightMatrix w{.format = use.format,
                               .rows = use.rows,
                               .cols = use.cols,
                               .data = bytes(data),
                               .scales = bytes(scales),
                               .biases = bytes(biases),
                               .row_begin = use.row_begin,
                               .row_step = use.row_step,
                               .stored_rows = use.stored_rows};
          for (int64_t row = 0; row < use.rows; ++row) {
            DecodeRow(w, row, rows[i].emplace_back(static_cast<size_t>(use.cols)).data());
          }
        }
      }
    }
    // Scales are random bytes, so some are no numbers.
    ASSERT_EQ(rows[0].size(), rows[1].size());
    for (size_t r = 0; r < rows[0].size(); ++r) {
      for (size_t k = 0; k < rows[0][r].size(); ++k) {
        const float a = rows[0][r][k], b = rows[1][r][k];
        ASSERT_TRUE(a == b || (a != a && b != b)) << bits << " bits, row " << r << ", input " << k;
      }
    }
  }
}

// Tables whose rows are read one by one stay in rows, as does what has no whole number of tiles.
TEST(EncodingsPack, WhatIsReadByRowsStaysInRows) {
  const TempFolder work;
  const TestModel model = ModelWith(
      [](TestModel& to, const std::string& module, int64_t rows, int64_t cols) {
        to.Add(module + ".weight", DType::kU32, {rows, cols / 8});
        to.Add(module + ".scales", DType::kF32, {rows, cols / 64});
        to.Add(module + ".biases", DType::kF32, {rows, cols / 64});
      },
      {{"quantization", Settings({{"group_size", 64}, {"bits", 4}})}});
  model.WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
  const Checkpoint pack = OpenCheckpoint(work / "pack").value();
  EXPECT_NE(pack.tensors.Find("model.embed_tokens.weight"), nullptr);
  EXPECT_NE(pack.tensors.Find("model.norm.weight"), nullptr);
  EXPECT_NE(pack.tensors.Find("model.layers.0.self_attn.q_proj.weight@lanes16"), nullptr);
}

TEST(EncodingsPack, Fp8InBlocks) {
  const TestModel model = ModelWith(
      [](TestModel& to, const std::string& module, int64_t rows, int64_t cols) {
        to.Add(module + ".weight", DType::kF8E4M3, {rows, cols});
        to.Add(module + ".weight_scale_inv", DType::kF32, {(rows + 63) / 64, (cols + 31) / 32});
      },
      {{"quantization_config",
        Settings({{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", Json(Json::Array{64, 32})}})}});
  EXPECT_EQ(PackedFormat(model), "fp8-64x32/f32");
}

TEST(EncodingsPack, Awq) {
  const TestModel model = ModelWith(
      [](TestModel& to, const std::string& module, int64_t rows, int64_t cols) {
        to.Add(module + ".qweight", DType::kI32, {cols, rows / 8});
        to.Add(module + ".qzeros", DType::kI32, {cols / 64, rows / 8});
        to.Add(module + ".scales", DType::kF16, {cols / 64, rows});
      },
      {{"quantization_config",
        Settings({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "gemm"}})}});
  EXPECT_EQ(PackedFormat(model), "awq4-g64/f16");
}

// Blocks as published, one tensor for gate and up of all experts.
TEST(EncodingsPack, BlocksOfGptOss) {
  const TestModel model = MakeGptOss();
  const TempFolder work;
  model.WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
  ExpectSameModel(work / "model", work / "pack");
  EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0);
  const Checkpoint pack = OpenCheckpoint(work / "pack").value();
  const TensorInfo* const up = pack.tensors.Find("model.layers.1.mlp.experts.2.gate_up_proj_blocks");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->shape, (std::vector<int64_t>{192, 2, 16}));
}

// config.json and tensors of a quantised pack must agree: a damaged manifest does not go unnoticed.
TEST(EncodingsPack, APackWhoseConfigContradictsItsTensorsIsRefused) {
  const TempFolder work;
  Mlx("affine", 4, 64).WriteTo(work / "model");
  ASSERT_TRUE(PackTo(work / "model", work / "pack").ok());
  const std::string path = work / "pack/manifest.json";
  const std::string text = ReadWholeFile(path).value();
  const auto error = [&](const std::string& entry) {
    std::string changed = text;
    const std::string mode = R"("mode":"affine")";
    changed.replace(changed.find(mode), mode.size(), mode + ",\"model.layers.0.mlp.up_proj\":" + entry);
    EXPECT_TRUE(WriteFileAtomically(path, changed).ok());
    const Result<Checkpoint> checkpoint = OpenCheckpoint(work / "pack");
    if (!checkpoint.ok()) return checkpoint.status().message();
    const Result<ModelLayout> layout = ResolveModel(*checkpoint);
    return layout.ok() ? std::string("no error") : layout.status().message();
  };
  EXPECT_THAT(error(R"({"bits":8,"group_size":64})"), HasSubstr("model.layers.0.mlp.up_proj.weight@lanes16"));
  EXPECT_THAT(error(R"({"bits":4,"group_size":32})"), HasSubstr("model.layers.0.mlp.up_proj.weight@lanes16"));
  EXPECT_THAT(error(R"({"mode":"mxfp4"})"), HasSubstr("model.layers.0.mlp.up_proj.weight@lanes16"));
  EXPECT_THAT(error("false"), HasSubstr("model.layers.0.mlp.up_proj.weight@lanes16"));
  EXPECT_THAT(error(R"({"bits":0})"), HasSubstr("model.layers.0.mlp.up_proj.bits"));
  EXPECT_EQ(error(R"({"bits":4,"group_size":64})"), "no error");
}

}  // namespace
}  // namespace nunspark
