#include "formats/quantization.h"

#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<QuantizationConfig> Parse(const char* text) {
  const Result<Json> json = ParseJson(text, "test");
  EXPECT_TRUE(json.ok()) << text;
  return ParseQuantization(*json, "config.json");
}

TEST(Quantization, AbsentBlockMeansFloats) {
  for (const char* const text :
       {"{}", R"({"quantization":null})", R"({"quantization_config":null,"quantization":null})"}) {
    const auto config = Parse(text);
    ASSERT_TRUE(config.ok());
    EXPECT_FALSE(config->present);
  }
}

TEST(Quantization, ReadsBaseAndModules) {
  const auto config = Parse(R"({"quantization":{"group_size":32,"bits":8,"mode":"affine",
      "model.layers.0.mlp.gate":{"group_size":64,"bits":8},
      "model.layers.1.mlp.gate":false,
      "model.layers.2.mlp.gate":true,
      "lm_head":{"bits":6,"mode":"affine"},
      "model.embed_tokens":{}}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->base, (QuantSettings{.group_size = 32, .bits = 8, .mode = "affine"}));
  ASSERT_EQ(config->modules.size(), 5U);
  EXPECT_EQ(config->modules.at("model.layers.0.mlp.gate"), (QuantSettings{.group_size = 64, .bits = 8}));
  EXPECT_EQ(config->modules.at("model.layers.1.mlp.gate"), std::nullopt);
  EXPECT_EQ(config->modules.at("model.layers.2.mlp.gate"), config->base);
  // Missing sizes are 64 and 4, not the base's.
  EXPECT_EQ(config->modules.at("lm_head"), (QuantSettings{.group_size = 64, .bits = 6}));
  EXPECT_EQ(config->modules.at("model.embed_tokens"), (QuantSettings{.group_size = 64, .bits = 4}));
}

TEST(Quantization, MissingSizesAndModeHaveDefaults) {
  const auto config = Parse(R"({"quantization":{}})");
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->base, (QuantSettings{.group_size = 64, .bits = 4, .mode = "affine"}));
}

TEST(Quantization, QuantizationIsPreferred) {
  const auto config = Parse(R"({"quantization":{"bits":8,"group_size":64},
                                "quantization_config":{"quant_method":"awq","bits":4}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->base.bits, 8);
  EXPECT_EQ(config->foreign, ForeignMethod::kAwq);
  const auto copy = Parse(R"({"quantization_config":{"bits":8,"group_size":32}})");
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->base, (QuantSettings{.group_size = 32, .bits = 8}));
}

TEST(Quantization, ReadsTheBlockOfTextConfig) {
  const auto config = Parse(R"({"text_config":{"quantization":{"bits":8}}})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->base.bits, 8);
  EXPECT_EQ(Parse(R"({"text_config":{"quantization_config":{"quant_method":"gptq"}}})").status().code(),
            StatusCode::kUnsupported);
}

TEST(Quantization, KeysThatAreNoModulesAreLeftOut) {
  const auto config = Parse(R"({"quantization":{"bits":4,"group_size":64,"linear_class":"x","version":2,"scale":0.5,
      "skip":null,"list":["a"],"quantize_activations":true,"activation_config":{"dtype":"int8"}}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->modules.empty());
}

TEST(Quantization, ModesBringTheirSizes) {
  const std::tuple<const char*, int, int> kModes[] = {
      {"affine", 4, 64}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
  for (const auto& [mode, bits, group] : kModes) {
    const QuantSettings expected{.group_size = group, .bits = bits, .mode = mode};
    EXPECT_EQ(DefaultSettings(mode), expected);
    const auto config = Parse(fmt::format(R"({{"quantization":{{"mode":"{}","lm_head":{{"mode":"{}","bits":{}}},
                                               "other":{{"bits":4}}}}}})",
                                          mode, mode, bits)
                                  .c_str());
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->base, expected);
    EXPECT_EQ(config->modules.at("lm_head"), expected);
    // An entry without a mode is affine, whatever the base.
    EXPECT_EQ(config->modules.at("other"), (QuantSettings{.group_size = 64, .bits = 4, .mode = "affine"}));
  }
  EXPECT_EQ(DefaultSettings("int4"), std::nullopt);
}

TEST(Quantization, ReadsMethodsOfOtherTools) {
  const auto mxfp4 = Parse(R"({"quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]}})");
  ASSERT_TRUE(mxfp4.ok()) << mxfp4.status().message();
  EXPECT_EQ(mxfp4->foreign, ForeignMethod::kMxFp4);
  EXPECT_FALSE(mxfp4->present);
  const auto awq = Parse(R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":64,"version":"GEMM"}})");
  ASSERT_TRUE(awq.ok()) << awq.status().message();
  EXPECT_EQ(awq->foreign, ForeignMethod::kAwq);
  EXPECT_TRUE(Parse(R"({"quantization_config":{"quant_method":"awq","group_size":-1}})").ok());
  const auto fp8 = Parse(R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,64]}})");
  ASSERT_TRUE(fp8.ok()) << fp8.status().message();
  EXPECT_EQ(fp8->foreign, ForeignMethod::kFp8);
  EXPECT_EQ(fp8->fp8_block_rows, 128);
  EXPECT_EQ(fp8->fp8_block_cols, 64);
  EXPECT_EQ(Parse(R"({"quantization_config":{"quant_method":"fp8"}})")->fp8_block_rows, 128);
}

TEST(Quantization, BothToolsMayHaveTheirModules) {
  const auto config = Parse(R"({"quantization":{"bits":8,"group_size":64},
                                "quantization_config":{"quant_method":"mxfp4"}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->present);
  EXPECT_EQ(config->base.bits, 8);
  EXPECT_EQ(config->foreign, ForeignMethod::kMxFp4);
  // A method that nothing here reads, left over beside MLX's settings.
  const auto left = Parse(R"({"quantization":{"bits":8},"quantization_config":{"quant_method":"gptq"}})");
  ASSERT_TRUE(left.ok()) << left.status().message();
  EXPECT_EQ(left->foreign, ForeignMethod::kNone);
}

TEST(Quantization, UnknownMethodsAreRefusedByName) {
  for (const char* const method : {"gptq", "compressed-tensors", "bitsandbytes"}) {
    const auto config = Parse(("{\"quantization_config\":{\"quant_method\":\"" + std::string(method) + "\"}}").c_str());
    EXPECT_EQ(config.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(config.status().message(),
                AllOf(HasSubstr("config.json: quantization_config.quant_method \"" + std::string(method) + "\""),
                      HasSubstr("awq and fp8")));
  }
  EXPECT_EQ(Parse(R"({"quantization_config":{"quant_method":7}})").status().code(), StatusCode::kUnsupported);
  for (const char* const text : {R"({"quant_method":"awq","version":"gemv"})", R"({"quant_method":"awq","bits":8})",
                                 R"({"quant_method":"fp8","fmt":"e5m2"})"}) {
    const auto config = Parse((std::string("{\"quantization_config\":") + text + "}").c_str());
    EXPECT_EQ(config.status().code(), StatusCode::kUnsupported) << text;
    EXPECT_THAT(config.status().message(), HasSubstr("supported: ")) << text;
  }
}

TEST(Quantization, UnknownModesAreRefusedByName) {
  for (const char* const text :
       {R"({"quantization":{"mode":"int4"}})", R"({"quantization":{"lm_head":{"mode":"int4"}}})"}) {
    const auto config = Parse(text);
    EXPECT_EQ(config.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(config.status().message(), AllOf(HasSubstr("mode \"int4\""), HasSubstr("nvfp4")));
  }
}

TEST(Quantization, WrongTypesAndValuesNameTheKey) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"quantization":7})", "quantization: expected an object, found integer"},
      {R"({"quantization":[]})", "quantization: expected an object, found array"},
      {R"({"quantization":{"bits":0}})", "quantization.bits: expected an integer from 1 to 8, found 0"},
      {R"({"quantization":{"bits":9}})", "found 9"},
      {R"({"quantization":{"bits":-4}})", "found -4"},
      {R"({"quantization":{"bits":4.0}})", "found 4"},
      {R"({"quantization":{"bits":"4"}})", "found \"4\""},
      {R"({"quantization":{"group_size":0}})", "quantization.group_size: expected a power of two up to 1024, found 0"},
      {R"({"quantization":{"group_size":48}})", "found 48"},
      {R"({"quantization":{"group_size":2048}})", "found 2048"},
      {R"({"quantization":{"group_size":-64}})", "found -64"},
      {R"({"quantization":{"mode":1}})", "quantization.mode: expected a string, found 1"},
      {R"({"quantization":{"mode":"mxfp4","bits":8}})", "quantization.bits: expected 4 for mxfp4, found 8"},
      {R"({"quantization":{"mode":"nvfp4","group_size":32}})",
       "quantization.group_size: expected 16 for nvfp4, found 32"},
      {R"({"quantization":{"mode":"mxfp8","x":{"mode":"mxfp8","bits":4}}})",
       "quantization.x.bits: expected 8 for mxfp8, found 4"},
      {R"({"quantization_config":{"quant_method":"awq","group_size":0}})", "found 0"},
      {R"({"quantization_config":{"quant_method":"awq","group_size":"64"}})", "found \"64\""},
      {R"({"quantization_config":{"quant_method":"awq","version":1}})", "version: expected a string, found 1"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128]}})",
       "weight_block_size: expected two integers"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,0]}})",
       "weight_block_size: expected two integers"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":128}})",
       "weight_block_size: expected two integers"},
      {R"({"quantization":{},"quantization_config":[]})", "quantization_config: expected an object, found array"},
      {R"({"quantization":{"lm_head":{"bits":99}}})",
       "quantization.lm_head.bits: expected an integer from 1 to 8, found 99"},
  };
  for (const auto& [text, message] : kBad) {
    const auto config = Parse(text);
    EXPECT_EQ(config.status().code(), StatusCode::kDataLoss) << text;
    EXPECT_THAT(config.status().message(), AllOf(HasSubstr("config.json: "), HasSubstr(message))) << text;
  }
}

}  // namespace
}  // namespace nunspark
