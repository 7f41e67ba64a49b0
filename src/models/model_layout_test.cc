#include "models/model_layout.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "formats/checkpoint.h"

namespace nunspark {
namespace {

constexpr int64_t kDim = 64, kFfn = 128, kVocab = 96, kKv = 32;

// A checkpoint that exists as an index only: two llama layers in BF16.
class FakeCheckpoint {
 public:
  FakeCheckpoint() {
    checkpoint_.folder = "fake";
    checkpoint_.config = ParseJson(R"({"model_type":"llama","vocab_size":96,"hidden_size":64,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"rms_norm_eps":1e-5,
        "tie_word_embeddings":false,"max_position_embeddings":256})",
                                   "test")
                             .value();
    checkpoint_.tensors.AddFile({.path = "fake/model.safetensors", .bytes = int64_t{1} << 40});
    Add("model.embed_tokens.weight", {kVocab, kDim});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string l = "model.layers." + std::to_string(layer) + ".";
      Add(l + "input_layernorm.weight", {kDim});
      Add(l + "self_attn.q_proj.weight", {kDim, kDim});
      Add(l + "self_attn.k_proj.weight", {kKv, kDim});
      Add(l + "self_attn.v_proj.weight", {kKv, kDim});
      Add(l + "self_attn.o_proj.weight", {kDim, kDim});
      Add(l + "post_attention_layernorm.weight", {kDim});
      Add(l + "mlp.gate_proj.weight", {kFfn, kDim});
      Add(l + "mlp.up_proj.weight", {kFfn, kDim});
      Add(l + "mlp.down_proj.weight", {kDim, kFfn});
    }
    Add("model.norm.weight", {kDim});
    Add("lm_head.weight", {kVocab, kDim});
  }

  void Add(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kBF16) {
    TensorInfo tensor{
        .name = name, .dtype = dtype, .shape = shape, .file = 0, .offset = next_, .bytes = DTypeBytes(dtype)};
    for (const int64_t n : shape) tensor.bytes *= n;
    next_ += tensor.bytes;
    tensors_.push_back(tensor);
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorInfo& t) { return t.name == name; });
  }
  Json& config() { return checkpoint_.config; }
  QuantizationConfig& quantization() { return checkpoint_.quantization; }

  Result<ModelLayout> Resolve() {
    Checkpoint copy = checkpoint_;
    for (const TensorInfo& tensor : tensors_) EXPECT_TRUE(copy.tensors.AddTensor(tensor).ok());
    return ResolveModel(copy);
  }

  // Replaces a float linear by an affine one.
  void Quantise(const std::string& module, int64_t rows, int64_t cols, int64_t bits, int64_t group,
                DType scales = DType::kBF16) {
    Remove(module + ".weight");
    Add(module + ".weight", {rows, cols * bits / 32}, DType::kU32);
    Add(module + ".scales", {rows, cols / group}, scales);
    Add(module + ".biases", {rows, cols / group}, scales);
  }

 private:
  Checkpoint checkpoint_;
  std::vector<TensorInfo> tensors_;
  int64_t next_ = 4096;
};

void ExpectRefused(FakeCheckpoint& fake, StatusCode code, std::initializer_list<const char*> parts) {
  const Result<ModelLayout> refused = fake.Resolve();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), code) << refused.status().message();
  for (const char* part : parts)
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().message();
}

TEST(ModelLayout, CutsADenseModelIntoItsPieces) {
  FakeCheckpoint fake;
  const ModelLayout layout = fake.Resolve().value();
  ASSERT_EQ(layout.pieces.size(), 4u);
  EXPECT_EQ(layout.pieces[0].id, "embed");
  EXPECT_EQ(layout.pieces[1].id, "layer_000");
  EXPECT_EQ(layout.pieces[2].id, "layer_001");
  EXPECT_EQ(layout.pieces[3].id, "norm_head");
  EXPECT_EQ(layout.pieces[1].parts.size(), 9u);
  EXPECT_EQ(layout.pieces[3].parts.size(), 2u);
  EXPECT_TRUE(layout.ignored.empty());
  int64_t bytes = 0;
  for (const PieceLayout& piece : layout.pieces) bytes += piece.bytes;
  EXPECT_EQ(bytes, layout.total_bytes);
}

TEST(ModelLayout, TiesTheHeadWhenTheFlagOrTheAbsenceOfAHeadSaysSo) {
  FakeCheckpoint flagged;
  flagged.config().Set("tie_word_embeddings", true);
  const ModelLayout layout = flagged.Resolve().value();
  EXPECT_TRUE(layout.hparams.tied);
  EXPECT_EQ(layout.ignored, std::vector<std::string>{"lm_head.weight"});

  FakeCheckpoint headless;
  headless.Remove("lm_head.weight");
  ExpectRefused(headless, StatusCode::kNotFound, {"lm_head.weight", "missing"});  // the configuration says untied
  headless.config().Set("tie_word_embeddings", Json());
  EXPECT_TRUE(headless.Resolve().value().hparams.tied);
}

TEST(ModelLayout, ReadsAffineFormatsFromTheShapes) {
  for (const int64_t bits : {4, 8}) {
    for (const int64_t group : {32, 64}) {
      FakeCheckpoint fake;
      fake.Quantise("model.layers.1.mlp.down_proj", kDim, kFfn, bits, group, DType::kF16);
      const ModelLayout layout = fake.Resolve().value();
      const WeightUse* const use = FindWeight(layout.pieces[2], Role::kDown);
      ASSERT_NE(use, nullptr);
      EXPECT_EQ(use->format.encoding, Encoding::kAffine);
      EXPECT_EQ(use->format.bits, bits);
      EXPECT_EQ(use->format.group_size, group);
      EXPECT_EQ(use->format.scale_type, FloatType::kF16);
      EXPECT_EQ(layout.pieces[2].parts[static_cast<size_t>(use->biases)].name, "model.layers.1.mlp.down_proj.biases");
    }
  }
}

TEST(ModelLayout, NamesTheTensorThatIsMissing) {
  FakeCheckpoint fake;
  fake.Remove("model.layers.1.self_attn.k_proj.weight");
  ExpectRefused(fake, StatusCode::kNotFound, {"model.layers.1.self_attn.k_proj.weight", "missing"});
}

TEST(ModelLayout, NamesTheTensorOfWrongShapeWithBothShapes) {
  FakeCheckpoint fake;
  fake.Remove("model.layers.0.mlp.up_proj.weight");
  fake.Add("model.layers.0.mlp.up_proj.weight", {kFfn, kDim + 1});
  ExpectRefused(fake, StatusCode::kDataLoss, {"model.layers.0.mlp.up_proj.weight", "[128, 64]", "[128, 65]"});
}

TEST(ModelLayout, NamesTheTensorOfUnsupportedType) {
  FakeCheckpoint fake;
  fake.Remove("model.norm.weight");
  fake.Add("model.norm.weight", {kDim}, DType::kF64);
  ExpectRefused(fake, StatusCode::kUnsupported, {"model.norm.weight", "F64"});

  FakeCheckpoint integers;
  integers.Remove("model.layers.0.self_attn.q_proj.weight");
  integers.Add("model.layers.0.self_attn.q_proj.weight", {kDim, kDim}, DType::kI32);
  ExpectRefused(integers, StatusCode::kUnsupported, {"model.layers.0.self_attn.q_proj.weight", "I32"});
}

TEST(ModelLayout, RefusesQuantisationThatDoesNotFit) {
  FakeCheckpoint seven_bits;
  seven_bits.Quantise("model.layers.0.mlp.gate_proj", kFfn, kDim, 7, 64);
  ExpectRefused(seven_bits, StatusCode::kUnsupported, {"model.layers.0.mlp.gate_proj.weight", "7 bits"});

  FakeCheckpoint no_biases;
  no_biases.Quantise("model.layers.0.mlp.gate_proj", kFfn, kDim, 4, 64);
  no_biases.Remove("model.layers.0.mlp.gate_proj.biases");
  ExpectRefused(no_biases, StatusCode::kNotFound, {"model.layers.0.mlp.gate_proj.biases", "missing"});

  FakeCheckpoint no_scales;
  no_scales.Quantise("model.layers.0.mlp.gate_proj", kFfn, kDim, 4, 64);
  no_scales.Remove("model.layers.0.mlp.gate_proj.scales");
  ExpectRefused(no_scales, StatusCode::kNotFound, {"model.layers.0.mlp.gate_proj.scales"});

  FakeCheckpoint odd_columns;
  odd_columns.Quantise("model.layers.0.mlp.gate_proj", kFfn, kDim, 4, 64);
  odd_columns.Remove("model.layers.0.mlp.gate_proj.scales");
  odd_columns.Add("model.layers.0.mlp.gate_proj.scales", {kFfn, 3});
  ExpectRefused(odd_columns, StatusCode::kDataLoss, {"model.layers.0.mlp.gate_proj.weight"});

  FakeCheckpoint entry_disagrees;
  entry_disagrees.Quantise("model.layers.0.mlp.gate_proj", kFfn, kDim, 4, 64);
  entry_disagrees.quantization().modules["model.layers.0.mlp.gate_proj"] =
      QuantSettings{.group_size = 32, .bits = 4, .mode = "affine"};
  ExpectRefused(entry_disagrees, StatusCode::kDataLoss,
                {"model.layers.0.mlp.gate_proj.weight", "groups of 32", "in 64"});

  FakeCheckpoint not_quantised;
  not_quantised.quantization().modules["model.layers.0.mlp.gate_proj"] = QuantSettings{};
  ExpectRefused(not_quantised, StatusCode::kDataLoss, {"model.layers.0.mlp.gate_proj.weight", "scales is missing"});
}

// Query, key and value may come as one matrix in any type.
TEST(ModelLayout, FindsRowsOfAFusedMatrix) {
  FakeCheckpoint fake;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    fake.Remove(std::string("model.layers.0.self_attn.") + name + ".weight");
  }
  fake.Add("model.layers.0.self_attn.qkv_proj.weight", {kDim + 2 * kKv, kDim});
  const ModelLayout layout = fake.Resolve().value();
  const PieceLayout& core = layout.pieces[1];
  EXPECT_EQ(core.parts.size(), 7u);
  const WeightUse& value = *FindWeight(core, Role::kValue);
  EXPECT_EQ(value.data, FindWeight(core, Role::kQuery)->data);
  EXPECT_EQ(value.row_begin, kDim + kKv);
  EXPECT_EQ(value.rows, kKv);
  EXPECT_EQ(value.stored_rows, kDim + 2 * kKv);

  fake.Remove("model.layers.0.self_attn.qkv_proj.weight");
  fake.Add("model.layers.0.self_attn.qkv_proj.weight", {kDim + kKv, kDim});
  ExpectRefused(fake, StatusCode::kDataLoss, {"qkv_proj.weight", "[128, 64]", "[96, 64]"});
}

TEST(ModelLayout, RefusesABiasThatTheConfigurationDenies) {
  FakeCheckpoint fake;
  fake.Add("model.layers.1.self_attn.q_proj.bias", {kDim});
  for (const char* name : {"k_proj", "v_proj"})
    fake.Add(std::string("model.layers.1.self_attn.") + name + ".bias", {kKv});
  fake.Add("model.layers.1.self_attn.o_proj.bias", {kDim});
  EXPECT_GE(FindWeight(fake.Resolve().value().pieces[2], Role::kQuery)->bias, 0);  // not said: the tensors tell
  fake.config().Set("attention_bias", false);
  ExpectRefused(fake, StatusCode::kDataLoss, {"model.layers.1.self_attn.q_proj.bias", "configuration"});
}

TEST(ModelLayout, RefusesExpertsThatAreNotAlike) {
  for (const int different : {0, 1}) {
    FakeCheckpoint fake;
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
             {"model_type", "mixtral"}, {"num_local_experts", 2}, {"num_experts_per_tok", 1}}) {
      fake.config().Set(key, value);
    }
    for (int layer = 0; layer < 2; ++layer) {
      const std::string moe = "model.layers." + std::to_string(layer) + ".block_sparse_moe.";
      fake.Add(moe + "gate.weight", {2, kDim});
      for (int expert = 0; expert < 2; ++expert) {
        const DType dtype = layer == 1 && expert == different ? DType::kF32 : DType::kBF16;
        const std::string one = moe + "experts." + std::to_string(expert);
        fake.Add(one + ".w1.weight", {kFfn, kDim});
        fake.Add(one + ".w3.weight", {kFfn, kDim});
        fake.Add(one + ".w2.weight", {kDim, kFfn}, dtype);
      }
    }
    ExpectRefused(fake, StatusCode::kUnsupported, {"layers.1", "experts.0.w2", "experts.1.w2", "f32", "bf16"});
  }
}

TEST(ModelLayout, SaysWhenItIsNoModelAtAll) {
  FakeCheckpoint fake;
  fake.Remove("model.embed_tokens.weight");
  ExpectRefused(fake, StatusCode::kNotFound, {"model.embed_tokens.weight", "missing"});
  FakeCheckpoint untyped;
  untyped.config().Set("model_type", Json());
  ExpectRefused(untyped, StatusCode::kDataLoss, {"model_type is missing"});
}

TEST(ModelLayout, RefusesATensorOfALayerThatHasNoPlaceThere) {
  FakeCheckpoint fake;
  fake.Add("model.layers.1.self_attn.q_norm.weight", {16});
  ExpectRefused(fake, StatusCode::kUnsupported, {"model.layers.1.self_attn.q_norm.weight", "model_type"});
}

TEST(ModelLayout, ListsTensorsThatNoRoleUses) {
  FakeCheckpoint fake;
  fake.Add("model.layers.0.self_attn.rotary_emb.inv_freq", {8}, DType::kF32);
  fake.Add("model.layers.7.mlp.up_proj.weight", {4, 4});
  EXPECT_EQ(fake.Resolve().value().ignored, (std::vector<std::string>{"model.layers.0.self_attn.rotary_emb.inv_freq",
                                                                      "model.layers.7.mlp.up_proj.weight"}));
}

}  // namespace
}  // namespace nunspark
