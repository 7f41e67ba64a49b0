#include "models/model_layout.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "models/stored_matrix.h"
#include "models/tensor_names.h"
#include "quant/lanes.h"

namespace nunspark {
namespace {

using internal::FindMatrix;
using internal::HasModule;
using internal::kModelPrefixes;
using internal::MatrixRequest;
using internal::StoredMatrix;
using internal::StoredTensor;

// A matrix as the checkpoint and as a pack name it.
struct ModuleName {
  std::string stored;
  std::string pack;
  std::vector<std::string> config;  // in config.json's quantisation, behind one of the prefixes

  friend bool operator==(const ModuleName& a, const ModuleName& b) { return a.stored == b.stored; }
};

// Builds the layout piece by piece, remembering which tensors found a use.
class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, ModelLayout& layout)
      : checkpoint_(checkpoint),
        place_(internal::PlaceOf(checkpoint)),
        tensors_(checkpoint.tensors),
        naming_(checkpoint.is_gguf ? Naming::kGguf : Naming::kHuggingFace),
        layout_(layout),
        h_(layout.hparams) {}

  Status Run() {
    RETURN_IF_ERROR(FindPrefix());
    const TensorSpec* const head = SpecOf(Role::kHead);
    // A tied flag wins over a head that is there all the same; without a flag and a head the embedding serves.
    const bool headless = head == nullptr || !HasModule(tensors_, NameOf(*head, -1).stored);
    if (headless && (head == nullptr || !h_.tied_given)) h_.tied = true;

    RETURN_IF_ERROR(AddEnds());
    for (int32_t layer = 0; layer < h_.layers; ++layer) RETURN_IF_ERROR(AddLayer(layer));
    NewPiece(PieceKind::kNormHead, -1, -1, "norm_head");
    layout_.norm_head = LastPiece();
    RETURN_IF_ERROR(AddTensors(ends_, -1, layout_.pieces.back()));
    for (PieceLayout& piece : layout_.pieces) {
      for (const TensorSlice& part : piece.parts) piece.bytes += part.bytes;
      layout_.total_bytes += piece.bytes;
    }
    ListIgnored();
    return CheckIgnored();
  }

 private:
  using Specs = std::vector<const TensorSpec*>;

  const TensorSpec* SpecOf(Role role) const {
    for (const TensorSpec& spec : layout_.spec->tensors) {
      if (spec.role == role) return &spec;
    }
    return nullptr;
  }

  Status FindPrefix() {
    const TensorSpec& embed = *SpecOf(Role::kEmbed);
    if (naming_ == Naming::kGguf) {
      if (HasModule(tensors_, std::string(internal::GgufName(embed)))) return Status();
    } else {
      for (const std::string_view prefix : kModelPrefixes) {
        prefix_ = prefix;
        if (HasModule(tensors_, prefix_ + std::string(embed.name))) return Status();
      }
    }
    const std::string wanted =
        naming_ == Naming::kGguf ? std::string(internal::GgufName(embed)) : "model." + std::string(embed.name);
    return NotFoundError(
        fmt::format("{}: tensor {}.weight is missing ({} tensors found); is this a complete {} checkpoint?", place_,
                    wanted, tensors_.tensors().size(), layout_.spec->name));
  }

  // ---- dimensions and conditions

  int64_t Size(Dim dim, int32_t layer) const {
    const LayerShape& shape = h_.layer[static_cast<size_t>(std::max(layer, 0))];
    switch (dim) {
      case Dim::kOne: return 1;
      case Dim::kVocab: return h_.vocab_size;
      case Dim::kModel: return h_.model_dim;
      case Dim::kHeads: return h_.heads;
      case Dim::kQueryOut: return h_.heads * shape.head_dim;
      case Dim::kKvOut: return shape.kv_heads * shape.head_dim;
      case Dim::kAttentionOut: return h_.heads * (h_.value_dim > 0 ? h_.value_dim : shape.head_dim);
      case Dim::kHeadDim: return shape.head_dim;
      case Dim::kFfn: return shape.ffn_dim;
      case Dim::kExpertFfn: return h_.expert_ffn_dim;
      case Dim::kExperts: return h_.experts;
      case Dim::kQueryRank: return h_.query_rank;
      case Dim::kKvRank: return h_.kv_rank;
      case Dim::kKvRankRope: return h_.kv_rank + h_.qk_rope_dim;
      case Dim::kNope: return h_.qk_nope_dim;
      case Dim::kValueDim: return h_.value_dim;
      case Dim::kKvExpanded: return h_.heads * (h_.qk_nope_dim + h_.value_dim);
      case Dim::kPerLayer: return h_.per_layer_dim;
      case Dim::kPerLayerAll: return h_.per_layer_dim * h_.layers;
      case Dim::kPerLayerVocab: return h_.per_layer_vocab;
      case Dim::kBackbone: return h_.backbone_dim;
      case Dim::kTwoBackbones: return 2 * h_.backbone_dim;
      case Dim::kCentroids: return h_.centroids;
    }
    return 0;
  }

  bool Wanted(const TensorSpec& spec, int32_t layer) const {
    const LayerShape& shape = h_.layer[static_cast<size_t>(std::max(layer, 0))];
    const bool owns = shape.kv_layer == layer;
    switch (spec.when) {
      case When::kAlways: return true;
      case When::kOwnsKv: return owns;
      case When::kOwnsValue: return owns && !shape.value_is_key;
      case When::kQueryRank: return h_.query_rank > 0;
      case When::kNoQueryRank: return h_.query_rank == 0;
      case When::kQkNorm: return h_.qk_norm;
      case When::kPerLayerInput: return h_.per_layer_dim > 0;
      case When::kJointKvB: return !HasSplitKvB(layer);
      case When::kSplitKvB: return HasSplitKvB(layer);
      case When::kIfPresent: return HasModule(tensors_, NameOf(spec, layer).stored);
      case When::kXieluTensors: return !shape.xielu.has_value();
      case When::kOrderedEmbedding: return h_.ordered_embeddings;
      case When::kCheckedOnly: return true;
    }
    return true;
  }

  bool HasSplitKvB(int32_t layer) const {
    const TensorSpec* const split = SpecOf(Role::kKeyB);
    return split != nullptr && HasModule(tensors_, NameOf(*split, layer).stored);
  }

  // nullopt: the tensors that are there tell.
  std::optional<bool> BiasExpected(const TensorSpec& spec) const {
    switch (spec.bias) {
      case Bias::kNever: return false;
      case Bias::kAlways: return true;
      case Bias::kAttentionFlag: return h_.attention_bias;
      case Bias::kAttentionOutFlag: return h_.attention_out_bias;
      case Bias::kMlpFlag: return h_.mlp_bias;
    }
    return false;
  }

  // Whether the weight has an additive bias: as the type and its configuration say.
  Result<bool> HasBias(const TensorSpec& spec, const ModuleName& name, const StoredMatrix& matrix) const {
    const bool there = matrix.bias.tensor != nullptr;
    const bool expected = BiasExpected(spec).value_or(there);
    if (there && !expected) {
      return DataLossError(fmt::format("{}: tensor {} is there, but {} has no bias at that place{}", place_,
                                       matrix.bias.tensor->name, layout_.spec->name,
                                       spec.bias == Bias::kNever ? "" : " by its configuration"));
    }
    if (expected && !there) {
      return NotFoundError(
          fmt::format("{}: tensor {}.bias is missing; {} needs it", place_, name.stored, layout_.spec->name));
    }
    return expected;
  }

  // ---- names

  ModuleName NameOf(const TensorSpec& spec, int32_t layer) const {
    const std::string tail = layer < 0 ? "" : fmt::format("layers.{}.", layer);
    const std::string name(spec.name);
    const bool outside = spec.place == Place::kOutside;
    ModuleName names;
    names.pack = (outside ? "" : "model.") + tail + name;
    names.config = {tail + name};
    if (naming_ == Naming::kGguf) {
      names.stored = (layer < 0 ? "" : fmt::format("blk.{}.", layer)) + std::string(internal::GgufName(spec));
    } else {
      names.stored = (outside ? std::string(internal::OutsidePrefix(prefix_)) : prefix_) + tail + name;
    }
    const bool qkv = spec.role == Role::kQuery || spec.role == Role::kKey || spec.role == Role::kValue;
    if (!qkv || HasModule(tensors_, names.stored)) return names;
    const std::string fused = (naming_ == Naming::kGguf ? fmt::format("blk.{}.", layer) : prefix_ + tail) +
                              std::string(internal::FusedQkvName(naming_));
    if (!HasModule(tensors_, fused)) return names;
    const std::string usual = tail + std::string(internal::FusedQkvName(Naming::kHuggingFace));
    return {.stored = fused, .pack = "model." + usual, .config = {usual}};
  }

  // All names under which config.json's quantisation may list a module.
  std::vector<std::string> ConfigNames(const ModuleName& name) const {
    std::vector<std::string> names = {name.stored};
    for (const std::string& tail : name.config) {
      for (const std::string_view prefix : kModelPrefixes) names.push_back(std::string(prefix) + tail);
      names.push_back("language_model." + tail);
    }
    return names;
  }

  // ---- pieces

  PieceLayout& NewPiece(PieceKind kind, int32_t layer, int32_t expert, std::string id) {
    PieceLayout& piece = layout_.pieces.emplace_back();
    piece.kind = kind;
    piece.layer = layer;
    piece.expert = expert;
    piece.id = std::move(id);
    return piece;
  }

  PieceId LastPiece() const { return static_cast<PieceId>(layout_.pieces.size()) - 1; }

  // The embedding and the row table; what else stands at the model's ends is kept for the last piece.
  Status AddEnds() {
    for (const TensorSpec& spec : layout_.spec->tensors) {
      if (spec.place != Place::kModel && spec.place != Place::kOutside) continue;
      if (!Wanted(spec, -1) || (spec.role == Role::kHead && h_.tied)) continue;
      if (spec.role == Role::kEmbed) {
        NewPiece(PieceKind::kEmbed, -1, -1, "embed");
        layout_.embed = LastPiece();
      } else if (spec.role == Role::kPerLayerEmbed) {
        NewPiece(PieceKind::kRowTable, -1, -1, "embed_per_layer");
        layout_.per_layer_embed = LastPiece();
      } else {
        ends_.push_back(&spec);
        continue;
      }
      RETURN_IF_ERROR(AddTensors({&spec}, -1, layout_.pieces.back()));
      RETURN_IF_ERROR(CheckRows(layout_.pieces.back()));
    }
    return Status();
  }

  // Rows of a table are read one by one: they must lie in one piece.
  Status CheckRows(const PieceLayout& table) const {
    const WeightFormat& format = table.weights.front().format;
    if (format.order == MatrixOrder::kRowMajor && format.encoding != Encoding::kFp8Block) return Status();
    // A table that is also the head is in memory as a whole.
    if (format.order == MatrixOrder::kLanes16 && h_.tied && table.kind == PieceKind::kEmbed) return Status();
    return UnsupportedError(fmt::format("{}: tensor {}: an embedding in {} is not supported", place_,
                                        table.parts.front().name, FormatName(format)));
  }

  Status AddLayer(int32_t layer) {
    const bool moe = h_.layer[static_cast<size_t>(layer)].moe;
    PieceLayout& core = NewPiece(PieceKind::kCore, layer, -1, fmt::format("layer_{:03}{}", layer, moe ? "_core" : ""));
    layout_.core.push_back(LastPiece());
    Specs specs;
    for (const TensorSpec& spec : layout_.spec->tensors) {
      const bool here = spec.place == Place::kLayer || spec.place == Place::kHeads ||
                        spec.place == (moe ? Place::kMoeFfn : Place::kDenseFfn);
      if (here && Wanted(spec, layer)) specs.push_back(&spec);
    }
    RETURN_IF_ERROR(AddTensors(specs, layer, core));
    layout_.first_expert.push_back(moe ? LastPiece() + 1 : -1);
    return moe ? AddExperts(layer) : Status();
  }

  // Adds the specs' tensors. Those with one name are parts of one matrix, added where the first of them comes.
  Status AddTensors(const Specs& specs, int32_t layer, PieceLayout& piece) {
    std::vector<ModuleName> names;
    for (const TensorSpec* spec : specs) names.push_back(NameOf(*spec, layer));
    for (size_t i = 0; i < specs.size(); ++i) {
      if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
          names.begin() + static_cast<ptrdiff_t>(i)) {
        continue;
      }
      Specs members;
      for (size_t j = i; j < specs.size(); ++j) {
        if (names[j] == names[i]) members.push_back(specs[j]);
      }
      const MatrixRequest request{.experts = members.front()->place == Place::kHeads ? h_.heads : 0};
      RETURN_IF_ERROR(AddMatrix(members, names[i], layer, FusedRows::kHalves, request, -1, piece));
    }
    return Status();
  }

  // Experts of a layer: the first naming whose matrices are there.
  Status AddExperts(int32_t layer) {
    Specs specs;
    for (const TensorSpec& spec : layout_.spec->tensors) {
      if (spec.place == Place::kExpert) specs.push_back(&spec);
    }
    for (const ExpertNames& names : layout_.spec->experts) {
      for (const bool stacked : {true, false}) {
        const std::vector<ModuleName> probe = ExpertModules(specs, names, layer, stacked ? -1 : 0);
        if (probe.empty() || !HasModule(tensors_, probe.front().stored)) continue;
        return AddExpertsNamed(specs, names, layer, stacked);
      }
    }
    const ExpertNames& usual = layout_.spec->experts.front();
    const std::string example = ExpertModules(specs, usual, layer, naming_ == Naming::kGguf ? -1 : 0).front().stored;
    return NotFoundError(
        fmt::format("{}: tensor {}.weight is missing; {} needs it, or the experts of layer {} in "
                    "another of its published forms",
                    place_, example, layout_.spec->name, layer));
  }

  // Modules of an expert's matrices, in the order of `specs`; expert < 0: the stacked form, empty if there is none.
  std::vector<ModuleName> ExpertModules(const Specs& specs, const ExpertNames& names, int32_t layer,
                                        int32_t expert) const {
    std::vector<ModuleName> modules;
    for (const TensorSpec* spec : specs) {
      const std::string_view own = spec->role == Role::kExpertGate ? names.gate
                                   : spec->role == Role::kExpertUp ? names.up
                                                                   : names.down;
      const std::string tail = fmt::format("layers.{}.", layer);
      const std::string one = fmt::format("{}{}.{}.{}", tail, names.unstacked, std::max(expert, 0), own);
      ModuleName name{.stored = prefix_ + one, .pack = "model." + one, .config = {one}};
      for (const ExpertNames& other : layout_.spec->experts) {
        name.config.push_back(fmt::format("{}{}.{}", tail, other.stacked, own));
      }
      if (naming_ == Naming::kGguf) {
        const bool fused = names.gate == names.up && spec->role != Role::kExpertDown;
        if (expert >= 0) return {};
        name.stored = fmt::format("blk.{}.{}", layer, fused ? "ffn_gate_up_exps" : internal::GgufName(*spec));
      } else if (expert < 0) {
        if (names.stacked.empty()) return {};
        name.stored = fmt::format("{}{}{}.{}", prefix_, tail, names.stacked, own);
      }
      modules.push_back(std::move(name));
    }
    return modules;
  }

  Status AddExpertsNamed(const Specs& specs, const ExpertNames& names, int32_t layer, bool stacked) {
    // GGUF's converter writes the rows of fused matrices one after the other, whatever the publisher does.
    const FusedRows fused = naming_ == Naming::kGguf ? FusedRows::kHalves : names.fused;
    for (int32_t expert = 0; expert < h_.experts; ++expert) {
      PieceLayout& piece =
          NewPiece(PieceKind::kExpert, layer, expert, fmt::format("layer_{:03}_expert_{}", layer, expert));
      std::vector<ModuleName> modules = ExpertModules(specs, names, layer, stacked ? -1 : expert);
      for (size_t i = 0; i < specs.size(); ++i) {
        if (stacked) modules[i].pack = PackExpertName(names, *specs[i], layer, expert);
        if (i > 0 && modules[i] == modules[i - 1]) continue;
        Specs members;
        for (size_t j = i; j < specs.size(); ++j) {
          if (modules[j] == modules[i]) members.push_back(specs[j]);
        }
        const MatrixRequest request{.experts = stacked ? h_.experts : 0, .bare_order = names.bare_order};
        RETURN_IF_ERROR(AddMatrix(members, modules[i], layer, fused, request, stacked ? expert : -1, piece));
      }
      RETURN_IF_ERROR(CheckAlike(layout_.pieces[layout_.pieces.size() - 1 - static_cast<size_t>(expert)], piece));
    }
    return Status();
  }

  // The forward pass looks the weights of a layer's experts up once for all of them.
  Status CheckAlike(const PieceLayout& first, const PieceLayout& piece) const {
    for (size_t i = 0; i < first.weights.size(); ++i) {
      if (piece.weights[i] == first.weights[i]) continue;
      const auto name = [&](const PieceLayout& of) { return of.parts[static_cast<size_t>(of.weights[i].data)].name; };
      return UnsupportedError(fmt::format(
          "{}: tensor {} is stored otherwise than {} ({}, {}): experts of a layer must "
          "be alike",
          place_, name(piece), name(first), FormatName(piece.weights[i].format), FormatName(first.weights[i].format)));
    }
    return Status();
  }

  static std::string PackExpertName(const ExpertNames& names, const TensorSpec& spec, int32_t layer, int32_t expert) {
    const std::string_view own = spec.role == Role::kExpertGate ? names.gate
                                 : spec.role == Role::kExpertUp ? names.up
                                                                : names.down;
    return fmt::format("model.layers.{}.{}.{}.{}", layer, names.unstacked, expert, own);
  }

  // ---- one stored matrix

  // Adds the tensors of one matrix - codes, scales, offsets, additive bias - and the weights that are parts of it.
  // expert >= 0: row `expert` of stacked tensors.
  Status AddMatrix(const Specs& members, const ModuleName& name, int32_t layer, FusedRows fused, MatrixRequest request,
                   int32_t expert, PieceLayout& piece) {
    const TensorSpec& first = *members.front();
    request.module = name.stored;
    request.config_names = ConfigNames(name);
    request.kind = first.kind;
    request.cols = Size(first.cols, layer);
    request.rows = 0;
    for (const TensorSpec* spec : members) {
      request.rows += first.kind == TensorKind::kLinear ? Size(spec->rows, layer) : 1;
    }
    ASSIGN_OR_RETURN(const StoredMatrix matrix, FindMatrix(checkpoint_, layout_.spec->name, request));
    ASSIGN_OR_RETURN(const bool has_bias, HasBias(first, name, matrix));
    const auto checked_only = [](const TensorSpec* spec) { return spec->when == When::kCheckedOnly; };
    if (std::all_of(members.begin(), members.end(), checked_only)) {
      for (const StoredTensor* stored : {&matrix.data, &matrix.scales, &matrix.biases}) {
        if (stored->tensor != nullptr) used_.insert(stored->tensor->name);
      }
      return Status();
    }

    WeightUse use;
    use.format = matrix.format;
    use.cols = request.cols;
    use.data = AddPart(matrix.data, name.pack, request.experts, expert, piece);
    use.scales = AddPart(matrix.scales, name.pack, request.experts, expert, piece);
    use.biases = AddPart(matrix.biases, name.pack, request.experts, expert, piece);
    if (has_bias) {
      use.bias = AddPart(matrix.bias, name.pack, request.experts, expert, piece);
      use.bias_type = matrix.bias_type;
    }
    use.stored_rows = first.place == Place::kHeads ? request.rows * h_.heads : request.rows;
    const bool interleaved = members.size() > 1 && fused == FusedRows::kInterleaved;
    int64_t begin = 0;
    for (const TensorSpec* spec : members) {
      use.role = spec->role;
      use.rows = spec->kind == TensorKind::kLinear ? Size(spec->rows, layer) : 1;
      use.row_begin = begin;
      use.row_step = interleaved ? static_cast<int64_t>(members.size()) : 1;
      begin += interleaved ? 1 : use.rows;
      const bool by_rows = spec->role == Role::kKvB || first.place == Place::kHeads || use.row_step != 1;
      if (use.format.order == MatrixOrder::kLanes16 && (by_rows || use.row_begin % kLaneOutputs != 0)) {
        return DataLossError(
            fmt::format("{}: tensor {}{}: this matrix is never stored with sixteen outputs side by side", place_,
                        name.stored, matrix.data.suffix));
      }
      piece.weights.push_back(use);
    }
    return Status();
  }

  // Marks the tensor as used and appends its slice; returns the slice's index, -1 when there is no tensor.
  int32_t AddPart(const StoredTensor& stored, const std::string& pack_module, int64_t experts, int32_t expert,
                  PieceLayout& piece) {
    if (stored.tensor == nullptr) return -1;
    const TensorInfo& tensor = *stored.tensor;
    used_.insert(tensor.name);
    TensorSlice slice{.name = pack_module + stored.suffix,
                      .dtype = tensor.dtype,
                      .shape = stored.shape,
                      .file = tensor.file,
                      .offset = tensor.offset,
                      .bytes = tensor.bytes};
    if (expert < 0 && experts > 0) slice.shape = tensor.shape;
    if (expert >= 0) {
      slice.bytes = tensor.bytes / experts;
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

  // A tensor of a used layer without a place there: the model is another one than its configuration says, or one of a
  // later version, and would give other numbers.
  Status CheckIgnored() const {
    constexpr std::string_view kHarmless[] = {"rotary_emb", "rot_embd",    "k_scale",
                                              "v_scale",    "input_scale", "activation_scale"};
    const std::string layers = naming_ == Naming::kGguf ? "blk." : prefix_ + "layers.";
    for (const std::string& name : layout_.ignored) {
      if (!name.starts_with(layers)) continue;
      int64_t layer = -1;
      std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
      if (layer < 0 || layer >= h_.layers) continue;
      const auto is_in = [&](std::string_view part) { return name.find(part) != std::string::npos; };
      if (std::any_of(std::begin(kHarmless), std::end(kHarmless), is_in)) continue;
      if (std::any_of(layout_.spec->ignored.begin(), layout_.spec->ignored.end(), is_in)) continue;
      return UnsupportedError(fmt::format("{}: tensor {} has no place in a model of type {}; is model_type right?",
                                          place_, QuoteName(name), layout_.spec->name));
    }
    return Status();
  }

  const Checkpoint& checkpoint_;
  const std::string& place_;  // in messages
  const TensorIndex& tensors_;
  const Naming naming_;
  ModelLayout& layout_;
  HParams& h_;
  std::string prefix_;
  Specs ends_;
  std::unordered_set<std::string> used_;
};

}  // namespace

Result<ModelLayout> ResolveModel(const Checkpoint& checkpoint) {
  const std::string what = checkpoint.is_gguf   ? checkpoint.gguf_path + " (metadata)"
                           : checkpoint.is_pack ? checkpoint.folder + "/manifest.json (config)"
                                                : checkpoint.folder + "/config.json";
  const Json* const type = checkpoint.config.Find("model_type");
  if (type == nullptr || !type->is_string()) {
    return DataLossError(fmt::format("{}: model_type is missing", what));
  }
  ModelLayout layout;
  ASSIGN_OR_RETURN(layout.spec, FindArch(type->as_string(), checkpoint.is_gguf ? Naming::kGguf : Naming::kHuggingFace));
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
