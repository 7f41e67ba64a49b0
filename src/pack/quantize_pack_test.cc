// Packing with rules: float weights are encoded on their way, everything else stays as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/half.h"
#include "formats/manifest.h"
#include "pack/quantize_plan.h"
#include "pack/test_model.h"
#include "pack/verify.h"
#include "quant/quantize.h"

namespace nunspark {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// As test models have random bytes, floats included: exponents that keep them from being NaN, between 0.5 and 2.
void MakeFloats(TestModel& model) {
  for (TestTensor& tensor : model.tensors) {
    if (tensor.dtype != DType::kBF16) continue;
    for (size_t i = 1; i < tensor.data.size(); i += 2) {
      tensor.data[i] = static_cast<char>((static_cast<uint8_t>(tensor.data[i]) & 0x80) | 0x3f);
    }
  }
}

TestModel FloatModel(const TestShape& shape) {
  TestModel model = MakeTestModel(shape);
  MakeFloats(model);
  return model;
}

std::vector<QuantizeRule> Rules(const std::vector<const char*>& texts) {
  std::vector<QuantizeRule> rules;
  for (const char* const text : texts) rules.push_back(ParseQuantizeRule(text).value());
  return rules;
}

Result<PackReport> PackWith(const TempFolder& work, const std::vector<const char*>& rules, int threads = 0,
                            const std::string& out = "pack") {
  PackOptions options;
  options.out_folder = work / out;
  options.quantize = Rules(rules);
  options.threads = threads;
  // The tests look at the encoded rows; LanesHoldTheEncodedRows at what becomes of them.
  options.layout = PackLayout::kRows;
  return PackFolder(work / "model", options);
}

// Name -> dtype, shape and bytes of every tensor of a folder.
struct Stored {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::string data;
  friend bool operator==(const Stored&, const Stored&) = default;
};

std::map<std::string, Stored> ReadTensors(const std::string& folder) {
  std::map<std::string, Stored> tensors;
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.status().message();
    return tensors;
  }
  for (const TensorInfo& tensor : checkpoint->tensors.tensors()) {
    const File file = File::OpenRead(checkpoint->tensors.files()[static_cast<size_t>(tensor.file)].path).value();
    std::string data(static_cast<size_t>(tensor.bytes), '\0');
    EXPECT_TRUE(file.ReadAt(tensor.offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()}).ok());
    tensors[tensor.name] = {tensor.dtype, tensor.shape, std::move(data)};
  }
  return tensors;
}

// Expects `module` in `pack` as the encoded weight of `source` (a row of its expert axis).
void ExpectEncoded(const std::map<std::string, Stored>& pack, const std::string& module, const TestTensor& source,
                   const WeightFormat& format, int64_t expert = -1) {
  std::vector<int64_t> shape = source.shape;
  if (expert >= 0) shape.erase(shape.begin());
  const int64_t rows = shape[0], cols = shape[1];
  std::string data(static_cast<size_t>(rows * RowBytes(format, cols)), '\0');
  std::string scales(static_cast<size_t>(rows * ScaleRowBytes(format, cols)), '\0');
  std::string biases(scales.size(), '\0');
  const auto at = [](std::string& text, int64_t offset) { return reinterpret_cast<uint8_t*>(text.data()) + offset; };
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (int64_t i = 0; i < cols; ++i) {
      uint16_t bits;
      std::memcpy(&bits, source.data.data() + ((std::max<int64_t>(expert, 0) * rows + row) * cols + i) * 2, 2);
      values[static_cast<size_t>(i)] = Bf16ToFloat(bits);
    }
    const int64_t scale_at = row * ScaleRowBytes(format, cols);
    ASSERT_EQ(
        EncodeRow(format, values, {at(data, row * RowBytes(format, cols)), at(scales, scale_at), at(biases, scale_at)}),
        -1);
  }
  const bool affine = format.encoding == Encoding::kAffine;
  const DType scale_type = affine ? DType::kBF16 : DType::kU8;
  ASSERT_TRUE(pack.contains(module + ".weight")) << module;
  EXPECT_EQ(pack.at(module + ".weight"), (Stored{DType::kU32, {rows, cols * format.bits / 32}, data})) << module;
  ASSERT_TRUE(pack.contains(module + ".scales")) << module;
  EXPECT_EQ(pack.at(module + ".scales"), (Stored{scale_type, {rows, cols / format.group_size}, scales})) << module;
  EXPECT_EQ(pack.contains(module + ".biases"), affine) << module;
  if (affine && pack.contains(module + ".biases")) {
    EXPECT_EQ(pack.at(module + ".biases").data, biases) << module;
  }
}

void ExpectKept(const std::map<std::string, Stored>& pack, const TestTensor& source) {
  ASSERT_TRUE(pack.contains(source.name)) << source.name;
  EXPECT_EQ(pack.at(source.name), (Stored{source.dtype, source.shape, source.data})) << source.name;
}

WeightFormat Affine(int bits, int group) {
  return EncodedFormat({.group_size = group, .bits = bits, .mode = "affine"}, FloatType::kBF16);
}

Json PackConfig(const std::string& folder) {
  const std::string text = ReadWholeFile(JoinPath(folder, kManifestFile)).value();
  return ParseManifest(text, "manifest").value().config;
}

TEST(QuantizePack, EncodesEveryLinearWeightAndNothingElse) {
  const TempFolder work;
  const TestModel model = FloatModel({.layers = 2});
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:4:32"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
  int64_t encoded = 0;
  for (const TestTensor& tensor : model.tensors) {
    if (tensor.name.find("norm") != std::string::npos) {
      ExpectKept(pack, tensor);
    } else {
      const std::string module = tensor.name.substr(0, tensor.name.size() - std::string(".weight").size());
      ExpectEncoded(pack, module, tensor, Affine(4, 32));
      ++encoded;
    }
  }
  EXPECT_EQ(report->encoded, encoded);
  EXPECT_THAT(report->kept_floats, IsEmpty());
  EXPECT_EQ(report->already_encoded, 0);
  int64_t before = 0, after = 0;
  for (const TestTensor& tensor : model.tensors) before += static_cast<int64_t>(tensor.data.size());
  for (const auto& [name, tensor] : pack) after += static_cast<int64_t>(tensor.data.size());
  EXPECT_EQ(report->source_weight_bytes, before);
  EXPECT_EQ(report->weight_bytes, after);
  const Json config = PackConfig(work / "pack");
  EXPECT_EQ(WriteJson(*config.Find("quantization")), R"({"group_size":32,"bits":4,"mode":"affine"})");
  // Opened as any quantised model is.
  const Result<Checkpoint> checkpoint = OpenCheckpoint(work / "pack");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->quantization.base, (QuantSettings{.group_size = 32, .bits = 4, .mode = "affine"}));
  const Result<ModelLayout> layout = ResolveModel(*checkpoint);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(FindWeight(layout->pieces[static_cast<size_t>(layout->core[1])], Role::kDown)->format, Affine(4, 32));
  const Result<VerifyReport> verified = Verify(work / "pack", nullptr);
  ASSERT_TRUE(verified.ok()) << verified.status().message();
  EXPECT_EQ(verified->problem_count, 0);
}

TEST(QuantizePack, TheLastRuleThatMatchesCounts) {
  const TempFolder work;
  const TestModel model = FloatModel({.layers = 2});
  model.WriteTo(work / "model");
  const Result<PackReport> report =
      PackWith(work, {"lm_head=mxfp4", "affine:4:64", "*.down_proj=affine:8:32", "lm_head=affine:8:64",
                      "model.layers.1.self_attn.*=none", "model.layers.1.self_attn.o_proj=affine:8:32"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
  const auto encoded = [&](const std::string& module, const WeightFormat& format) {
    ExpectEncoded(pack, module, model.tensor(module + ".weight"), format);
  };
  encoded("model.embed_tokens", Affine(4, 64));
  encoded("lm_head", Affine(8, 64));
  encoded("model.layers.0.mlp.down_proj", Affine(8, 32));
  encoded("model.layers.1.mlp.down_proj", Affine(8, 32));
  encoded("model.layers.0.self_attn.q_proj", Affine(4, 64));
  encoded("model.layers.1.self_attn.o_proj", Affine(8, 32));
  ExpectKept(pack, model.tensor("model.layers.1.self_attn.q_proj.weight"));
  const Json config = PackConfig(work / "pack");
  EXPECT_EQ(WriteJson(*config.Find("quantization")),
            R"({"group_size":64,"bits":4,"mode":"affine",)"
            R"("model.layers.0.mlp.down_proj":{"group_size":32,"bits":8,"mode":"affine"},)"
            R"("model.layers.1.self_attn.o_proj":{"group_size":32,"bits":8,"mode":"affine"},)"
            R"("model.layers.1.mlp.down_proj":{"group_size":32,"bits":8,"mode":"affine"},)"
            R"("lm_head":{"group_size":64,"bits":8,"mode":"affine"}})");
  const Result<Checkpoint> checkpoint = OpenCheckpoint(work / "pack");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Result<ModelLayout> layout = ResolveModel(*checkpoint);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
}

TEST(QuantizePack, OnlyPatternsGiveTheSettingsOfTheFirstModule) {
  const TempFolder work;
  FloatModel({.layers = 1}).WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"lm_head=affine:8:32"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->encoded, 1);
  EXPECT_EQ(WriteJson(*PackConfig(work / "pack").Find("quantization")),
            R"({"group_size":32,"bits":8,"mode":"affine"})");
  EXPECT_TRUE(ResolveModel(OpenCheckpoint(work / "pack").value()).ok());
}

TEST(QuantizePack, ExpertsAreEncodedAndRoutersKeepEightBits) {
  for (const bool stacked : {true, false}) {
    const TempFolder work;
    const TestModel model = FloatModel({.layers = 2, .experts = 3, .stacked = stacked, .expert_ffn = 64});
    model.WriteTo(work / "model");
    const Result<PackReport> report =
        PackWith(work, {"affine:4:64",
                        stacked ? "*.mlp.experts.*.down_proj=affine:8:32" : "*.mlp.switch_mlp.down_proj=affine:8:32",
                        "model.layers.1.mlp.gate=affine:4:32"});
    ASSERT_TRUE(report.ok()) << report.status().message();
    const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
    for (int expert = 0; expert < 3; ++expert) {
      for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string module = fmt::format("model.layers.1.mlp.experts.{}.{}", expert, name);
        const TestTensor& source =
            model.tensor(stacked ? fmt::format("model.layers.1.mlp.switch_mlp.{}.weight", name) : module + ".weight");
        ExpectEncoded(pack, module, source, name == "down_proj" ? Affine(8, 32) : Affine(4, 64), stacked ? expert : -1);
      }
    }
    ExpectEncoded(pack, "model.layers.0.mlp.gate", model.tensor("model.layers.0.mlp.gate.weight"), Affine(8, 64));
    ExpectEncoded(pack, "model.layers.1.mlp.gate", model.tensor("model.layers.1.mlp.gate.weight"), Affine(4, 32));
    EXPECT_EQ(WriteJson(*PackConfig(work / "pack").Find("quantization")),
              R"({"group_size":64,"bits":4,"mode":"affine",)"
              R"("model.layers.0.mlp.gate":{"group_size":64,"bits":8,"mode":"affine"},)"
              R"("model.layers.0.mlp.switch_mlp.down_proj":{"group_size":32,"bits":8,"mode":"affine"},)"
              R"("model.layers.1.mlp.gate":{"group_size":32,"bits":4,"mode":"affine"},)"
              R"("model.layers.1.mlp.switch_mlp.down_proj":{"group_size":32,"bits":8,"mode":"affine"}})");
    const Result<ModelLayout> layout = ResolveModel(OpenCheckpoint(work / "pack").value());
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0);
  }
}

TEST(QuantizePack, WhatCannotBeEncodedStaysAndIsNamed) {
  const TempFolder work;
  const TestModel model = FloatModel({.layers = 1, .dim = 64, .ffn = 192});
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:4:128", "*.o_proj=affine:4:64"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->encoded, 1);
  ASSERT_THAT(report->kept_floats, SizeIs(8));
  EXPECT_EQ(report->kept_floats[0].module, "model.embed_tokens");
  EXPECT_EQ(report->kept_floats[0].reason, "its 64 inputs are no multiple of the group size 128");
  const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
  ExpectKept(pack, model.tensor("model.layers.0.mlp.down_proj.weight"));
  ExpectEncoded(pack, "model.layers.0.self_attn.o_proj", model.tensor("model.layers.0.self_attn.o_proj.weight"),
                Affine(4, 64));
  EXPECT_TRUE(ResolveModel(OpenCheckpoint(work / "pack").value()).ok());
}

TEST(QuantizePack, AnyNumberOfThreadsGivesTheSameBytes) {
  const TempFolder work;
  // Some weights of more than one chunk: 2 x 10^6 elements.
  FloatModel({.layers = 1, .vocab = 5003, .dim = 256, .ffn = 512}).WriteTo(work / "model");
  ASSERT_TRUE(PackWith(work, {"affine:4:64"}, 1, "one").ok());
  const auto one = FolderContent(work / "one");
  for (const int threads : {2, 3, 7}) {
    const std::string out = fmt::format("out{}", threads);
    const Result<PackReport> report = PackWith(work, {"affine:4:64"}, threads, out);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(FolderContent(work / out) == one) << threads;
  }
}

TEST(QuantizePack, GoesOnWhereItWasStopped) {
  const TempFolder work;
  FloatModel({.layers = 6, .vocab = 997, .dim = 128}).WriteTo(work / "model");
  ASSERT_TRUE(PackWith(work, {"affine:4:64", "lm_head=affine:8:32"}, 2, "whole").ok());
  const auto whole = FolderContent(work / "whole");
  PackOptions options;
  options.out_folder = work / "pack";
  options.quantize = Rules({"affine:4:64", "lm_head=affine:8:32"});
  options.layout = PackLayout::kRows;
  int calls = 0;
  bool resumed = false;
  for (int stop_after = 1;; ++stop_after) {
    calls = 0;
    options.progress = [&](int64_t, int64_t) { return ++calls <= stop_after; };
    const Result<PackReport> report = PackFolder(work / "model", options);
    if (report.ok()) {
      resumed = report->resumed;
      break;
    }
    ASSERT_EQ(report.status().code(), StatusCode::kCancelled);
    ASSERT_LT(stop_after, 1000);
  }
  EXPECT_TRUE(resumed);
  EXPECT_TRUE(FolderContent(work / "pack") == whole);
}

TEST(QuantizePack, TheSameRulesAreUpToDateAndOthersAreRefused) {
  const TempFolder work;
  FloatModel({.layers = 1}).WriteTo(work / "model");
  ASSERT_TRUE(PackWith(work, {"affine:4:64"}).ok());
  const Result<PackReport> again = PackWith(work, {"affine:4:64"});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again->reused);
  for (const auto& rules : {std::vector<const char*>{"affine:8:64"}, std::vector<const char*>{}}) {
    const Result<PackReport> other = PackWith(work, rules);
    EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(other.status().message(), HasSubstr("quantised otherwise"));
  }
}

TEST(QuantizePack, ModelsUnderDifferentRulesHaveDifferentIdentities) {
  const TempFolder work;
  FloatModel({.layers = 1}).WriteTo(work / "model");
  ASSERT_TRUE(PackWith(work, {}, 0, "plain").ok());
  ASSERT_TRUE(PackWith(work, {"affine:4:64"}, 0, "four").ok());
  ASSERT_TRUE(PackWith(work, {"affine:8:64"}, 0, "eight").ok());
  const auto hash = [&](const char* name) { return OpenCheckpoint(work / name)->source_hash; };
  EXPECT_EQ(hash("plain"), hash("model"));
  EXPECT_NE(hash("four"), hash("model"));
  EXPECT_NE(hash("four"), hash("eight"));
}

TEST(QuantizePack, QuantisedWeightsAreKept) {
  const TempFolder work;
  TestModel model = FloatModel({.layers = 1, .bits = 4});
  // One module that its publisher left as floats.
  std::erase_if(model.tensors, [](const TestTensor& tensor) { return tensor.name.starts_with("lm_head."); });
  model.Add("lm_head.weight", DType::kBF16, {97, 64});
  for (size_t i = 1; i < model.tensors.back().data.size(); i += 2) model.tensors.back().data[i] = 0x3f;
  Json quantization = *model.config.Find("quantization");
  quantization.Set("lm_head", false);
  model.config.Set("quantization", quantization);
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:8:64"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->encoded, 1);
  EXPECT_EQ(report->already_encoded, 8);
  const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
  ExpectEncoded(pack, "lm_head", model.tensor("lm_head.weight"), Affine(8, 64));
  for (const TestTensor& tensor : model.tensors) {
    if (!tensor.name.starts_with("lm_head")) ExpectKept(pack, tensor);
  }
  EXPECT_EQ(WriteJson(*PackConfig(work / "pack").Find("quantization")),
            R"({"group_size":32,"bits":4,"lm_head":{"group_size":64,"bits":8,"mode":"affine"}})");
  EXPECT_TRUE(ResolveModel(OpenCheckpoint(work / "pack").value()).ok());
}

TEST(QuantizePack, AQuantisedSourceLeavesNothingToDo) {
  const TempFolder work;
  MakeTestModel({.layers = 1, .bits = 4}).WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:8:64"});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("all 9 weights that the rules reach are quantised already"));
  EXPECT_FALSE(FolderExists(work / "pack"));
  EXPECT_FALSE(FolderExists(work / "pack.partial"));
}

TEST(QuantizePack, RulesThatCannotBeMeantAreRefused) {
  const TempFolder work;
  FloatModel({.layers = 1, .experts = 3, .expert_ffn = 64}).WriteTo(work / "model");
  const auto error = [&](const std::vector<const char*>& rules) {
    const Result<PackReport> report = PackWith(work, rules);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    return report.status().message();
  };
  EXPECT_THAT(error({"affine:4:64", "lm_haed=affine:8:64"}),
              HasSubstr("no module of this model matches \"lm_haed\"; one is model.layers.0.self_attn.q_proj"));
  EXPECT_THAT(error({"affine:4:64", "*.norm=affine:8:64"}), HasSubstr("matches \"*.norm\""));
  EXPECT_THAT(error({"none"}), HasSubstr("no rule asks for an encoding"));
  EXPECT_THAT(error({"affine:4:64", "*.experts.1.up_proj=affine:8:64"}),
              HasSubstr("the experts of a layer must have one encoding, but this rule sets "
                        "model.layers.0.mlp.experts.1.up_proj apart from model.layers.0.mlp.experts.0.up_proj"));
  EXPECT_THAT(error({"lm_head=affine:4:128"}), HasSubstr("lm_head cannot be encoded: its 64 inputs"));
}

TEST(QuantizePack, WeightsWithoutAnEncodingAreNamed) {
  const TempFolder work;
  TestModel model = FloatModel({.layers = 2});
  for (TestTensor& tensor : model.tensors) {
    if (tensor.name != "model.layers.1.mlp.up_proj.weight") continue;
    // Row 5, column 7 is infinite.
    tensor.data[(5 * 64 + 7) * 2] = '\x80';
    tensor.data[(5 * 64 + 7) * 2 + 1] = '\x7f';
  }
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:4:64"});
  EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(),
              HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\": output 5, input 7 is no finite number"));
  EXPECT_FALSE(FolderExists(work / "pack"));
  const Result<PackReport> without = PackWith(work, {"affine:4:64", "model.layers.1.mlp.up_proj=none"});
  EXPECT_TRUE(without.ok()) << without.status().message();
}

// gpt-oss publishes floating-point experts as [inputs, outputs], gate and up in one, their rows alternating.
TEST(QuantizePack, WeightsStoredByColumnsAreTurned) {
  const TempFolder work;
  TestModel model = MakeGptOss();
  model.config.Set("quantization_config", Json());
  std::erase_if(model.tensors, [](const TestTensor& tensor) {
    return tensor.name.ends_with("_blocks") || tensor.name.ends_with("_scales");
  });
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = fmt::format("model.layers.{}.mlp.experts.", layer);
    model.Add(at + "gate_up_proj", DType::kBF16, {3, 64, 192});
    model.Add(at + "down_proj", DType::kBF16, {3, 96, 64});
  }
  MakeFloats(model);
  model.WriteTo(work / "model");
  const Result<PackReport> report = PackWith(work, {"affine:4:32"}, 3);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->kept_floats, IsEmpty());
  const std::map<std::string, Stored> pack = ReadTensors(work / "pack");
  for (int64_t expert = 0; expert < 3; ++expert) {
    // The expert's matrix, turned by hand.
    const TestTensor& source = model.tensor("model.layers.1.mlp.experts.gate_up_proj");
    TestTensor turned{.name = "", .dtype = DType::kBF16, .shape = {192, 64}, .data = std::string(192 * 64 * 2, '\0')};
    for (int64_t in = 0; in < 64; ++in) {
      for (int64_t out = 0; out < 192; ++out) {
        std::memcpy(turned.data.data() + (out * 64 + in) * 2, source.data.data() + ((expert * 64 + in) * 192 + out) * 2,
                    2);
      }
    }
    ExpectEncoded(pack, fmt::format("model.layers.1.mlp.experts.{}.gate_up_proj", expert), turned, Affine(4, 32));
  }
  const Result<ModelLayout> before = ResolveModel(OpenCheckpoint(work / "model").value());
  const Result<ModelLayout> after = ResolveModel(OpenCheckpoint(work / "pack").value());
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_TRUE(after.ok()) << after.status().message();
  const WeightUse& up = *FindWeight(after->pieces[static_cast<size_t>(after->first_expert[1])], Role::kExpertUp);
  const WeightUse& was = *FindWeight(before->pieces[static_cast<size_t>(before->first_expert[1])], Role::kExpertUp);
  EXPECT_EQ(FormatName(was.format), "bf16-columns");
  EXPECT_EQ(FormatName(up.format), "affine4-g32/bf16");
  EXPECT_EQ(up.row_begin, was.row_begin);
  EXPECT_EQ(up.row_step, was.row_step);
  EXPECT_NE(up.bias, -1);
}

TEST(QuantizePack, GeneratedFilesFillInForMissingOnes) {
  const TempFolder work;
  TestModel model = FloatModel({.layers = 1});
  model.side_files["tokenizer.json"] = "the source's own";
  model.WriteTo(work / "model");
  PackOptions options;
  options.out_folder = work / "pack";
  options.generated_files = {{"tokenizer.json", "made"}, {"tokenizer_config.json", "made too"}};
  ASSERT_TRUE(PackFolder(work / "model", options).ok());
  const auto content = FolderContent(work / "pack");
  EXPECT_EQ(content.at("tokenizer.json"), "the source's own");
  EXPECT_EQ(content.at("tokenizer_config.json"), "made too");
  EXPECT_EQ(Verify(work / "pack", nullptr)->problem_count, 0);
  EXPECT_TRUE(PackFolder(work / "model", options)->reused);
  options.generated_files["tokenizer_config.json"] = "made otherwise";
  EXPECT_THAT(PackFolder(work / "model", options).status().message(), HasSubstr("another tokenizer_config.json"));
}

TEST(QuantizePack, LanesHoldTheEncodedRows) {
  const TempFolder work;
  FloatModel({.layers = 1, .vocab = 96, .dim = 128, .ffn = 256}).WriteTo(work / "model");
  const std::vector<const char*> rules = {"affine:6:64", "*.mlp.up_proj=mxfp4"};
  const Result<PackReport> packed = PackWith(work, rules);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  ASSERT_TRUE(PackFolder(work / "model", {.out_folder = work / "lanes", .quantize = Rules(rules)}).ok());
  ASSERT_TRUE(PackFolder(work / "lanes", {.out_folder = work / "back", .layout = PackLayout::kRows}).ok());
  EXPECT_TRUE(ReadTensors(work / "lanes").contains("model.layers.0.mlp.up_proj.scales@lanes16"));
  EXPECT_EQ(ReadTensors(work / "back"), ReadTensors(work / "pack"));
}

}  // namespace
}  // namespace nunspark
