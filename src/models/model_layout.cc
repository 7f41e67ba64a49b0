#include "models/model_layout.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_set>

#include <fmt/format.h>

namespace nunspark {
namespace {

// Prefixes in use for the base model; the first whose embedding exists is taken. Packs always use the first.
constexpr std::string_view kPrefixes[] = {"model.", "language_model.model.", ""};

// Builds the layout piece by piece, remembering which tensors found a use.
class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, ModelLayout& layout)
      : checkpoint_(checkpoint), tensors_(checkpoint.tensors), layout_(layout), hparams_(layout.hparams) {}

  Status Run() {
    RETURN_IF_ERROR(FindPrefix());
    const TensorSpec& head = *SpecOf(Role::kHead);
    // A tied flag wins over a head that is there all the same; without a flag or head the embedding serves.
    if (tensors_.Find(HeadModule(head) + ".weight") == nullptr) hparams_.tied = true;

    RETURN_IF_ERROR(AddEmbed());
    for (int32_t layer = 0; layer < hparams_.layers; ++layer) RETURN_IF_ERROR(AddLayer(layer));
    RETURN_IF_ERROR(AddNormHead(head));
    for (PieceLayout& piece : layout_.pieces) {
      for (const TensorSlice& part : piece.parts) piece.bytes += part.bytes;
      layout_.total_bytes += piece.bytes;
    }
    ListIgnored();
    return Status();
  }

 private:
  const TensorSpec* SpecOf(Role role) const {
    for (const TensorSpec& spec : layout_.spec->tensors) {
      if (spec.role == role) return &spec;
    }
    return nullptr;
  }

  std::string HeadModule(const TensorSpec& head) const {
    // lm_head stands beside the base model, under the wrapper's prefix if there is one.
    return prefix_ == "language_model.model." ? "language_model." + std::string(head.name) : std::string(head.name);
  }

  Status FindPrefix() {
    const std::string embed = std::string(SpecOf(Role::kEmbed)->name) + ".weight";
    for (const std::string_view prefix : kPrefixes) {
      if (tensors_.Find(std::string(prefix) + embed) == nullptr) continue;
      prefix_ = prefix;
      return Status();
    }
    return NotFoundError(
        fmt::format("{}: tensor model.{} is missing ({} tensors found); is this a complete {} checkpoint?",
                    checkpoint_.folder, embed, tensors_.tensors().size(), layout_.spec->name));
  }

  int64_t Size(Dim dim) const {
    switch (dim) {
      case Dim::kVocab: return hparams_.vocab_size;
      case Dim::kModel: return hparams_.model_dim;
      case Dim::kQueryOut: return hparams_.query_out();
      case Dim::kKvOut: return hparams_.kv_out();
      case Dim::kHeadDim: return hparams_.head_dim;
      case Dim::kFfn: return hparams_.ffn_dim;
      case Dim::kExpertFfn: return hparams_.expert_ffn_dim;
      case Dim::kExperts: return hparams_.experts;
    }
    return 0;
  }

  bool HasBias(Bias bias) const {
    switch (bias) {
      case Bias::kNever: return false;
      case Bias::kAlways: return true;
      case Bias::kAttentionFlag: return hparams_.attention_bias;
      case Bias::kMlpFlag: return hparams_.mlp_bias;
    }
    return false;
  }

  PieceLayout& NewPiece(PieceKind kind, int32_t layer, int32_t expert, std::string id) {
    PieceLayout& piece = layout_.pieces.emplace_back();
    piece.kind = kind;
    piece.layer = layer;
    piece.expert = expert;
    piece.id = std::move(id);
    return piece;
  }

  PieceId LastPiece() const { return static_cast<PieceId>(layout_.pieces.size()) - 1; }

  Status AddEmbed() {
    PieceLayout& piece = NewPiece(PieceKind::kEmbed, -1, -1, "embed");
    layout_.embed = LastPiece();
    const TensorSpec& spec = *SpecOf(Role::kEmbed);
    return AddTensor(spec, prefix_ + std::string(spec.name), "model." + std::string(spec.name), piece);
  }

  Status AddNormHead(const TensorSpec& head) {
    PieceLayout& piece = NewPiece(PieceKind::kNormHead, -1, -1, "norm_head");
    layout_.norm_head = LastPiece();
    const TensorSpec& norm = *SpecOf(Role::kFinalNorm);
    RETURN_IF_ERROR(AddTensor(norm, prefix_ + std::string(norm.name), "model." + std::string(norm.name), piece));
    if (hparams_.tied) return Status();
    return AddTensor(head, HeadModule(head), std::string(head.name), piece);
  }

  Status AddLayer(int32_t layer) {
    const bool moe = hparams_.moe_layer[static_cast<size_t>(layer)];
    PieceLayout& core = NewPiece(PieceKind::kCore, layer, -1, fmt::format("layer_{:03}{}", layer, moe ? "_core" : ""));
    layout_.core.push_back(LastPiece());
    const std::string tail = fmt::format("layers.{}.", layer);
    for (const TensorSpec& spec : layout_.spec->tensors) {
      const bool wanted = spec.place == Place::kLayer || spec.place == (moe ? Place::kMoeFfn : Place::kDenseFfn);
      if (!wanted) continue;
      const std::string name = tail + std::string(spec.name);
      RETURN_IF_ERROR(AddTensor(spec, prefix_ + name, "model." + name, core));
    }
    layout_.first_expert.push_back(moe ? LastPiece() + 1 : -1);
    return moe ? AddExperts(layer, tail) : Status();
  }

  Status AddExperts(int32_t layer, const std::string& tail) {
    const ExpertNames& names = layout_.spec->experts;
    const std::string probe =
        fmt::format("{}{}{}.{}.weight", prefix_, tail, names.stacked, SpecOf(Role::kExpertGate)->name);
    const bool stacked = !names.stacked.empty() && tensors_.Find(probe) != nullptr;
    for (int32_t expert = 0; expert < hparams_.experts; ++expert) {
      PieceLayout& piece =
          NewPiece(PieceKind::kExpert, layer, expert, fmt::format("layer_{:03}_expert_{}", layer, expert));
      for (const TensorSpec& spec : layout_.spec->tensors) {
        if (spec.place != Place::kExpert) continue;
        const std::string unstacked_name = fmt::format("{}{}.{}.{}", tail, names.unstacked, expert, spec.name);
        const std::string stacked_name = fmt::format("{}{}.{}", tail, names.stacked, spec.name);
        const std::string module = prefix_ + (stacked ? stacked_name : unstacked_name);
        // A pack keeps the source's config, whose entries may go by the stacked name.
        other_module_ = prefix_ + stacked_name;
        RETURN_IF_ERROR(AddTensor(spec, module, "model." + unstacked_name, piece, stacked ? expert : -1));
      }
    }
    other_module_.clear();
    return Status();
  }

  // Adds the tensors of one spec to `piece`: weight, then scales and biases if quantised, then the additive bias.
  // expert >= 0: row `expert` of stacked tensors.
  Status AddTensor(const TensorSpec& spec, const std::string& module, const std::string& pack_module,
                   PieceLayout& piece, int32_t expert = -1) {
    WeightUse use;
    use.role = spec.role;
    use.cols = Size(spec.cols);
    use.rows = spec.kind == TensorKind::kVector ? 1 : Size(spec.rows);
    ASSIGN_OR_RETURN(const TensorInfo* weight, Require(module + ".weight"));
    const bool quantised = tensors_.Find(module + ".scales") != nullptr;
    if (spec.kind == TensorKind::kLinear && (quantised || weight->dtype == DType::kU32)) {
      RETURN_IF_ERROR(AddAffine(*weight, module, pack_module, expert, use, piece));
    } else {
      ASSIGN_OR_RETURN(const FloatType type, FloatTypeOf(*weight));
      if (const auto* const entry = SettingsOf(module); entry != nullptr && entry->has_value()) {
        return DataLossError(fmt::format("{}: tensor {}: config.json says it is quantised, but {}.scales is missing",
                                         checkpoint_.folder, weight->name, module));
      }
      use.format = FloatFormat(type);
      std::vector<int64_t> shape = {use.rows, use.cols};
      if (spec.kind == TensorKind::kVector) shape = {use.cols};
      ASSIGN_OR_RETURN(use.data, AddPart(*weight, pack_module + ".weight", shape, expert, piece));
    }
    if (HasBias(spec.bias)) {
      ASSIGN_OR_RETURN(const TensorInfo* bias, Require(module + ".bias"));
      ASSIGN_OR_RETURN(use.bias_type, FloatTypeOf(*bias));
      ASSIGN_OR_RETURN(use.bias, AddPart(*bias, pack_module + ".bias", {use.rows}, expert, piece));
    }
    piece.weights.push_back(use);
    return Status();
  }

  // MLX affine: weight U32 [rows, cols * bits / 32], scales and biases [rows, cols / group]. Bits and group follow from
  // the shapes; an entry of the configuration must agree with them.
  Status AddAffine(const TensorInfo& weight, const std::string& module, const std::string& pack_module, int32_t expert,
                   WeightUse& use, PieceLayout& piece) {
    ASSIGN_OR_RETURN(const TensorInfo* scales, Require(module + ".scales"));
    const int64_t weight_cols = weight.shape.empty() ? 0 : weight.shape.back();
    const int64_t scale_cols = scales->shape.empty() ? 0 : scales->shape.back();
    RETURN_IF_ERROR(CheckSettings(weight, module, weight_cols, scale_cols, use));
    if (scales->dtype == DType::kU8 || tensors_.Find(module + ".biases") == nullptr) {
      return UnsupportedError(
          fmt::format("{}: tensor {}: its scales are {} {} biases, which is no affine quantisation; "
                      "supported: affine with 4 or 8 bits",
                      checkpoint_.folder, weight.name, DTypeName(scales->dtype),
                      tensors_.Find(module + ".biases") == nullptr ? "without" : "with"));
    }
    if (weight.dtype != DType::kU32) {
      return DataLossError(fmt::format("{}: tensor {}: expected type U32 beside {}.scales, found {}",
                                       checkpoint_.folder, weight.name, module, DTypeName(weight.dtype)));
    }
    ASSIGN_OR_RETURN(use.format.scale_type, FloatTypeOf(*scales));
    ASSIGN_OR_RETURN(const TensorInfo* biases, Require(module + ".biases"));
    if (biases->dtype != scales->dtype) {
      return DataLossError(fmt::format("{}: tensor {}: expected the type of its scales, {}, found {}",
                                       checkpoint_.folder, biases->name, DTypeName(scales->dtype),
                                       DTypeName(biases->dtype)));
    }
    ASSIGN_OR_RETURN(use.data, AddPart(weight, pack_module + ".weight", {use.rows, weight_cols}, expert, piece));
    ASSIGN_OR_RETURN(use.scales, AddPart(*scales, pack_module + ".scales", {use.rows, scale_cols}, expert, piece));
    ASSIGN_OR_RETURN(use.biases, AddPart(*biases, pack_module + ".biases", {use.rows, scale_cols}, expert, piece));
    return Status();
  }

  Status CheckSettings(const TensorInfo& weight, const std::string& module, int64_t weight_cols, int64_t scale_cols,
                       WeightUse& use) {
    // Eight bits a code at most; beyond it the products below could overflow.
    if (weight_cols > use.cols || scale_cols > use.cols) {
      return DataLossError(
          fmt::format("{}: tensor {}: {} columns of codes and {} of scales fit no quantisation of {} inputs",
                      checkpoint_.folder, weight.name, weight_cols, scale_cols, use.cols));
    }
    const int64_t bits = weight_cols * 32 / use.cols;
    const int64_t group = scale_cols > 0 ? use.cols / scale_cols : 0;
    use.format.encoding = Encoding::kAffine;
    use.format.bits = static_cast<uint8_t>(std::clamp<int64_t>(bits, 0, 255));
    use.format.group_size = static_cast<uint16_t>(std::clamp<int64_t>(group, 0, 65535));
    if (bits * use.cols != weight_cols * 32 || group * scale_cols != use.cols) {
      return DataLossError(
          fmt::format("{}: tensor {}: {} columns of codes and {} of scales fit no quantisation of {} inputs",
                      checkpoint_.folder, weight.name, weight_cols, scale_cols, use.cols));
    }
    const std::optional<QuantSettings>* const entry = SettingsOf(module);
    if (entry != nullptr && !entry->has_value()) {
      return DataLossError(fmt::format("{}: tensor {}: config.json says it is not quantised, but it has scales",
                                       checkpoint_.folder, weight.name));
    }
    if (entry != nullptr && (*entry)->mode != "affine") {
      return UnsupportedError(fmt::format("{}: tensor {}: quantisation mode '{}' is not supported; supported: affine",
                                          checkpoint_.folder, weight.name, (*entry)->mode));
    }
    if (entry != nullptr && ((*entry)->bits != bits || (*entry)->group_size != group)) {
      return DataLossError(
          fmt::format("{}: tensor {}: config.json says {} bits in groups of {}, its shape says {} in {}",
                      checkpoint_.folder, weight.name, (*entry)->bits, (*entry)->group_size, bits, group));
    }
    if (!IsSupported(use.format)) {
      return UnsupportedError(
          fmt::format("{}: tensor {}: affine quantisation with {} bits in groups of {} is not supported; "
                      "supported: 4 and 8 bits in groups of 32, 64, 128",
                      checkpoint_.folder, weight.name, bits, group));
    }
    return Status();
  }

  const std::optional<QuantSettings>* SettingsOf(const std::string& module) const {
    for (const std::string& name : {module, other_module_}) {
      const auto found = checkpoint_.quantization.modules.find(name);
      if (found != checkpoint_.quantization.modules.end()) return &found->second;
    }
    return nullptr;
  }

  Result<const TensorInfo*> Require(const std::string& name) const {
    if (const TensorInfo* const tensor = tensors_.Find(name); tensor != nullptr) return tensor;
    return NotFoundError(
        fmt::format("{}: tensor {} is missing; {} needs it", checkpoint_.folder, name, layout_.spec->name));
  }

  Result<FloatType> FloatTypeOf(const TensorInfo& tensor) const {
    if (tensor.dtype == DType::kF32) return FloatType::kF32;
    if (tensor.dtype == DType::kF16) return FloatType::kF16;
    if (tensor.dtype == DType::kBF16) return FloatType::kBF16;
    return UnsupportedError(
        fmt::format("{}: tensor {}: type {} is not supported here; expected F32, F16, BF16, or U32 with scales",
                    checkpoint_.folder, tensor.name, DTypeName(tensor.dtype)));
  }

  // Checks the shape, marks the tensor as used, appends the slice; returns its index.
  Result<int32_t> AddPart(const TensorInfo& tensor, std::string pack_name, std::vector<int64_t> shape, int32_t expert,
                          PieceLayout& piece) {
    std::vector<int64_t> expected = shape;
    if (expert >= 0) expected.insert(expected.begin(), hparams_.experts);
    if (tensor.shape != expected) {
      return DataLossError(fmt::format("{}: tensor {}: expected shape {}, found {}", checkpoint_.folder, tensor.name,
                                       ShapeText(expected), ShapeText(tensor.shape)));
    }
    used_.insert(tensor.name);
    TensorSlice slice{.name = std::move(pack_name),
                      .dtype = tensor.dtype,
                      .shape = std::move(shape),
                      .file = tensor.file,
                      .offset = tensor.offset,
                      .bytes = tensor.bytes};
    if (expert >= 0) {
      slice.bytes = tensor.bytes / hparams_.experts;
      slice.offset += slice.bytes * expert;
    }
    piece.parts.push_back(std::move(slice));
    return static_cast<int32_t>(piece.parts.size()) - 1;
  }

  void ListIgnored() {
    for (const TensorInfo& tensor : tensors_.tensors()) {
      if (!used_.contains(tensor.name)) layout_.ignored.push_back(tensor.name);
    }
    std::sort(layout_.ignored.begin(), layout_.ignored.end());
  }

  const Checkpoint& checkpoint_;
  const TensorIndex& tensors_;
  ModelLayout& layout_;
  HParams& hparams_;
  std::string prefix_;
  std::string other_module_;  // a second name by which config.json may list the module; "" = none
  std::unordered_set<std::string> used_;
};

}  // namespace

Result<ModelLayout> ResolveModel(const Checkpoint& checkpoint) {
  const std::string what = checkpoint.folder + (checkpoint.is_pack ? "/manifest.json (config)" : "/config.json");
  const Json* const type = checkpoint.config.Find("model_type");
  if (type == nullptr || !type->is_string()) {
    return DataLossError(fmt::format("{}: model_type is missing", what));
  }
  ModelLayout layout;
  ASSIGN_OR_RETURN(layout.spec, FindArch(type->as_string()));
  ASSIGN_OR_RETURN(layout.hparams, ReadHParams(*layout.spec, checkpoint.config, what));
  RETURN_IF_ERROR(Resolver(checkpoint, layout).Run());
  return layout;
}

const WeightUse* FindWeight(const PieceLayout& piece, Role role) {
  for (const WeightUse& use : piece.weights) {
    if (use.role == role) return &use;
  }
  return nullptr;
}

}  // namespace nunspark
