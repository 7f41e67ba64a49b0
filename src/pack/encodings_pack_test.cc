// Packs keep every encoding of a checkpoint, tensor by tensor, and find it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
  EXPECT_EQ(PackedFormat(Mlx("mxfp4", 4, 32)), "mxfp4");
  EXPECT_EQ(PackedFormat(Mlx("mxfp8", 8, 32)), "mxfp8");
  EXPECT_EQ(PackedFormat(Mlx("nvfp4", 4, 16)), "nvfp4");
  for (const int bits : {1, 2, 3, 5, 6, 8}) {
    EXPECT_EQ(PackedFormat(Mlx("affine", bits, 64)), fmt::format("affine{}-g64/f32", bits));
  }
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
  EXPECT_THAT(error(R"({"bits":8,"group_size":64})"), HasSubstr("model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(error(R"({"bits":4,"group_size":32})"), HasSubstr("model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(error(R"({"mode":"mxfp4"})"), HasSubstr("model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(error("false"), HasSubstr("model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(error(R"({"bits":0})"), HasSubstr("model.layers.0.mlp.up_proj.bits"));
  EXPECT_EQ(error(R"({"bits":4,"group_size":64})"), "no error");
}

}  // namespace
}  // namespace nunspark
