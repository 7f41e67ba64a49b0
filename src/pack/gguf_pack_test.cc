// Packs of GGUF models: every block type keeps its bytes and is found again, under names that say what it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "formats/gguf_testing.h"
#include "formats/manifest.h"
#include "pack/test_model.h"
#include "pack/verify.h"
#include "quant/encoding.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

constexpr int64_t kDim = 256, kFfn = 512, kKvOut = 128, kVocab = 40;

std::string RowsOf(const std::string& type, int64_t rows, int64_t cols, uint64_t seed) {
  const std::optional<WeightFormat> format = FindBlockFormat(AsciiLower(type));
  if (format.has_value()) return RandomBytes(seed, rows * RowBytes(*format, cols));
  std::string floats;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = static_cast<float>((i * 37 + static_cast<int64_t>(seed)) % 101 - 50) / 64;
    floats.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return floats;
}

// A llama of one layer with all its matrices of one type, written into `path`.
void WriteGguf(const std::string& path, const std::string& type) {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.block_count", 1)
      .U32("llama.context_length", 128)
      .U32("llama.embedding_length", kDim)
      .U32("llama.feed_forward_length", kFfn)
      .U32("llama.attention.head_count", 8)
      .U32("llama.attention.head_count_kv", 4)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .F32("llama.rope.freq_base", 10000);
  uint64_t seed = 1;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    gguf.Tensor(name, type, {rows, cols}, RowsOf(type, rows, cols, ++seed));
  };
  const auto norm = [&](const char* name) { gguf.Floats(name, {kDim}, std::vector<float>(kDim, 1.5F)); };
  matrix("token_embd.weight", kVocab, kDim);
  norm("blk.0.attn_norm.weight");
  matrix("blk.0.attn_q.weight", kDim, kDim);
  matrix("blk.0.attn_k.weight", kKvOut, kDim);
  matrix("blk.0.attn_v.weight", kKvOut, kDim);
  matrix("blk.0.attn_output.weight", kDim, kDim);
  norm("blk.0.ffn_norm.weight");
  matrix("blk.0.ffn_gate.weight", kFfn, kDim);
  matrix("blk.0.ffn_up.weight", kFfn, kDim);
  matrix("blk.0.ffn_down.weight", kDim, kFfn);
  norm("output_norm.weight");
  matrix("output.weight", kVocab, kDim);
  ASSERT_TRUE(WriteFileAtomically(path, gguf.Bytes()).ok());
}

TEST(GgufPack, EveryBlockTypeKeepsItsBytes) {
  for (const std::string type : {"F32", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
                                 "IQ4_NL", "IQ4_XS", "MXFP4"}) {
    SCOPED_TRACE(type);
    const TempFolder work;
    WriteGguf(work / "m.gguf", type);
    const Result<PackReport> report = PackTo(work / "m.gguf", work / "pack");
    ASSERT_TRUE(report.ok()) << report.status().message();
    ExpectSameModel(work / "m.gguf", work / "pack");
    EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0);
    const Checkpoint pack = OpenCheckpoint(work / "pack").value();
    EXPECT_EQ(*pack.config.Find("model_type"), Json("llama"));
    EXPECT_EQ(pack.source_hash, OpenCheckpoint(work / "m.gguf")->source_hash);
    const std::string suffix = type == "F32" ? "" : "@" + AsciiLower(type);
    const TensorInfo* const up = pack.tensors.Find("model.layers.0.mlp.up_proj.weight" + suffix);
    ASSERT_NE(up, nullptr);
    if (type == "F32") continue;
    const WeightFormat format = *FindBlockFormat(AsciiLower(type));
    EXPECT_EQ(up->dtype, DType::kU8);
    EXPECT_EQ(up->shape, (std::vector<int64_t>{kFfn, RowBytes(format, kDim)}));
  }
}

TEST(GgufPack, FloatsCanBeQuantisedAndBlocksAreKept) {
  const TempFolder work;
  WriteGguf(work / "floats.gguf", "F32");
  PackOptions options;
  options.out_folder = work / "pack";
  options.quantize = {ParseQuantizeRule("affine:4:64").value()};
  const Result<PackReport> report = PackFolder(work / "floats.gguf", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->encoded, 9);
  const Result<ModelLayout> layout = ResolveModel(OpenCheckpoint(work / "pack").value());
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(FormatName(FindWeight(layout->pieces[static_cast<size_t>(layout->core[0])], Role::kQuery)->format),
            "affine4-g64/f32-lanes16");
  WriteGguf(work / "blocks.gguf", "Q4_K");
  EXPECT_THAT(PackFolder(work / "blocks.gguf", options).status().message(), HasSubstr("quantised already"));
}

TEST(GgufPack, WhatLiesBesideAFileIsNotItsOwn) {
  const TempFolder work;
  WriteGguf(work / "m.gguf", "Q8_0");
  ASSERT_TRUE(WriteFileAtomically(work / "tokenizer.json", "another model's").ok());
  ASSERT_TRUE(WriteFileAtomically(work / "generation_config.json", R"({"eos_token_id":3})").ok());
  ASSERT_TRUE(WriteFileAtomically(work / "config.json", R"({"model_type":"qwen2"})").ok());
  PackOptions options;
  options.out_folder = work / "pack";
  options.generated_files = {{"tokenizer.json", "out of the file"}};
  options.side_files = SideFiles::kGenerated;
  const Result<PackReport> report = PackFolder(work / "m.gguf", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto content = FolderContent(work / "pack");
  EXPECT_EQ(content.at("tokenizer.json"), "out of the file");
  EXPECT_FALSE(content.contains("generation_config.json"));
  EXPECT_EQ(*OpenCheckpoint(work / "pack")->config.Find("model_type"), Json("llama"));
}

}  // namespace
}  // namespace nunspark
