#include "formats/gguf_facts.h"

#include <utility>

namespace nunspark {
namespace {

void SetMissing(Json& config, std::string_view key, Json value) {
  if (config.Find(key) == nullptr) config.Set(key, std::move(value));
}

// The converter adds 1 to all norms; the model's code does it as it runs (conversion/gemma.py, norm_shift).
void Gemma(Json& config) { config.Set("norm_plus_one", false); }

// Older files lack the sliding layers' RoPE base; none has query_pre_attn_scalar, which is the head's width except in
// the model with 62 layers (src/models/gemma3.cpp).
void Gemma3(Json& config) {
  Gemma(config);
  SetMissing(config, "rope_local_base_freq", 10000.0);
  const Json* const layers = config.Find("num_hidden_layers");
  const Json* const hidden = config.Find("hidden_size");
  const Json* const heads = config.Find("num_attention_heads");
  const Json* scalar = config.Find("head_dim");
  if (layers != nullptr && layers->is_int() && layers->as_int() == 62 && hidden != nullptr && hidden->is_int() &&
      heads != nullptr && heads->is_int()) {
    config.Set("query_pre_attn_scalar", hidden->as_int() / heads->as_int());
  } else if (scalar != nullptr) {
    config.Set("query_pre_attn_scalar", Json(*scalar));
  }
}

// The authors' config.json leaves YaRN's correction bounds fractional; the file cannot say so.
void GptOss(Json& config) {
  const Json* const found = config.Find("rope_scaling");
  if (found == nullptr || !found->is_object()) return;
  Json scaling = *found;
  scaling.Set("truncate", false);
  config.Set("rope_scaling", std::move(scaling));
}

// Every layer has experts, and their weights are normalised over the chosen ones (src/models/qwen3moe.cpp).
void Qwen3Moe(Json& config) {
  SetMissing(config, "norm_topk_prob", true);
  SetMissing(config, "decoder_sparse_step", 1);
  SetMissing(config, "mlp_only_layers", Json::Array());
}

// OLMo 3 says "olmo2" too. It is another type: layers with windows turn without the others' scaling.
void Olmo2(Json& config) {
  if (config.Find("layer_types") != nullptr) config.Set("model_type", "olmo3");
}

// From llama.cpp: llama_model_rope_type (src/llama-model.cpp), load_swa_pattern's callers (src/models), conversion/.
constexpr GgufFacts kFacts[] = {
    {.architecture = "llama", .interleaved_rope = true},
    {.architecture = "mistral3", .interleaved_rope = true},
    {.architecture = "smollm3", .interleaved_rope = true},
    {.architecture = "arcee", .interleaved_rope = true},
    {.architecture = "granite", .interleaved_rope = true},
    {.architecture = "minicpm", .interleaved_rope = true},
    {.architecture = "command-r", .interleaved_rope = true},
    {.architecture = "cohere2", .interleaved_rope = true, .window_period = 4},
    {.architecture = "olmo", .interleaved_rope = true},
    {.architecture = "internlm2", .interleaved_rope = true},
    {.architecture = "chatglm", .interleaved_rope = true},
    {.architecture = "glm4", .interleaved_rope = true},
    {.architecture = "ernie4_5", .interleaved_rope = true},
    {.architecture = "ernie4_5-moe", .interleaved_rope = true},
    {.architecture = "deepseek", .interleaved_rope = true},
    {.architecture = "deepseek2", .interleaved_rope = true},
    {.architecture = "gemma", .complete = Gemma},
    {.architecture = "gemma2", .window_period = 2, .complete = Gemma},
    {.architecture = "gemma3", .window_period = 6, .complete = Gemma3},
    {.architecture = "gpt-oss", .window_period = 2, .complete = GptOss},
    {.architecture = "olmo2", .window_period = 4, .complete = Olmo2},
    {.architecture = "qwen3moe", .complete = Qwen3Moe},
};

}  // namespace

GgufFacts FindGgufFacts(std::string_view architecture) {
  for (const GgufFacts& facts : kFacts) {
    if (facts.architecture == architecture) return facts;
  }
  return {.architecture = architecture};
}

}  // namespace nunspark
