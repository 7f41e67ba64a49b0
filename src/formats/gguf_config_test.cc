#include "formats/gguf_config.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Add = std::function<void(GgufBuilder&)>;

// The keys that every model has, of an architecture with 4 layers, 8 heads of 16.
GgufBuilder Base(const std::string& arch) {
  GgufBuilder builder;
  builder.Text("general.architecture", arch)
      .U32(arch + ".block_count", 4)
      .U32(arch + ".embedding_length", 128)
      .U32(arch + ".attention.head_count", 8)
      .Zeros("token_embd.weight", "Q8_0", {10, 128});
  return builder;
}

Result<Json> Translated(const GgufBuilder& builder) {
  const TestFolder folder;
  const Result<GgufModel> model = OpenGgufModel(folder.Write("m.gguf", builder.Bytes()));
  if (!model.ok()) return model.status();
  return GgufConfig(*model);
}

// The whole config, or the error.
std::string Config(const std::string& arch, const Add& add) {
  GgufBuilder builder = Base(arch);
  add(builder);
  const Result<Json> config = Translated(builder);
  return config.ok() ? WriteJson(*config) : config.status().message();
}

// One key of it; "-" when it is not there.
std::string Key(const std::string& arch, const std::string& key, const Add& add) {
  GgufBuilder builder = Base(arch);
  add(builder);
  const Result<Json> config = Translated(builder);
  if (!config.ok()) return config.status().message();
  const Json* const value = config->Find(key);
  return value == nullptr ? "-" : WriteJson(*value);
}

const Add kNothing = [](GgufBuilder&) {};

TEST(GgufConfig, TheLeastThatAModelSays) {
  EXPECT_EQ(Config("qwen3", kNothing),
            R"({"model_type":"qwen3","converted_from":"gguf","num_hidden_layers":4,"hidden_size":128,)"
            R"("num_attention_heads":8,"head_dim":16,"partial_rotary_factor":1.0,"sliding_window":0,"vocab_size":10,)"
            R"("tie_word_embeddings":true,"attention_bias":false,"attention_out_bias":false,"mlp_bias":false,)"
            R"("use_bias":false,"rope_theta":10000.0,"rope_scaling":null,"rope_traditional":false})");
}

TEST(GgufConfig, TranslatesEveryRowOfItsTable) {
  const std::string config = Config("a", [](GgufBuilder& b) {
    b.U32("a.context_length", 2048).U32("a.feed_forward_length", 300).U32("a.attention.head_count_kv", 2);
    b.F32("a.attention.layer_norm_rms_epsilon", 1e-5F).F32("a.attention.layer_norm_epsilon", 1e-6F);
    b.F32("a.rope.freq_base", 1e6F).F32("a.rope.freq_base_swa", 5000).U32("a.attention.shared_kv_layers", 2);
    b.U32("a.embedding_length_per_layer_input", 7)
        .F32("a.attn_logit_softcapping", 50)
        .F32("a.final_logit_softcapping", 30);
    b.U32("a.expert_count", 16).U32("a.expert_used_count", 3).U32("a.expert_feed_forward_length", 64);
    b.U32("a.expert_shared_count", 1).U32("a.expert_shared_feed_forward_length", 96).U32("a.expert_group_count", 4);
    b.U32("a.expert_group_used_count", 2).F32("a.expert_weights_scale", 2.5F).Flag("a.expert_weights_norm", true);
    b.U32("a.leading_dense_block_count", 1).U32("a.expert_gating_func", 2);
  });
  for (const char* const member : {R"("max_position_embeddings":2048)",
                                   R"("intermediate_size":300)",
                                   R"("num_key_value_heads":2)",
                                   R"("rms_norm_eps":1e-05)",
                                   R"("layer_norm_eps":1e-06)",
                                   R"("rope_theta":1000000.0)",
                                   R"("rope_local_base_freq":5000.0)",
                                   R"("num_kv_shared_layers":2)",
                                   R"("hidden_size_per_layer_input":7)",
                                   R"("attn_logit_softcapping":50.0)",
                                   R"("final_logit_softcapping":30.0)",
                                   R"("num_experts":16)",
                                   R"("num_local_experts":16)",
                                   R"("num_experts_per_tok":3)",
                                   R"("moe_intermediate_size":64)",
                                   R"("n_shared_experts":1)",
                                   R"("shared_expert_intermediate_size":96)",
                                   R"("n_group":4)",
                                   R"("topk_group":2)",
                                   R"("routed_scaling_factor":2.5)",
                                   R"("norm_topk_prob":true)",
                                   R"("first_k_dense_replace":1)",
                                   R"("scoring_func":"sigmoid")"}) {
    EXPECT_THAT(config, HasSubstr(member));
  }
}

TEST(GgufConfig, ZeroMeansThatThereIsNone) {
  const Add zeros = [](GgufBuilder& b) {
    b.U32("a.expert_count", 0).U32("a.attention.sliding_window", 0).U32("a.expert_gating_func", 0);
  };
  for (const char* const key : {"num_experts", "num_local_experts", "layer_types", "scoring_func"}) {
    EXPECT_EQ(Key("a", key, zeros), "-");
  }
  EXPECT_EQ(Key("a", "sliding_window", zeros), "0");
}

TEST(GgufConfig, ListsByLayerBecomeANumberWhenAllLayersAgree) {
  const auto heads = [](const std::vector<int32_t>& list) -> Add {
    return [=](GgufBuilder& b) { b.Numbers<int32_t>("a.attention.head_count_kv", list); };
  };
  EXPECT_EQ(Key("a", "num_key_value_heads", heads({2, 2, 2, 2})), "2");
  EXPECT_EQ(Key("a", "num_key_value_heads", heads({2, 4, 2, 4})), "[2,4,2,4]");
  EXPECT_THAT(Key("a", "num_key_value_heads", heads({2, 2})),
              HasSubstr("key \"a.attention.head_count_kv\": expected 4 numbers, one for each layer, found 2"));
  EXPECT_THAT(Key("a", "num_key_value_heads", heads({2, 2, 2, -1})), HasSubstr("expected whole numbers, found -1"));
}

TEST(GgufConfig, BlocksOfADrafterAreNotLayers) {
  const Add add = [](GgufBuilder& b) {
    b.U32("a.nextn_predict_layers", 1).Numbers<int32_t>("a.feed_forward_length", {5, 6, 7, 8});
  };
  EXPECT_EQ(Key("a", "num_hidden_layers", add), "3");
  EXPECT_EQ(Key("a", "intermediate_size", add), "[5,6,7]");
}

TEST(GgufConfig, AWidthOfZeroGivesNoHeads) {
  GgufBuilder narrow;
  narrow.Text("general.architecture", "a").U32("a.block_count", 1).U32("a.embedding_length", 0);
  narrow.U32("a.attention.head_count", 8).Zeros("token_embd.weight", "F32", {1, 1});
  const Result<Json> config = Translated(narrow);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->Find("head_dim"), nullptr);
  EXPECT_EQ(config->Find("partial_rotary_factor"), nullptr);
}

TEST(GgufConfig, WidthsOfHeads) {
  EXPECT_EQ(Key("a", "head_dim", [](GgufBuilder& b) { b.U32("a.attention.key_length", 32); }), "32");
  const Add sliding = [](GgufBuilder& b) {
    b.U32("a.attention.key_length", 64).U32("a.attention.key_length_swa", 32).U32("a.rope.dimension_count", 64);
    b.U32("a.attention.value_length", 64).U32("a.rope.dimension_count_swa", 16);
  };
  EXPECT_EQ(Key("a", "head_dim", sliding), "32");
  EXPECT_EQ(Key("a", "global_head_dim", sliding), "64");
  EXPECT_EQ(Key("a", "partial_rotary_factor", sliding), "0.5");
  EXPECT_EQ(Key("a", "v_head_dim", sliding), "-");
  EXPECT_EQ(Key("a", "v_head_dim", [](GgufBuilder& b) { b.U32("a.attention.value_length", 8); }), "8");
}

TEST(GgufConfig, PartialRotationCanBeMultipliedBack) {
  EXPECT_EQ(Key("a", "partial_rotary_factor", [](GgufBuilder& b) { b.U32("a.rope.dimension_count", 16); }), "1.0");
  EXPECT_EQ(Key("a", "partial_rotary_factor", [](GgufBuilder& b) { b.U32("a.rope.dimension_count", 12); }), "0.75");
  EXPECT_THAT(Key("a", "partial_rotary_factor", [](GgufBuilder& b) { b.U32("a.rope.dimension_count", 18); }),
              HasSubstr("expected at most 16, the width of a head, found 18"));
  for (uint32_t width = 2; width < 300; ++width) {
    for (uint32_t rotated = 1; rotated < width; rotated += 1 + width / 8) {
      GgufBuilder builder = Base("a");
      builder.U32("a.attention.key_length", width).U32("a.rope.dimension_count", rotated);
      const std::string bytes = builder.Bytes();
      GgufModel model;
      model.first = *ParseGguf(bytes, static_cast<int64_t>(bytes.size()), "m");
      model.tensors.AddFile({});
      ASSERT_TRUE(model.tensors.AddTensor({.name = "token_embd.weight", .shape = {10, 128}}).ok());
      const double factor = GgufConfig(model)->Find("partial_rotary_factor")->as_double();
      ASSERT_EQ(static_cast<uint32_t>(width * factor), rotated) << width;
    }
  }
}

TEST(GgufConfig, AttentionThroughALatentVector) {
  const Add add = [](GgufBuilder& b) {
    b.U32("deepseek2.attention.kv_lora_rank", 64).U32("deepseek2.attention.q_lora_rank", 48);
    b.U32("deepseek2.attention.head_count_kv", 1).U32("deepseek2.attention.key_length", 72);
    b.U32("deepseek2.attention.value_length", 64).U32("deepseek2.attention.key_length_mla", 24);
    b.U32("deepseek2.attention.value_length_mla", 20).U32("deepseek2.rope.dimension_count", 8);
  };
  const std::string config = Config("deepseek2", add);
  for (const char* const member :
       {R"("kv_lora_rank":64)", R"("q_lora_rank":48)", R"("qk_rope_head_dim":8)", R"("qk_nope_head_dim":16)",
        R"("v_head_dim":20)", R"("num_key_value_heads":8)", R"("rope_traditional":true)"}) {
    EXPECT_THAT(config, HasSubstr(member));
  }
  EXPECT_THAT(config, ::testing::Not(HasSubstr("\"head_dim\"")));
  // Files from before the cache held latent vectors.
  EXPECT_EQ(Key("deepseek2", "qk_nope_head_dim",
                [](GgufBuilder& b) {
                  b.U32("deepseek2.attention.kv_lora_rank", 64).U32("deepseek2.attention.key_length", 24);
                  b.U32("deepseek2.attention.value_length", 20).U32("deepseek2.rope.dimension_count", 8);
                }),
            "16");
  EXPECT_THAT(Key("deepseek2", "v_head_dim",
                  [](GgufBuilder& b) {
                    b.U32("deepseek2.attention.kv_lora_rank", 64).U32("deepseek2.attention.key_length_mla", 24);
                    b.U32("deepseek2.attention.value_length_mla", 20);
                  }),
              HasSubstr("dimension_count\": expected 1 to 23"));
}

TEST(GgufConfig, TensorsSayWhatIsTiedAndBiased) {
  const Add add = [](GgufBuilder& b) {
    b.Zeros("output.weight", "Q6_K", {10, 256})
        .Zeros("blk.0.attn_q.bias", "F32", {8})
        .Zeros("blk.0.attn_output.bias", "F32", {8});
    b.Zeros("blk.0.ffn_down.bias", "F32", {8});
  };
  EXPECT_EQ(Key("a", "tie_word_embeddings", add), "false");
  EXPECT_EQ(Key("a", "attention_bias", add), "true");
  EXPECT_EQ(Key("a", "attention_out_bias", add), "true");
  EXPECT_EQ(Key("a", "mlp_bias", add), "true");
  EXPECT_EQ(Key("a", "tie_word_embeddings",
                [](GgufBuilder& b) {
                  b.Zeros("output.weight", "F16", {10, 128});
                }),
            "false");
  // The vocabulary may be shorter than the matrix, or a key may be left over.
  EXPECT_EQ(
      Key("a", "vocab_size", [](GgufBuilder& b) { b.U32("a.vocab_size", 9).Texts("tokenizer.ggml.tokens", {"x"}); }),
      "10");
}

TEST(GgufConfig, TensorsSayWhatLayersConsistOf) {
  const Add attention = [](GgufBuilder& b) {
    b.Zeros("blk.2.attn_q.weight", "Q8_0", {8, 128}).Zeros("blk.2.attn_k.weight", "Q4_0", {8, 128});
  };
  EXPECT_EQ(Key("gemma4", "attention_k_eq_v", attention), "true");
  EXPECT_EQ(Key("gemma4", "attention_k_eq_v",
                [&](GgufBuilder& b) {
                  attention(b);
                  b.Zeros("blk.2.attn_v.weight", "F16", {8, 128});
                }),
            "-");
  EXPECT_EQ(Key("gemma4", "enable_moe_block", attention), "-");
  EXPECT_EQ(Key("gemma4", "enable_moe_block",
                [](GgufBuilder& b) {
                  b.Zeros("blk.3.ffn_gate_inp.weight", "F32", {2, 128});
                }),
            "true");
  EXPECT_EQ(Key("gemma4", "vocab_size_per_layer_input",
                [](GgufBuilder& b) {
                  b.Zeros("per_layer_token_embd.weight", "Q5_1", {7, 64});
                }),
            "7");
}

TEST(GgufConfig, LayersThatSeeAWindow) {
  const std::string period_3 = R"(["sliding_attention","sliding_attention","full_attention","sliding_attention"])";
  const auto with = [](const Add& more) -> Add {
    return [=](GgufBuilder& b) {
      b.U32("a.attention.sliding_window", 512);
      more(b);
    };
  };
  EXPECT_EQ(Key("a", "layer_types", with(kNothing)), "-");
  EXPECT_EQ(Key("a", "sliding_window", with(kNothing)), "512");
  const Add period = with([](GgufBuilder& b) { b.U32("a.attention.sliding_window_pattern", 3); });
  EXPECT_EQ(Key("a", "layer_types", period), period_3);
  EXPECT_EQ(Key("a", "sliding_window_pattern", period), "3");
  const Add list = with([](GgufBuilder& b) {
    b.Flags("a.attention.sliding_window_pattern", {true, true, false, true});
  });
  EXPECT_EQ(Key("a", "layer_types", list), period_3);
  EXPECT_EQ(Key("a", "sliding_window_pattern", list), "-");
  EXPECT_EQ(Key("a", "layer_types", with([](GgufBuilder& b) {
                  b.Numbers<uint32_t>("a.attention.sliding_window_pattern", {1, 1, 0, 1});
                })),
            period_3);
  EXPECT_THAT(
      Key("a", "layer_types", with([](GgufBuilder& b) { b.Flags("a.attention.sliding_window_pattern", {true}); })),
      HasSubstr("expected 4 values, one for each layer, found 1"));
  EXPECT_THAT(Key("a", "layer_types", with([](GgufBuilder& b) { b.U32("a.attention.sliding_window_pattern", 0); })),
              HasSubstr("expected an integer from 1"));
  // By the architecture.
  EXPECT_EQ(Key("gpt-oss", "layer_types", [](GgufBuilder& b) { b.U32("gpt-oss.attention.sliding_window", 128); }),
            R"(["sliding_attention","full_attention","sliding_attention","full_attention"])");
  EXPECT_EQ(Key("gpt-oss", "layer_types", kNothing), "-");
}

TEST(GgufConfig, FactsOfArchitectures) {
  EXPECT_EQ(Key("llama", "rope_traditional", kNothing), "true");
  EXPECT_EQ(Key("qwen2", "rope_traditional", kNothing), "false");
  EXPECT_EQ(Key("gemma3", "norm_plus_one", kNothing), "false");
  EXPECT_EQ(Key("gemma4", "norm_plus_one", kNothing), "-");
  EXPECT_EQ(Key("gemma3", "rope_local_base_freq", kNothing), "10000.0");
  EXPECT_EQ(Key("gemma3", "rope_local_base_freq", [](GgufBuilder& b) { b.F32("gemma3.rope.freq_base_swa", 7); }),
            "7.0");
  EXPECT_EQ(Key("gemma3", "query_pre_attn_scalar", [](GgufBuilder& b) { b.U32("gemma3.attention.key_length", 256); }),
            "256");
  EXPECT_EQ(Key("olmo2", "model_type", kNothing), "\"olmo2\"");
  EXPECT_EQ(Key("olmo2", "model_type", [](GgufBuilder& b) { b.U32("olmo2.attention.sliding_window", 8); }),
            "\"olmo3\"");
  EXPECT_EQ(Key("qwen3moe", "norm_topk_prob", kNothing), "true");
  EXPECT_EQ(Key("qwen3moe", "mlp_only_layers", kNothing), "[]");
  GgufBuilder large;
  large.Text("general.architecture", "gemma3").U32("gemma3.block_count", 62).U32("gemma3.embedding_length", 5376);
  large.U32("gemma3.attention.head_count", 32).U32("gemma3.attention.key_length", 128);
  large.Zeros("token_embd.weight", "F16", {2, 5376});
  EXPECT_EQ(Translated(large)->Find("query_pre_attn_scalar")->as_int(), 168);
}

TEST(GgufConfig, XieluParametersAreLists) {
  EXPECT_EQ(Key("apertus", "xielu_alpha_p",
                [](GgufBuilder& b) {
                  b.Numbers<float>("xielu.alpha_p", {0.5F, 1, 2, 3});
                }),
            "[0.5,1.0,2.0,3.0]");
  EXPECT_THAT(Key("apertus", "xielu_eps", [](GgufBuilder& b) { b.Numbers<float>("xielu.eps", {1}); }),
              HasSubstr("key \"xielu.eps\": expected 4 numbers"));
  EXPECT_THAT(Key("apertus", "xielu_eps",
                  [](GgufBuilder& b) {
                    b.Numbers<float>("xielu.eps", {1, 2, 3, 0.0F / 0.0F});
                  }),
              HasSubstr("expected finite numbers, found"));
}

TEST(GgufConfig, EndIdsAreThere) {
  EXPECT_EQ(Key("a", "eos_token_id", [](GgufBuilder& b) { b.Texts("tokenizer.ggml.tokens", {"x", "<eos>"}); }), "[1]");
  EXPECT_EQ(Key("a", "eos_token_id", kNothing), "-");
}

TEST(GgufConfig, WrongKeysAreRefused) {
  EXPECT_THAT(Config("a b", kNothing), HasSubstr("key \"general.architecture\": expected the name of a model type"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.Text("a.context_length", "5"); }),
              AllOf(HasSubstr("m.gguf: key \"a.context_length\": expected an integer"), HasSubstr("found string")));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.Number<int32_t>("a.context_length", -5); }), HasSubstr("found -5"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.F32("a.expert_count", 1); }), HasSubstr("found f32"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.F32("a.rope.freq_base", 1.0F / 0.0F); }),
              HasSubstr("expected a finite number"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.U32("a.expert_weights_norm", 1); }),
              HasSubstr("expected a bool, found u32"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.U32("a.nextn_predict_layers", 4); }),
              HasSubstr("from 0 to 3, found 4"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.U32("a.expert_gating_func", 3); }),
              HasSubstr("expected 1 (softmax) or 2"));
  EXPECT_THAT(Config("a", [](GgufBuilder& b) { b.U32("a.attention.key_length", 0); }), HasSubstr("from 1"));
  GgufBuilder narrow;
  narrow.Text("general.architecture", "a").U32("a.block_count", 1).U32("a.embedding_length", 0);
  narrow.U32("a.attention.head_count", 8).U32("a.rope.dimension_count", 0).Zeros("token_embd.weight", "F32", {1, 1});
  EXPECT_THAT(Translated(narrow).status().message(), HasSubstr("a.rope.dimension_count\": expected an integer from 1"));
  GgufBuilder builder;
  builder.Zeros("t", "F32", {1});
  EXPECT_THAT(Translated(builder).status().message(),
              HasSubstr("key \"general.architecture\": expected the name of a model type, found none"));
  builder.Text("general.architecture", "a");
  EXPECT_THAT(Translated(builder).status().message(), HasSubstr("key \"a.block_count\": expected one, found none"));
  builder.U32("a.block_count", 1).U32("a.attention.head_count", 1);
  EXPECT_THAT(Translated(builder).status().message(),
              HasSubstr("key \"a.embedding_length\": expected one, found none"));
  builder.U32("a.embedding_length", 1);
  EXPECT_THAT(Translated(builder).status().message(),
              HasSubstr("tensor \"token_embd.weight\": expected a matrix, found none"));
  GgufBuilder layers;
  layers.Text("general.architecture", "a").U32("a.block_count", 5000).Zeros("t", "F32", {1});
  EXPECT_THAT(Translated(layers).status().message(), HasSubstr("from 1 to 4096, found 5000"));
}

TEST(GgufRope, ScalingByKeys) {
  EXPECT_EQ(Key("a", "rope_scaling",
                [](GgufBuilder& b) { b.Text("a.rope.scaling.type", "none").F32("a.rope.scaling.factor", 2); }),
            "null");
  EXPECT_EQ(Key("a", "rope_scaling", [](GgufBuilder& b) { b.F32("a.rope.scaling.factor", 1); }), "null");
  EXPECT_EQ(Key("a", "rope_scaling", [](GgufBuilder& b) { b.F32("a.rope.scaling.factor", 8); }),
            R"({"rope_type":"linear","factor":8.0})");
  EXPECT_EQ(Key("a", "rope_scaling", [](GgufBuilder& b) { b.F32("a.rope.scale_linear", 4); }),
            R"({"rope_type":"linear","factor":4.0})");
  const Add yarn = [](GgufBuilder& b) {
    b.Text("gpt-oss.rope.scaling.type", "yarn").F32("gpt-oss.rope.scaling.factor", 32);
    b.U32("gpt-oss.rope.scaling.original_context_length", 4096).F32("gpt-oss.rope.scaling.yarn_beta_fast", 32);
    b.F32("gpt-oss.rope.scaling.yarn_beta_slow", 1).F32("gpt-oss.rope.scaling.yarn_attn_factor", 1.25F);
  };
  EXPECT_EQ(Key("gpt-oss", "rope_scaling", yarn),
            R"({"rope_type":"yarn","factor":32.0,"original_max_position_embeddings":4096,"beta_fast":32.0,)"
            R"("beta_slow":1.0,"attention_factor":1.25,"truncate":false})");
  EXPECT_EQ(Key("deepseek2", "rope_scaling",
                [](GgufBuilder& b) {
                  b.Text("deepseek2.rope.scaling.type", "yarn").F32("deepseek2.rope.scaling.factor", 40);
                  b.F32("deepseek2.rope.scaling.yarn_log_multiplier", 0.1F);
                }),
            R"({"rope_type":"yarn","factor":40.0,"mscale":1.0,"mscale_all_dim":1.0})");
  EXPECT_THAT(Key("a", "rope_scaling", [](GgufBuilder& b) { b.Text("a.rope.scaling.type", "spiral"); }),
              HasSubstr("expected none, linear, yarn or longrope, found \"spiral\""));
  EXPECT_THAT(Key("a", "rope_scaling", [](GgufBuilder& b) { b.Text("a.rope.scaling.type", "longrope"); }),
              HasSubstr("tensor \"rope_factors_long.weight\": expected one"));
  EXPECT_THAT(Key("a", "rope_scaling", [](GgufBuilder& b) { b.F32("a.rope.scaling.factor", -2); }),
              HasSubstr("found -2"));
  EXPECT_THAT(
      Key("a", "rope_scaling",
          [](GgufBuilder& b) { b.Text("a.rope.scaling.type", "yarn").F32("a.rope.scaling.yarn_ext_factor", 0.5F); }),
      HasSubstr("yarn_ext_factor\": expected 1, found 0.5"));
}

TEST(GgufRope, FactorsInTensorsBecomeLongrope) {
  const Add freqs = [](GgufBuilder& b) {
    b.U32("llama.context_length", 131072).Floats("rope_freqs.weight", {3}, {1, 1.1F, 8});
  };
  EXPECT_EQ(Key("llama", "rope_scaling", freqs),
            R"({"rope_type":"longrope","short_factor":[1.0,1.1,8.0],"long_factor":[1.0,1.1,8.0],)"
            R"("attention_factor":1.0,"original_max_position_embeddings":131072})");
  const Add phi = [](GgufBuilder& b) {
    b.Floats("rope_factors_long.weight", {2}, {2, 4}).Floats("rope_factors_short.weight", {2}, {1, 1.5F});
    b.U32("phi3.context_length", 131072).U32("phi3.rope.scaling.original_context_length", 4096);
    b.Text("phi3.rope.scaling.type", "longrope").F32("phi3.rope.scaling.attn_factor", 1.19F);
  };
  EXPECT_EQ(Key("phi3", "rope_scaling", phi),
            R"({"rope_type":"longrope","short_factor":[1.0,1.5],"long_factor":[2.0,4.0],)"
            R"("attention_factor":1.19,"original_max_position_embeddings":4096})");
  EXPECT_EQ(Key("phi3", "original_max_position_embeddings", phi), "4096");
}

TEST(GgufRope, FactorsOfElementsThatDoNotTurnBecomeProportional) {
  const Add add = [](GgufBuilder& b) {
    b.F32("gemma4.rope.freq_base", 1e6F).F32("gemma4.rope.freq_base_swa", 1e4F);
    b.Floats("rope_freqs.weight", {8}, {1, 1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F});
  };
  EXPECT_EQ(Key("gemma4", "rope_parameters", add),
            R"({"full_attention":{"rope_type":"proportional","rope_theta":1000000.0,"partial_rotary_factor":0.25},)"
            R"("sliding_attention":{"rope_type":"default","rope_theta":10000.0}})");
  EXPECT_EQ(Key("gemma4", "rope_scaling", add), "null");
}

TEST(GgufRope, WrongFactorsAreRefused) {
  const auto refused = [](const Add& add, const char* message) {
    EXPECT_THAT(Key("llama", "rope_scaling", add), HasSubstr(message));
  };
  refused([](GgufBuilder& b) { b.Zeros("rope_freqs.weight", "F16", {4}); }, "expected F32 [1 to 65536], found F16 [4]");
  refused([](GgufBuilder& b) { b.Zeros("rope_freqs.weight", "F32", {4, 1}); }, "found F32 [4, 1]");
  refused([](GgufBuilder& b) { b.Zeros("rope_freqs.weight", "F32", {70000}); }, "found F32 [70000]");
  refused([](GgufBuilder& b) { b.Floats("rope_freqs.weight", {1}, {0}); }, "expected factors above 0, found 0");
  refused([](GgufBuilder& b) { b.Floats("rope_freqs.weight", {1}, {-1}); }, "found -1");
  refused([](GgufBuilder& b) { b.Floats("rope_freqs.weight", {1}, {0.0F / 0.0F}); }, "expected factors above 0");
  refused([](GgufBuilder& b) { b.Floats("rope_factors_long.weight", {1}, {1}); },
          "as many factors in rope_factors_short as in rope_factors_long, found 0 and 1");
  refused([](GgufBuilder& b) { b.Floats("rope_freqs.weight", {1}, {1}).Floats("rope_factors_long.weight", {1}, {1}); },
          "rope_freqs together with rope_factors");
  refused([](GgufBuilder& b) { b.Floats("rope_freqs.weight", {1}, {1}).F32("llama.rope.scaling.factor", 2); },
          "together with a tensor of factors");
}

}  // namespace
}  // namespace nunspark
