#include "models/tensor_names.h"

namespace nunspark::internal {

std::string_view GgufName(Role role) {
  switch (role) {
    case Role::kEmbed: return "token_embd";
    case Role::kFinalNorm: return "output_norm";
    case Role::kHead: return "output";
    case Role::kAttentionNorm: return "attn_norm";
    case Role::kQuery: return "attn_q";
    case Role::kKey: return "attn_k";
    case Role::kValue: return "attn_v";
    case Role::kAttentionOut: return "attn_output";
    case Role::kQueryNorm: return "attn_q_norm";
    case Role::kKeyNorm: return "attn_k_norm";
    case Role::kSinks: return "attn_sinks";
    case Role::kPostAttentionNorm: return "post_attention_norm";
    case Role::kQueryA: return "attn_q_a";
    case Role::kQueryANorm: return "attn_q_a_norm";
    case Role::kQueryB: return "attn_q_b";
    case Role::kKvA: return "attn_kv_a_mqa";
    case Role::kKvANorm: return "attn_kv_a_norm";
    case Role::kKvB: return "attn_kv_b";
    case Role::kKeyB: return "attn_k_b";
    case Role::kValueB: return "attn_v_b";
    case Role::kFfnNorm: return "ffn_norm";
    case Role::kGate: return "ffn_gate";
    case Role::kUp: return "ffn_up";
    case Role::kDown: return "ffn_down";
    case Role::kPostFfnNorm: return "post_ffw_norm";
    case Role::kRouter: return "ffn_gate_inp";
    case Role::kRouterScale: return "ffn_gate_inp.scale";
    case Role::kPerExpertScale: return "ffn_down_exps.scale";
    case Role::kExpertNorm: return "pre_ffw_norm_2";
    case Role::kPostDenseNorm: return "post_ffw_norm_1";
    case Role::kPostExpertNorm: return "post_ffw_norm_2";
    case Role::kExpertGate: return "ffn_gate_exps";
    case Role::kExpertUp: return "ffn_up_exps";
    case Role::kExpertDown: return "ffn_down_exps";
    case Role::kPerLayerEmbed: return "per_layer_token_embd";
    case Role::kPerLayerModelProjection: return "per_layer_model_proj";
    case Role::kPerLayerProjectionNorm: return "per_layer_proj_norm";
    case Role::kPerLayerGate: return "inp_gate";
    case Role::kPerLayerProjection: return "proj";
    case Role::kPostPerLayerNorm: return "post_norm";
    case Role::kLayerScalar: return "layer_output_scale";
    case Role::kXieluAlphaP:
    case Role::kXieluAlphaN:
    case Role::kXieluBeta:
    case Role::kXieluEpsilon:
    case Role::kPreProjection:
    case Role::kPostProjection:
    case Role::kCentroids:
    case Role::kTokenOrdering: return "";
  }
  return "";
}

std::string_view FusedQkvName(Naming naming) {
  switch (naming) {
    case Naming::kHuggingFace: return "self_attn.qkv_proj";
    case Naming::kGguf: return "attn_qkv";
  }
  return "";
}

std::string_view OutsidePrefix(std::string_view model_prefix) {
  return model_prefix == "language_model.model." ? "language_model." : "";
}

}  // namespace nunspark::internal
