#include "pack/quantize_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/glob.h"
#include "formats/quantization.h"

namespace nunspark {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

std::string ModuleOf(const TensorSlice& part) {
  std::string_view name = part.name;
  if (name.ends_with(kWeightSuffix)) name.remove_suffix(kWeightSuffix.size());
  return std::string(name);
}

bool IsLinear(const ArchSpec& spec, Role role) {
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.role == role) return tensor.kind == TensorKind::kLinear;
  }
  return false;
}

Json SettingsJson(const QuantSettings& settings) {
  return Json(
      Json::Object{{"group_size", settings.group_size}, {"bits", settings.bits}, {"mode", Json(settings.mode)}});
}

class Planner {
 public:
  Planner(const ModelLayout& layout, std::span<const QuantizeRule> rules) : layout_(layout), rules_(rules) {}

  Result<QuantizePlan> Run(Json& config) {
    plan_.encodings.resize(layout_.pieces.size());
    matched_.resize(rules_.size(), false);
    for (size_t i = 0; i < layout_.pieces.size(); ++i) RETURN_IF_ERROR(PlanPiece(i));
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (matched_[i] || rules_[i].pattern.empty()) continue;
      return InvalidArgumentError(fmt::format("--quantize '{}': no module of this model matches {}; one is {}",
                                              QuantizeRuleText(rules_[i]), QuoteName(rules_[i].pattern), example_));
    }
    if (plan_.encoded == 0) return NothingToDo();
    WriteSettings(config);
    return std::move(plan_);
  }

 private:
  struct Choice {
    const QuantizeRule* rule = nullptr;
    std::optional<QuantSettings> settings;
  };

  Status PlanPiece(size_t index) {
    const PieceLayout& piece = layout_.pieces[index];
    std::vector<std::optional<PartEncoding>>& encodings = plan_.encodings[index];
    encodings.resize(piece.parts.size());
    for (const WeightUse& use : piece.weights) {
      if (!IsLinear(*layout_.spec, use.role)) continue;
      const auto part = static_cast<size_t>(use.data);
      // A fused matrix has several uses, one after another.
      if (encodings[part].has_value() || (&use != &piece.weights.front() && (&use - 1)->data == use.data)) continue;
      const std::string module = ModuleOf(piece.parts[part]);
      const Choice choice = Choose(piece, module, use.role);
      if (piece.kind == PieceKind::kExpert) RETURN_IF_ERROR(CheckExperts(piece, use.role, module, choice));
      if (!choice.settings.has_value()) continue;
      Encode(piece.parts[part], use, module, *choice.settings, encodings[part]);
      if (encodings[part].has_value()) NoteSettings(piece, module, *choice.settings);
    }
    return Status();
  }

  Choice Choose(const PieceLayout& piece, const std::string& module, Role role) {
    // Experts are known by two names.
    const std::string stacked = piece.kind == PieceKind::kExpert ? StackedName(piece, module) : module;
    if (example_.empty() || role == Role::kQuery) example_ = module;
    Choice choice;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const QuantizeRule& rule = rules_[i];
      const bool matches = GlobMatches(rule.pattern, module) || GlobMatches(rule.pattern, stacked);
      if (!rule.pattern.empty() && !matches) continue;
      matched_[i] = true;
      choice = {.rule = &rule, .settings = rule.settings};
    }
    if (role == Role::kRouter && choice.settings.has_value() && choice.rule->pattern.empty()) {
      choice.settings = QuantSettings{.group_size = 64, .bits = 8, .mode = "affine"};
    }
    return choice;
  }

  // The experts of a layer take turns in the same memory and are computed by the same plan.
  Status CheckExperts(const PieceLayout& piece, Role role, const std::string& module, const Choice& choice) {
    const auto [first, added] = experts_.try_emplace({piece.layer, role}, std::pair(module, choice));
    if (added || first->second.second.settings == choice.settings) return Status();
    const Choice& other = first->second.second;
    const QuantizeRule& rule = choice.rule != nullptr ? *choice.rule : *other.rule;
    return InvalidArgumentError(fmt::format(
        "--quantize '{}': the experts of a layer must have one encoding, but this rule sets {} apart from {}",
        QuantizeRuleText(rule), module, first->second.first));
  }

  // Sets `encoding`, or notes why not.
  void Encode(const TensorSlice& part, const WeightUse& use, const std::string& module, const QuantSettings& settings,
              std::optional<PartEncoding>& encoding) {
    const std::optional<FloatType> type = FloatTypeOf(part.dtype);
    if (!type.has_value()) {
      ++plan_.already_encoded;
      return;
    }
    const PartEncoding made{.format = EncodedFormat(settings, *type), .source = use.format.order};
    const int64_t inputs = part.shape.empty() ? 0 : made.Inputs(part);
    if (inputs == 0 || inputs % settings.group_size != 0) {
      plan_.kept.push_back(
          {module, fmt::format("its {} inputs are no multiple of the group size {}", inputs, settings.group_size)});
    } else if (made.source == MatrixOrder::kColumnMajor && part.shape.size() != 2) {
      plan_.kept.push_back({module, "it is stored by columns and is more than a matrix"});
    } else {
      encoding = made;
      ++plan_.encoded;
    }
  }

  void NoteSettings(const PieceLayout& piece, const std::string& module, const QuantSettings& settings) {
    const std::string name = piece.kind == PieceKind::kExpert ? StackedName(piece, module) : module;
    if (!settings_.empty() && settings_.back().first == name) return;
    if (piece.kind == PieceKind::kExpert && piece.expert > 0) return;  // said by the first
    settings_.emplace_back(name, settings);
  }

  // As config.json of an MLX checkpoint lists experts: "...mlp.experts.7.up_proj" is "...mlp.switch_mlp.up_proj".
  std::string StackedName(const PieceLayout& piece, const std::string& module) const {
    const ExpertNames& names = layout_.spec->experts.front();
    const std::string numbered = fmt::format("{}.{}.", names.unstacked, piece.expert);
    const size_t at = module.find(numbered);
    if (at == std::string::npos || names.stacked.empty()) return module;
    return fmt::format("{}{}.{}", module.substr(0, at), names.stacked, module.substr(at + numbered.size()));
  }

  Status NothingToDo() const {
    std::string reason = "no rule asks for an encoding";
    if (!plan_.kept.empty()) {
      reason = fmt::format("{} cannot be encoded: {}", plan_.kept[0].module, plan_.kept[0].reason);
    } else if (plan_.already_encoded > 0) {
      reason = fmt::format(
          "all {} weights that the rules reach are quantised already; start from the floating-point "
          "checkpoint",
          plan_.already_encoded);
    }
    return InvalidArgumentError(fmt::format("--quantize leaves nothing to encode: {}", reason));
  }

  // The settings of all modules, and one entry for each module of others.
  void WriteSettings(Json& config) const {
    Json* block = FindBlock(config);
    QuantSettings base = settings_.front().second;
    if (block != nullptr) {
      base = ParseQuantization(Json(Json::Object{{"quantization", *block}}), "config")->base;
    } else {
      for (const QuantizeRule& rule : rules_) {
        if (rule.pattern.empty() && rule.settings.has_value()) base = *rule.settings;
      }
      config.Set("quantization", SettingsJson(base));
      block = FindBlock(config);
    }
    for (const auto& [module, settings] : settings_) {
      // An entry of the source's, `false` for a module that was not quantised, would contradict.
      if (settings != base || block->Find(module) != nullptr) block->Set(module, SettingsJson(settings));
    }
  }

  // The block that ParseQuantization reads; nullptr when there is none.
  static Json* FindBlock(Json& config) {
    const auto member = [](Json& parent, std::string_view key) -> Json* {
      if (!parent.is_object()) return nullptr;
      for (auto& [name, value] : parent.as_object()) {
        if (name == key && value.is_object()) return &value;
      }
      return nullptr;
    };
    Json* const text = member(config, "text_config");
    for (const std::string_view key : {"quantization", "quantization_config"}) {
      for (Json* const holder : {&config, text}) {
        Json* const block = holder == nullptr ? nullptr : member(*holder, key);
        if (block == nullptr) continue;
        const Json* const method = block->Find("quant_method");
        if (key == "quantization" || method == nullptr || method->is_null()) return block;
      }
    }
    return nullptr;
  }

  const ModelLayout& layout_;
  const std::span<const QuantizeRule> rules_;
  QuantizePlan plan_;
  std::vector<bool> matched_;
  std::string example_;
  std::map<std::pair<int32_t, Role>, std::pair<std::string, Choice>> experts_;  // the first of each layer
  std::vector<std::pair<std::string, QuantSettings>> settings_;  // of encoded modules, as config names them
};

}  // namespace

std::optional<FloatType> FloatTypeOf(DType dtype) {
  if (dtype == DType::kF32) return FloatType::kF32;
  if (dtype == DType::kF16) return FloatType::kF16;
  if (dtype == DType::kBF16) return FloatType::kBF16;
  return std::nullopt;
}

int64_t PartElements(const TensorSlice& part) { return part.bytes / DTypeBytes(part.dtype); }

Result<QuantizePlan> PlanQuantization(const ModelLayout& layout, std::span<const QuantizeRule> rules, Json& config) {
  if (rules.empty()) return QuantizePlan();
  return Planner(layout, rules).Run(config);
}

std::vector<ManifestTensor> StoredTensors(const TensorSlice& part, const std::optional<PartEncoding>& encoding) {
  if (!encoding.has_value()) {
    return {{.name = part.name, .dtype = part.dtype, .shape = part.shape, .offset = 0, .bytes = part.bytes}};
  }
  const WeightFormat& format = encoding->format;
  const std::string module = ModuleOf(part);
  const auto tensor = [&](std::string_view suffix, DType dtype, int64_t cols) {
    std::vector<int64_t> shape = part.shape;
    if (encoding->source == MatrixOrder::kColumnMajor) shape.front() = shape.back();
    shape.back() = cols;
    const std::optional<int64_t> bytes = TensorBytes(shape, dtype);
    CHECK(bytes.has_value());
    return ManifestTensor{
        .name = fmt::format("{}.{}", module, suffix), .dtype = dtype, .shape = shape, .offset = 0, .bytes = *bytes};
  };
  const int64_t inputs = encoding->Inputs(part);
  const bool affine = format.encoding == Encoding::kAffine;
  std::vector<ManifestTensor> tensors = {
      tensor("weight", DType::kU32, inputs * format.bits / 32),
      tensor("scales", affine ? part.dtype : DType::kU8, inputs / format.group_size)};
  if (affine) tensors.push_back(tensor("biases", part.dtype, inputs / format.group_size));
  return tensors;
}

}  // namespace nunspark
