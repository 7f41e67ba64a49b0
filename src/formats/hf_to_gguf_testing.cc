#include "formats/hf_to_gguf_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/half.h"
#include "base/json.h"
#include "formats/config.h"
#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark {
namespace {

struct TypeRow {
  std::string_view hf;
  std::string_view gguf;
  bool permute = false;        // rows of q and k into interleaved order
  bool norm_plus_one = false;  // 1 is added to norms
};

constexpr TypeRow kTypes[] = {
    {"llama", "llama", true},
    {"mistral", "llama", true},
    {"internlm3", "llama", true},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen3_moe", "qwen3moe"},
    {"gemma3_text", "gemma3", false, true},
    {"gemma4_text", "gemma4"},
    {"gpt_oss", "gpt-oss"},
    {"olmo2", "olmo2"},
    {"phi3", "phi3"},
    {"glm", "chatglm"},
    {"glm4", "glm4"},
    {"ernie4_5", "ernie4_5"},
    {"hunyuan_v1_dense", "hunyuan-dense"},
    {"seed_oss", "seed_oss"},
    {"apertus", "apertus"},
    {"youtu_llm", "deepseek2"},
};

// Modules of a layer; the first row that fits the type wins. Source: gguf-py's tensor_mapping.py.
struct NameRow {
  std::string_view types;  // separated by spaces; "" = all
  std::string_view hf;
  std::string_view gguf;
};

constexpr NameRow kNames[] = {
    {"glm4", "post_attention_layernorm", "ffn_norm"},
    {"glm4", "post_self_attn_layernorm", "post_attention_norm"},
    {"glm4", "post_mlp_layernorm", "post_ffw_norm"},
    {"gemma3_text gemma4_text olmo2 seed_oss gpt_oss", "post_attention_layernorm", "post_attention_norm"},
    {"apertus", "attention_layernorm", "attn_norm"},
    {"apertus", "feedforward_layernorm", "ffn_norm"},
    {"", "input_layernorm", "attn_norm"},
    {"", "post_attention_layernorm", "ffn_norm"},
    {"", "pre_feedforward_layernorm", "ffn_norm"},
    {"", "post_feedforward_layernorm", "post_ffw_norm"},
    {"", "pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"", "post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"", "post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"", "self_attn.q_proj", "attn_q"},
    {"", "self_attn.k_proj", "attn_k"},
    {"", "self_attn.v_proj", "attn_v"},
    {"", "self_attn.qkv_proj", "attn_qkv"},
    {"", "self_attn.o_proj", "attn_output"},
    {"", "self_attn.q_norm", "attn_q_norm"},
    {"", "self_attn.k_norm", "attn_k_norm"},
    {"", "self_attn.query_layernorm", "attn_q_norm"},
    {"", "self_attn.key_layernorm", "attn_k_norm"},
    {"", "self_attn.sinks", "attn_sinks"},
    {"", "self_attn.q_a_proj", "attn_q_a"},
    {"", "self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"", "self_attn.q_b_proj", "attn_q_b"},
    {"", "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"", "self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"", "self_attn.k_b_proj", "attn_k_b"},
    {"", "self_attn.v_b_proj", "attn_v_b"},
    {"", "mlp.gate_proj", "ffn_gate"},
    {"", "mlp.up_proj", "ffn_up"},
    {"", "mlp.gate_up_proj", "ffn_up"},
    {"", "mlp.down_proj", "ffn_down"},
    {"", "mlp.gate", "ffn_gate_inp"},
    {"", "mlp.router", "ffn_gate_inp"},
    {"", "router.proj", "ffn_gate_inp"},
    {"", "mlp.experts.gate_proj", "ffn_gate_exps"},
    {"", "mlp.experts.up_proj", "ffn_up_exps"},
    {"", "mlp.experts.down_proj", "ffn_down_exps"},
    {"", "experts.gate_up_proj", "ffn_gate_up_exps"},
    {"", "experts.down_proj", "ffn_down_exps"},
    {"", "per_layer_input_gate", "inp_gate"},
    {"", "per_layer_projection", "proj"},
    {"", "post_per_layer_input_norm", "post_norm"},
    {"", "layer_scalar", "layer_output_scale"},
};

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

using Tensors = std::map<std::string, Tensor>;

float ToFloat(DType dtype, const uint8_t* at) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return dtype == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
}

Tensors ReadTensors(const std::string& path) {
  const Result<SafetensorsFile> parsed = ReadSafetensorsFile(path);
  CHECK(parsed.ok());
  const Result<File> file = File::OpenRead(path);
  CHECK(file.ok());
  Tensors tensors;
  for (const TensorInfo& info : parsed->tensors) {
    CHECK(info.dtype == DType::kF32 || info.dtype == DType::kF16 || info.dtype == DType::kBF16);
    std::vector<uint8_t> bytes(static_cast<size_t>(info.bytes));
    CHECK(file->ReadAt(info.offset, bytes).ok());
    Tensor tensor{.shape = info.shape, .values = {}};
    const auto step = static_cast<size_t>(DTypeBytes(info.dtype));
    for (size_t at = 0; at < bytes.size(); at += step) tensor.values.push_back(ToFloat(info.dtype, bytes.data() + at));
    tensors.emplace(info.name, std::move(tensor));
  }
  return tensors;
}

// [rows, ...] in another order of rows.
Tensor RowsAt(const Tensor& from, const std::vector<int64_t>& rows) {
  Tensor to{.shape = from.shape, .values = {}};
  to.shape[0] = static_cast<int64_t>(rows.size());
  const int64_t width = from.size() / from.shape[0];
  for (const int64_t row : rows) {
    to.values.insert(to.values.end(), from.values.begin() + row * width, from.values.begin() + (row + 1) * width);
  }
  return to;
}

// Rows (j, j + d/2) of each head become neighbours. Vectors too.
Tensor Permuted(const Tensor& from, int64_t heads) {
  const int64_t width = from.shape[0] / heads;
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t pair = 0; pair < width / 2; ++pair) {
      rows.push_back(head * width + pair);
      rows.push_back(head * width + pair + width / 2);
    }
  }
  return RowsAt(from, rows);
}

// [n, rows, cols] -> [n, cols, rows].
Tensor Transposed(const Tensor& from) {
  const int64_t rows = from.shape[1];
  const int64_t cols = from.shape[2];
  Tensor to{.shape = {from.shape[0], cols, rows}, .values = std::vector<float>(from.values.size())};
  for (int64_t n = 0; n < from.shape[0]; ++n) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        to.values[static_cast<size_t>((n * cols + col) * rows + row)] =
            from.values[static_cast<size_t>((n * rows + row) * cols + col)];
      }
    }
  }
  return to;
}

// Rows begin, begin + step, ... of the next-to-last axis of a matrix per expert, or of a vector per expert.
Tensor EveryRow(const Tensor& from, size_t axis, int64_t begin, int64_t step, int64_t end) {
  Tensor flat = from;
  const int64_t outer = from.shape[0];
  const int64_t rows = from.shape[axis];
  flat.shape = {outer * rows, from.size() / outer / rows};
  std::vector<int64_t> wanted;
  for (int64_t n = 0; n < outer; ++n) {
    for (int64_t row = begin; row < end; row += step) wanted.push_back(n * rows + row);
  }
  Tensor to = RowsAt(flat, wanted);
  to.shape = from.shape;
  to.shape[axis] = static_cast<int64_t>(wanted.size()) / outer;
  return to;
}

class Converter {
 public:
  Converter(Json config, Tensors tensors, HfToGgufOptions options)
      : config_(std::move(config)), tensors_(std::move(tensors)), options_(options) {}

  GgufBuilder Convert();

 private:
  const Json* Given(std::string_view key) const {
    const Json* const value = config_.Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  int64_t Int(std::string_view key) const {
    CHECK(Given(key) != nullptr);
    return Given(key)->as_int();
  }
  std::string Key(std::string_view name) const { return fmt::format("{}.{}", type_.gguf, name); }
  int64_t HeadDim() const {
    return Given("head_dim") != nullptr ? Int("head_dim") : Int("hidden_size") / Int("num_attention_heads");
  }

  void WriteKeys();
  void WriteGemma4Keys();
  void WriteRope();
  void WriteRopeFactors(const Json& scaling, double theta);
  void StackExperts();
  void SplitGptOss();
  void SplitLatent();
  void FuseQkv();
  void WriteTensors();
  std::string Name(const std::string& hf) const;

  Json config_;
  Tensors tensors_;
  HfToGgufOptions options_;
  TypeRow type_;
  GgufBuilder builder_;
};

GgufBuilder Converter::Convert() {
  const std::string& hf = Given("model_type")->as_string();
  const auto row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& type) { return type.hf == hf; });
  CHECK(row != std::end(kTypes));
  type_ = *row;
  WriteKeys();
  WriteRope();
  StackExperts();
  if (hf == "gpt_oss") SplitGptOss();
  if (hf == "youtu_llm") SplitLatent();
  for (auto& [name, tensor] : tensors_) {
    const bool norm = name.ends_with("norm.weight");
    if (type_.norm_plus_one && norm) {
      for (float& value : tensor.values) value += 1;
    }
    if (!type_.permute) continue;
    if (name.find("q_proj.") != std::string::npos) tensor = Permuted(tensor, Int("num_attention_heads"));
    if (name.find("k_proj.") != std::string::npos) tensor = Permuted(tensor, Int("num_key_value_heads"));
  }
  if (options_.fuse_qkv) FuseQkv();
  WriteTensors();
  return std::move(builder_);
}

void Converter::WriteKeys() {
  builder_.Text("general.architecture", type_.gguf);
  constexpr std::pair<std::string_view, std::string_view> kInts[] = {
      {"num_hidden_layers", "block_count"},
      {"max_position_embeddings", "context_length"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"num_experts", "expert_count"},
      {"num_local_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"top_k_experts", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"},
      {"q_lora_rank", "attention.q_lora_rank"},
      {"kv_lora_rank", "attention.kv_lora_rank"},
  };
  const bool latent = type_.hf == "youtu_llm";
  const bool gemma4 = type_.hf == "gemma4_text";
  std::vector<std::string_view> written;
  for (const auto& [hf, gguf] : kInts) {
    const bool again = std::find(written.begin(), written.end(), gguf) != written.end();
    if (Given(hf) == nullptr || again || (gguf == "attention.head_count_kv" && (latent || gemma4))) continue;
    builder_.U32(Key(gguf), static_cast<uint32_t>(Int(hf)));
    written.push_back(gguf);
  }
  builder_.F32(Key("attention.layer_norm_rms_epsilon"), static_cast<float>(Given("rms_norm_eps")->as_double()));
  if (Given("final_logit_softcapping") != nullptr) {
    builder_.F32(Key("final_logit_softcapping"), static_cast<float>(Given("final_logit_softcapping")->as_double()));
  }
  // Only these write it; for the others the converter forgets a window.
  if (Given("sliding_window") != nullptr &&
      (type_.hf.starts_with("gemma") || type_.hf == "gpt_oss" || type_.hf == "phi3")) {
    builder_.U32(Key("attention.sliding_window"), static_cast<uint32_t>(Int("sliding_window")));
  }
  const auto width = [&](std::string_view key, int64_t value) { builder_.U32(Key(key), static_cast<uint32_t>(value)); };
  if (gemma4) return WriteGemma4Keys();
  if (latent) {
    const int64_t rotated = Int("qk_rope_head_dim");
    width("attention.head_count_kv", 1);
    width("attention.key_length", Int("kv_lora_rank") + rotated);
    width("attention.value_length", Int("kv_lora_rank"));
    width("attention.key_length_mla", Int("qk_nope_head_dim") + rotated);
    width("attention.value_length_mla", Int("v_head_dim"));
    return width("rope.dimension_count", rotated);
  }
  if (Given("head_dim") != nullptr && type_.gguf != "chatglm") {
    width("attention.key_length", HeadDim());
    width("attention.value_length", HeadDim());
  }
  if (Given("partial_rotary_factor") != nullptr || type_.gguf == "chatglm") {
    const double factor = Given("partial_rotary_factor") != nullptr ? Given("partial_rotary_factor")->as_double() : 0.5;
    width("rope.dimension_count", static_cast<int64_t>(static_cast<double>(HeadDim()) * factor));
  }
}

void Converter::WriteGemma4Keys() {
  const auto number = [&](std::string_view key, int64_t value) {
    builder_.U32(Key(key), static_cast<uint32_t>(value));
  };
  std::vector<bool> slides;
  for (const Json& type : Given("layer_types")->as_array()) slides.push_back(type == Json("sliding_attention"));
  builder_.Flags(Key("attention.sliding_window_pattern"), slides);
  // Layers that see everything may have other widths and fewer heads, which the tensors show.
  std::vector<int32_t> kv_heads;
  int64_t wide = Int("head_dim");
  for (size_t i = 0; i < slides.size(); ++i) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", i);
    const int64_t head = tensors_.at(prefix + "q_norm.weight").shape[0];
    if (!slides[i]) wide = head;
    const auto key = tensors_.find(prefix + "k_proj.weight");
    kv_heads.push_back(
        static_cast<int32_t>(key == tensors_.end() ? Int("num_key_value_heads") : key->second.shape[0] / head));
  }
  builder_.Numbers(Key("attention.head_count_kv"), kv_heads);
  number("attention.key_length", wide);
  number("attention.value_length", wide);
  number("attention.key_length_swa", Int("head_dim"));
  number("attention.value_length_swa", Int("head_dim"));
  number("attention.shared_kv_layers", Given("num_kv_shared_layers") != nullptr ? Int("num_kv_shared_layers") : 0);
  number("embedding_length_per_layer_input",
         Given("hidden_size_per_layer_input") != nullptr ? Int("hidden_size_per_layer_input") : 0);
  number("rope.dimension_count", wide);
  number("rope.dimension_count_swa", Int("head_dim"));
  const Json& full = *Given("rope_parameters")->Find("full_attention");
  const Json& sliding = *Given("rope_parameters")->Find("sliding_attention");
  builder_.F32(Key("rope.freq_base"), static_cast<float>(full.Find("rope_theta")->as_double()));
  builder_.F32(Key("rope.freq_base_swa"), static_cast<float>(sliding.Find("rope_theta")->as_double()));
  const auto turned =
      static_cast<int64_t>(static_cast<double>(wide) * full.Find("partial_rotary_factor")->as_double() / 2);
  std::vector<float> factors(static_cast<size_t>(wide / 2), 1e30F);
  std::fill(factors.begin(), factors.begin() + turned, 1.0F);
  builder_.Floats("rope_freqs.weight", {wide / 2}, factors);
}

void Converter::WriteRope() {
  if (Given("rope_theta") == nullptr) return;
  double theta = Given("rope_theta")->as_double();
  const Json* const scaling = Given("rope_scaling");
  const Json* type = scaling == nullptr ? nullptr : scaling->Find("type");
  if (scaling != nullptr && type == nullptr) type = scaling->Find("rope_type");
  const std::string name = type == nullptr ? "default" : type->as_string();
  const auto number = [&](const char* key) { return static_cast<float>(scaling->Find(key)->as_double()); };
  if (name == "linear" || name == "yarn") {
    builder_.Text(Key("rope.scaling.type"), name).F32(Key("rope.scaling.factor"), number("factor"));
  }
  if (name == "yarn") {
    builder_.U32(Key("rope.scaling.original_context_length"),
                 static_cast<uint32_t>(scaling->Find("original_max_position_embeddings")->as_int()));
    for (const char* const key : {"beta_fast", "beta_slow"}) {
      if (scaling->Find(key) != nullptr) builder_.F32(Key(fmt::format("rope.scaling.yarn_{}", key)), number(key));
    }
  }
  if (name == "dynamic" && scaling->Find("alpha") != nullptr) {
    const auto width = static_cast<double>(HeadDim());
    theta *= std::pow(scaling->Find("alpha")->as_double(), width / (width - 2));
    builder_.Text(Key("rope.scaling.type"), "none").F32(Key("rope.scaling.factor"), 1);
  }
  if (name == "llama3" || name == "longrope") WriteRopeFactors(*scaling, theta);
  builder_.F32(Key("rope.freq_base"), static_cast<float>(theta));
  if (Given("rope_local_base_freq") != nullptr) {
    builder_.F32(Key("rope.freq_base_swa"), static_cast<float>(Given("rope_local_base_freq")->as_double()));
  }
}

void Converter::WriteRopeFactors(const Json& scaling, double theta) {
  const int64_t width = HeadDim();
  const auto number = [&](const char* key) { return scaling.Find(key)->as_double(); };
  if (scaling.Find("long_factor") == nullptr) {
    const double original = number("original_max_position_embeddings");
    const double low = original / number("low_freq_factor");
    const double high = original / number("high_freq_factor");
    std::vector<float> factors;
    for (int64_t i = 0; i < width; i += 2) {
      const double wavelength = 2 * M_PI * std::pow(theta, static_cast<double>(i) / static_cast<double>(width));
      const double smooth = (original / wavelength - number("low_freq_factor")) /
                            (number("high_freq_factor") - number("low_freq_factor"));
      const double between = 1 / ((1 - smooth) / number("factor") + smooth);
      factors.push_back(static_cast<float>(wavelength < high ? 1 : wavelength > low ? number("factor") : between));
    }
    builder_.Floats("rope_freqs.weight", {width / 2}, factors);
    return;
  }
  for (const char* const key : {"long", "short"}) {
    std::vector<float> factors;
    for (const Json& factor : scaling.Find(fmt::format("{}_factor", key))->as_array()) {
      factors.push_back(static_cast<float>(factor.as_double()));
    }
    builder_.Floats(fmt::format("rope_factors_{}.weight", key), {static_cast<int64_t>(factors.size())}, factors);
  }
  const auto original = static_cast<double>(Int("original_max_position_embeddings"));
  const double scale = static_cast<double>(Int("max_position_embeddings")) / original;
  builder_.Text(Key("rope.scaling.type"), "longrope");
  builder_.U32(Key("rope.scaling.original_context_length"), static_cast<uint32_t>(original));
  builder_.F32(Key("rope.scaling.attn_factor"),
               static_cast<float>(scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1.0));
}

// "mlp.experts.3.up_proj.weight" of all experts into "mlp.experts.up_proj.weight".
void Converter::StackExperts() {
  constexpr std::string_view kMark = ".mlp.experts.";
  Tensors stacked;
  for (int64_t expert = 0;; ++expert) {
    bool found = false;
    for (auto it = tensors_.begin(); it != tensors_.end();) {
      const std::string prefix = fmt::format("{}{}.", kMark, expert);
      const size_t at = it->first.find(prefix);
      if (at == std::string::npos) {
        ++it;
        continue;
      }
      found = true;
      Tensor& all = stacked[it->first.substr(0, at) + std::string(kMark) + it->first.substr(at + prefix.size())];
      all.values.insert(all.values.end(), it->second.values.begin(), it->second.values.end());
      all.shape = {expert + 1, it->second.shape[0], it->second.shape[1]};
      it = tensors_.erase(it);
    }
    if (!found) break;
  }
  tensors_.merge(stacked);
}

// Float experts [experts, in, out], rows of gate and up in turns.
void Converter::SplitGptOss() {
  Tensors split;
  for (auto& [name, tensor] : tensors_) {
    const size_t at = name.find("experts.");
    if (at == std::string::npos) {
      split[name] = std::move(tensor);
      continue;
    }
    const bool bias = name.ends_with("_bias");
    const Tensor straight = bias ? tensor : Transposed(tensor);
    const std::string prefix = name.substr(0, at) + "experts.";
    const std::string suffix = bias ? ".bias" : ".weight";
    if (name.find("gate_up_proj") == std::string::npos) {
      split[prefix + "down_proj" + suffix] = straight;
      continue;
    }
    split[prefix + "gate_proj" + suffix] = EveryRow(straight, 1, 0, 2, straight.shape[1]);
    split[prefix + "up_proj" + suffix] = EveryRow(straight, 1, 1, 2, straight.shape[1]);
  }
  tensors_ = std::move(split);
}

void Converter::SplitLatent() {
  const int64_t heads = Int("num_attention_heads");
  const int64_t keys = Int("qk_nope_head_dim");
  Tensors split;
  for (auto& [name, tensor] : tensors_) {
    const size_t at = name.find("kv_b_proj");
    if (at == std::string::npos) {
      split[name] = std::move(tensor);
      continue;
    }
    const int64_t rows = tensor.shape[0] / heads;
    tensor.shape = {heads, rows, tensor.shape[1]};
    split[name.substr(0, at) + "k_b_proj.weight"] = Transposed(EveryRow(tensor, 1, 0, 1, keys));
    split[name.substr(0, at) + "v_b_proj.weight"] = EveryRow(tensor, 1, keys, 1, rows);
  }
  tensors_ = std::move(split);
}

void Converter::FuseQkv() {
  for (int64_t layer = 0; layer < Int("num_hidden_layers"); ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    for (const std::string_view suffix : {".weight", ".bias"}) {
      Tensor fused;
      for (const char* const part : {"q_proj", "k_proj", "v_proj"}) {
        const auto found = tensors_.find(fmt::format("{}{}{}", prefix, part, suffix));
        if (found == tensors_.end()) continue;
        const int64_t rows = fused.shape.empty() ? 0 : fused.shape[0];
        fused.shape = found->second.shape;
        fused.shape[0] += rows;
        fused.values.insert(fused.values.end(), found->second.values.begin(), found->second.values.end());
        tensors_.erase(found);
      }
      if (!fused.shape.empty()) tensors_[fmt::format("{}qkv_proj{}", prefix, suffix)] = std::move(fused);
    }
  }
}

std::string Converter::Name(const std::string& hf) const {
  constexpr std::pair<std::string_view, std::string_view> kWhole[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
      {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
      {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
  for (const auto& [from, to] : kWhole) {
    if (hf == from) return std::string(to);
  }
  constexpr std::string_view kLayers = "model.layers.";
  CHECK(hf.starts_with(kLayers));
  const size_t dot = hf.find('.', kLayers.size());
  const std::string block = fmt::format("blk.{}.", hf.substr(kLayers.size(), dot - kLayers.size()));
  std::string module = hf.substr(dot + 1);
  if (module == "router.scale") return block + "ffn_gate_inp.scale";
  if (module == "router.per_expert_scale") return block + "ffn_down_exps.scale";
  std::string suffix = ".weight";
  for (const std::string_view known : {".weight", ".bias"}) {
    if (!module.ends_with(known)) continue;
    suffix = known;
    module.resize(module.size() - known.size());
  }
  for (const NameRow& row : kNames) {
    const bool fits =
        row.types.empty() || fmt::format(" {} ", row.types).find(fmt::format(" {} ", type_.hf)) != std::string::npos;
    if (fits && row.hf == module) return fmt::format("{}{}{}", block, row.gguf, suffix);
  }
  const bool has_a_name_in_gguf = false;
  CHECK(has_a_name_in_gguf);
  return "";
}

void Converter::WriteTensors() {
  std::map<std::string, std::vector<float>> xielu;
  for (const auto& [name, tensor] : tensors_) {
    if (name.find(".act_fn.") != std::string::npos) {
      xielu[name.substr(name.rfind('.') + 1)].push_back(tensor.values[0]);  // layers below 10 are in order
      continue;
    }
    if (name == "lm_head.weight" && Given("tie_word_embeddings") != nullptr && Given("tie_word_embeddings")->as_bool())
      continue;
    const std::string gguf = Name(name);
    if (tensor.shape.size() < 2 || gguf.ends_with(".bias") || gguf.ends_with("ffn_gate_inp.weight")) {
      builder_.Floats(gguf, tensor.shape, tensor.values);
      continue;
    }
    std::string bytes;
    for (const float value : tensor.values) {
      const uint16_t half = FloatToBf16(value);
      bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
    builder_.Tensor(gguf, "BF16", tensor.shape, std::move(bytes));
  }
  for (const auto& [name, values] : xielu) builder_.Numbers(fmt::format("xielu.{}", name), values);
}

}  // namespace

GgufBuilder GgufOfHf(const std::string& folder, const HfToGgufOptions& options) {
  const std::string path = JoinPath(folder, "config.json");
  const Result<std::string> text =
      ReadRegularFile(path, {.max_bytes = kMaxConfigBytes, .limit_reason = kConfigLimitReason});
  CHECK(text.ok());
  Result<Json> json = ParseJson(*text, path);
  CHECK(json.ok());
  Result<Json> config = NormalizeConfig(std::move(json).value(), path);
  CHECK(config.ok());
  return Converter(std::move(config).value(), ReadTensors(JoinPath(folder, "model.safetensors")), options).Convert();
}

}  // namespace nunspark
