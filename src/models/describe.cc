#include "models/describe.h"

#include <fmt/format.h>

namespace nunspark {
namespace {

std::string Joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::string_view Text(Attention attention) {
  switch (attention) {
    case Attention::kGqa: return "grouped queries";
    case Attention::kMla: return "latent (MLA)";
    case Attention::kBorrowed: return "over the keys of the model it drafts for";
    case Attention::kSingleKey: return "over the row's own key";
  }
  return "";
}

std::string_view Text(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone: return "";
    case QkNorm::kPerHead: return ", head norms";
    case QkNorm::kPerHeadAfterRope: return ", head norms after RoPE";
    case QkNorm::kWholeRow: return ", norms over all heads";
  }
  return "";
}

std::string_view Text(Window window) {
  switch (window) {
    case Window::kNone: return "";
    case Window::kByFlag:
    case Window::kByFlagAll: return ", windows if switched on";
    case Window::kByType: return ", windows by layer type";
    case Window::kAll: return ", windows where given";
    case Window::kPattern: return ", windows by pattern";
    case Window::kAlternating: return ", windows in every other layer";
  }
  return "";
}

std::string_view Text(RopeConfig config) {
  switch (config) {
    case RopeConfig::kFlat: return "";
    case RopeConfig::kFlatPartial: return ", partial";
    case RopeConfig::kLocalGlobal: return ", local and global";
    case RopeConfig::kByLayerType: return ", by layer type";
    case RopeConfig::kAlpha: return ", alpha scaling";
  }
  return "";
}

std::string_view Text(Activation activation) {
  switch (activation) {
    case Activation::kSwiGlu: return "SwiGLU";
    case Activation::kGeGlu: return "GeGLU";
    case Activation::kSwiGluClipped: return "clipped SwiGLU";
    case Activation::kXielu: return "xIELU";
  }
  return "";
}

std::string Text(Ffn ffn, Router router) {
  const std::string_view order = router == Router::kTopKThenSoftmax ? "top-k then softmax" : "softmax then top-k";
  switch (ffn) {
    case Ffn::kDense: return "dense";
    case Ffn::kMoe: return fmt::format("experts ({})", order);
    case Ffn::kDenseAndMoe: return fmt::format("dense, or dense and experts ({})", order);
  }
  return "";
}

bool HasRole(const ArchSpec& spec, Role role) { return internal::CountRole(spec, role) > 0; }

}  // namespace

ArchDescription Describe(const ArchSpec& spec) {
  const BlockSpec& block = spec.block;
  ArchDescription d;
  d.name = std::string(spec.name) + (spec.aliases.empty() ? "" : fmt::format(" ({})", Joined(spec.aliases)));
  d.gguf = spec.gguf.empty() ? "-" : Joined(spec.gguf);
  d.attention = fmt::format("{}{}{}{}", Text(block.attention), Text(block.qk_norm),
                            HasRole(spec, Role::kSinks) ? ", sinks" : "", Text(block.window));
  d.rope = fmt::format("{}{}", block.rope == RopeForm::kHalves ? "halves" : "pairs", Text(block.rope_config));
  d.ffn = fmt::format("{}, {}", Text(block.ffn, block.router), Text(block.activation));
  if (HasRole(spec, Role::kPerLayerEmbed)) d.ffn += ", per-layer inputs";
  const bool before = HasRole(spec, Role::kAttentionNorm), after = HasRole(spec, Role::kPostAttentionNorm);
  d.norms = before && after ? "before and after" : before ? "before" : "after";
  return d;
}

std::string ModelsDocument() {
  std::string text =
      "# Supported models\n\n"
      "This page is written by `nunspark inspect --types`; a test keeps it so.\n\n"
      "`model_type` of config.json decides (in brackets: other names of the same definition), or\n"
      "`general.architecture` of a GGUF file. Multimodal models run as their text part.\n\n"
      "| model_type | GGUF | attention | RoPE | feed-forward | norms | defined by |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const ArchSpec* spec : SupportedArchs()) {
    const ArchDescription d = Describe(*spec);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", d.name, d.gguf, d.attention, d.rope, d.ffn, d.norms,
                        spec->authors_code);
  }
  text += fmt::format(
      "\n## Weight encodings\n\n"
      "All are decoded exactly, and streamed as they are stored.\n\n"
      "| encoding | stored as |\n|---|---|\n"
      "| f32, f16, bf16 | safetensors, GGUF |\n"
      "| affine, 1 to 6 and 8 bits in groups of 32, 64, 128 | MLX: codes, scales, biases |\n"
      "| mxfp4, mxfp8, nvfp4 | MLX: codes and one-byte scales; mxfp4 also as gpt-oss publishes it |\n"
      "| AWQ, 4 bits | qweight, qzeros, scales |\n"
      "| fp8 in blocks | F8_E4M3 with weight_scale_inv |\n"
      "| {} | GGUF blocks |\n",
      BlockFormatNames());
  return text;
}

}  // namespace nunspark
