#include "models/hparams.h"

#include <gtest/gtest.h>

#include "models/arch_spec.h"

namespace nunspark {
namespace {

constexpr const char* kLlama =
    R"({"model_type":"llama","vocab_size":320,"hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,
        "num_key_value_heads":2,"intermediate_size":128,"rms_norm_eps":1e-5,"max_position_embeddings":256})";

Result<HParams> Read(const std::string& json, const std::string& type = "llama") {
  const Json config = ParseJson(json, "test").value();
  return ReadHParams(*FindArch(type).value(), config, "config.json");
}

Result<HParams> With(const char* key, const char* value) {
  Json config = ParseJson(kLlama, "test").value();
  config.Set(key, ParseJson(std::string("[") + value + "]", "test").value().as_array()[0]);
  return ReadHParams(*FindArch("llama").value(), config, "config.json");
}

TEST(HParams, FillsInWhatTheTypeDefines) {
  const HParams h = Read(kLlama).value();
  EXPECT_EQ(h.layer.front().head_dim, 16);
  EXPECT_EQ(h.ropes.front().theta, 10000);
  EXPECT_EQ(h.ropes.front().kind, RopeKind::kDefault);
  EXPECT_FALSE(h.attention_bias);
  EXPECT_EQ(h.experts, 0);
  for (const LayerShape& layer : h.layer) EXPECT_FALSE(layer.moe);
}

TEST(HParams, RefusesEveryMissingOrImpossibleField) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) {
    for (const char* value : {"null", "0", "-1", "1.5", "\"64\"", "true", "1e300", "268435457", "[]", "{}"}) {
      const Result<HParams> refused = With(key, value);
      ASSERT_FALSE(refused.ok()) << key << " " << value;
      EXPECT_EQ(refused.status().code(), StatusCode::kDataLoss);
      EXPECT_NE(refused.status().message().find(key), std::string::npos) << refused.status().message();
    }
  }
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"num_key_value_heads", "3"},
                                                                  {"head_dim", "7"},
                                                                  {"head_dim", "8192"},
                                                                  {"rms_norm_eps", "0"},
                                                                  {"rms_norm_eps", "\"x\""},
                                                                  {"rope_theta", "-1"},
                                                                  {"tie_word_embeddings", "1"},
                                                                  {"num_hidden_layers", "10001"},
                                                                  {"rope_scaling", "3"}}) {
    EXPECT_FALSE(With(key, value).ok()) << key << " " << value;
  }
}

TEST(HParams, RefusesUnknownActivationsAndRopeTypesByName) {
  const Result<HParams> activation = With("hidden_act", "\"gelu\"");
  ASSERT_FALSE(activation.ok());
  EXPECT_EQ(activation.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(activation.status().message().find("gelu"), std::string::npos);
  const Result<HParams> rope = With("rope_scaling", R"({"rope_type":"spiral","factor":2})");
  ASSERT_FALSE(rope.ok());
  EXPECT_NE(rope.status().message().find("spiral"), std::string::npos);
  EXPECT_NE(rope.status().message().find("llama3"), std::string::npos);
}

// What would change the numbers is never passed over in silence.
TEST(HParams, RefusesSettingsThatItWouldHaveToIgnore) {
  EXPECT_EQ(With("partial_rotary_factor", "0.5").status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(With("partial_rotary_factor", "1.0").ok());
  EXPECT_EQ(With("rope_parameters", R"({"full_attention":{"rope_theta":1e6}})").status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(With("hidden_act", "7").status().code(), StatusCode::kUnsupported);
}

TEST(HParams, TypeBeatsRopeType) {
  const HParams h = With("rope_scaling", R"({"type":"linear","rope_type":"yarn","factor":2})").value();
  EXPECT_EQ(h.ropes.front().kind, RopeKind::kLinear);
  EXPECT_EQ(h.ropes.front().factor, 2);
}

TEST(HParams, RopeFactorsMustMakeSense) {
  for (const char* scaling :
       {R"({"type":"linear"})", R"({"type":"linear","factor":0.5})", R"({"type":"linear","factor":"2"})",
        R"({"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
        R"({"type":"yarn","factor":4,"beta_fast":0})", R"({"type":7,"factor":2})",
        R"({"type":"yarn","factor":4,"truncate":1})", R"({"type":"yarn","factor":4,"beta_slow":-1})"}) {
    EXPECT_FALSE(With("rope_scaling", scaling).ok()) << scaling;
  }
}

// A wrapper's text_config, its rope_parameters by layer type and the defaults that published files leave out.
TEST(HParams, ReadsAWrapperAndWhatDiffersByLayer) {
  const HParams h = Read(R"({"model_type":"gemma4","vocab_size":320,"text_config":{"vocab_size":7,"hidden_size":64,
      "num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"global_head_dim":32,
      "intermediate_size":128,"sliding_window":8,"num_kv_shared_layers":3,"use_double_wide_mlp":true,
      "layer_types":["sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention",
      "full_attention"],"rope_parameters":{"full_attention":{"rope_type":"proportional","partial_rotary_factor":0.5,
      "rope_theta":1e6}},"final_logit_softcapping":30.0}})",
                         "gemma4")
                        .value();
  EXPECT_EQ(h.vocab_size, 320);
  EXPECT_EQ(h.logit_softcap, 30);
  EXPECT_EQ(h.attention_scale, 1);
  EXPECT_EQ(h.embed_scale, 8);
  const auto& l = h.layer;
  EXPECT_EQ(l[1].head_dim, 16);
  EXPECT_EQ(l[2].head_dim, 32);
  EXPECT_EQ(l[1].window, 8);
  EXPECT_EQ(l[2].window, 0);
  EXPECT_EQ(l[3].kv_layer, 1);
  EXPECT_EQ(l[4].kv_layer, 1);
  EXPECT_EQ(l[5].kv_layer, 2);
  EXPECT_EQ(l[2].ffn_dim, 128);
  EXPECT_EQ(l[3].ffn_dim, 256);
  EXPECT_EQ(h.ropes[static_cast<size_t>(l[2].rope)].rotated_share, 0.5);
  EXPECT_EQ(h.ropes[static_cast<size_t>(l[1].rope)].theta, 10000);
}

TEST(HParams, ReadsWhatIsListedForSingleLayers) {
  const std::string base = R"({"model_type":"gemma4_text","hidden_size":64,"num_hidden_layers":3,
      "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"attention_k_eq_v":true,
      "layer_types":["sliding_attention","sliding_attention","full_attention"],"per_layer_config":)";
  const HParams h = Read(base + R"({"2":{"head_dim":32,"num_key_value_heads":1}}})", "gemma4_text").value();
  EXPECT_EQ(h.layer[1].head_dim, 16);
  EXPECT_EQ(h.layer[1].kv_heads, 2);
  EXPECT_EQ(h.layer[2].head_dim, 32);
  EXPECT_EQ(h.layer[2].kv_heads, 1);
  EXPECT_TRUE(h.layer[2].value_is_key);
  EXPECT_EQ(h.ropes[0].rotary_dim, 32);
  EXPECT_EQ(h.ropes[1].rotary_dim, 16);
  for (const char* wrong : {R"({"3":{"head_dim":32}}})", R"({"x":{}}})", R"({"1":{"head_dim":0}}})", R"([]})",
                            R"({"1":{"head_dim":"a"}}})", R"({"1":{"hidden_size":9}}})"}) {
    EXPECT_FALSE(Read(base + wrong, "gemma4_text").ok()) << wrong;
  }
}

TEST(HParams, RefusesSharedLayersWithoutAnEarlierOneOfTheirKind) {
  const Result<HParams> refused = Read(R"({"model_type":"gemma4_text","hidden_size":64,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"num_kv_shared_layers":1,
      "layer_types":["sliding_attention","full_attention"]})",
                                       "gemma4_text");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("num_kv_shared_layers"), std::string::npos);
}

// Checklist item 22.
TEST(FindArch, RefusesAnUnsupportedTypeWithTheSupportedOnesAndTheClosest) {
  const Result<const ArchSpec*> refused = FindArch("lama");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("'lama'"), std::string::npos);
  EXPECT_NE(refused.status().message().find("closest match is llama"), std::string::npos) << refused.status().message();
  for (const ArchSpec* spec : SupportedArchs()) {
    EXPECT_NE(refused.status().message().find(spec->name), std::string::npos);
  }
  EXPECT_EQ(FindArch("mamba_of_the_future").status().message().find("closest"), std::string::npos);
}

}  // namespace
}  // namespace nunspark
