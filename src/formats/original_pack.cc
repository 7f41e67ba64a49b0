#include "formats/original_pack.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "formats/json_fields.h"
#include "formats/manifest.h"
#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr int64_t kMaxLayers = 65536;
constexpr int64_t kMaxExperts = 65536;
constexpr size_t kMaxPieces = size_t{1} << 20;
constexpr size_t kMaxKeyBytes = 1024;

// The module that holds a layer's experts, as stacked in the original and as checkpoints with unstacked experts name it
// before the expert's number. The first that fits.
struct ExpertModule {
  std::string_view stacked;
  std::string_view unstacked;
};
constexpr ExpertModule kExpertModules[] = {{"mlp.switch_mlp.", "mlp.experts."},
                                           {"mlp.experts.", "mlp.experts."},
                                           {"experts.switch_glu.", "experts."},
                                           {"experts.", "experts."}};

// A decimal number at the start of `text`, which loses it; -1 when there is none up to `most`.
int32_t TakeNumber(std::string_view& text, int64_t most) {
  int64_t value = -1;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || value < 0 || value > most) return -1;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  return static_cast<int32_t>(value);
}

// Sets layer and expert by the piece's id. False for an id that is none.
bool ReadPieceId(OriginalPiece& piece) {
  std::string_view rest = piece.piece_id;
  if (rest == "embed" || rest == "norm_head" || rest == "masked_embed") return true;
  constexpr std::string_view kLayer = "layer_", kExpert = "_expert_";
  if (!rest.starts_with(kLayer)) return false;
  rest.remove_prefix(kLayer.size());
  const size_t before = rest.size();
  piece.layer = TakeNumber(rest, kMaxLayers - 1);
  if (piece.layer < 0 || before - rest.size() < 3) return false;
  if (rest.starts_with(kExpert)) {
    rest.remove_prefix(kExpert.size());
    piece.expert = TakeNumber(rest, kMaxExperts - 1);
    return piece.expert >= 0 && rest.empty();
  }
  return rest.empty() || rest == "_core";
}

class Reader {
 public:
  explicit Reader(std::string_view what) : what_(what) {}

  Result<OriginalManifest> Read(const Json& root) {
    ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(root, what_, ""));
    RETURN_IF_ERROR(fields.RefuseOthers({"model_type", "config", "tie_word_embeddings", "num_layers", "pieces"}));
    ASSIGN_OR_RETURN(manifest_.model_type, fields.String("model_type"));
    ASSIGN_OR_RETURN(const Json* const config, fields.Object("config"));
    manifest_.config = *config;
    ASSIGN_OR_RETURN(const bool tied, fields.Bool("tie_word_embeddings"));
    RETURN_IF_ERROR(CompleteConfig(tied));
    ASSIGN_OR_RETURN(const int64_t layers, fields.Int("num_layers", 1, kMaxLayers));
    manifest_.num_layers = static_cast<int32_t>(layers);
    ASSIGN_OR_RETURN(const Json* const pieces, fields.Array("pieces"));
    if (pieces->as_array().empty() || pieces->as_array().size() > kMaxPieces) {
      return fields.Wrong("pieces", fmt::format("1 to {} pieces", kMaxPieces),
                          fmt::format("{}", pieces->as_array().size()));
    }
    for (const Json& piece : pieces->as_array()) RETURN_IF_ERROR(ReadPiece(piece));
    RETURN_IF_ERROR(CheckPieces());
    return std::move(manifest_);
  }

 private:
  Status Bad(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }

  // The manifest's own members count; for a wrapped model the config's type is that of its text part.
  Status CompleteConfig(bool tied) {
    const Json* const type = manifest_.config.Find("model_type");
    if (type == nullptr || type->is_null()) {
      manifest_.config.Set("model_type", Json(manifest_.model_type));
    } else if (!type->is_string() ||
               (type->as_string() != manifest_.model_type && type->as_string() != manifest_.model_type + "_text")) {
      return Bad(fmt::format("config.model_type: expected {}, as the manifest says, found {}",
                             QuoteName(manifest_.model_type),
                             type->is_string() ? QuoteName(type->as_string()) : std::string(type->TypeName())));
    }
    manifest_.config.Set("tie_word_embeddings", tied);
    return Status();
  }

  Status ReadPiece(const Json& json) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::Of(json, what_, fmt::format("pieces[{}]", manifest_.pieces.size())));
    RETURN_IF_ERROR(fields.RefuseOthers({"piece_id", "file", "keys", "quant"}));
    OriginalPiece piece;
    ASSIGN_OR_RETURN(piece.piece_id, fields.String("piece_id"));
    if (!ReadPieceId(piece)) {
      return fields.Wrong("piece_id", "embed, layer_NNN, layer_NNN_core, layer_NNN_expert_E, masked_embed or norm_head",
                          QuoteName(piece.piece_id));
    }
    ASSIGN_OR_RETURN(piece.file, fields.String("file"));
    if (!IsPlainFileName(piece.file) || !piece.file.ends_with(".safetensors")) {
      return fields.Wrong("file", "a file name that ends in .safetensors, without folders", QuoteName(piece.file));
    }
    if (const Json* const quant = json.Find("quant"); quant != nullptr && !quant->is_null()) {
      return UnsupportedError(
          fmt::format("{}: pieces[{}].quant: expected null, found {}; a newer version of the "
                      "original wrote this pack",
                      what_, manifest_.pieces.size(), quant->TypeName()));
    }
    ASSIGN_OR_RETURN(const Json* const keys, fields.Array("keys"));
    for (const Json& key : keys->as_array()) {
      if (!key.is_string() || key.as_string().empty() || key.as_string().size() > kMaxKeyBytes ||
          OriginalTensorName(piece, key.as_string()).empty()) {
        return fields.Wrong("keys", fmt::format("names of tensors of {}", piece.piece_id),
                            key.is_string() ? QuoteName(key.as_string()) : std::string(key.TypeName()));
      }
      piece.keys.push_back(key.as_string());
    }
    std::sort(piece.keys.begin(), piece.keys.end());
    if (const auto twice = std::adjacent_find(piece.keys.begin(), piece.keys.end()); twice != piece.keys.end()) {
      return fields.Wrong("keys", "every key once", fmt::format("{} twice", QuoteName(*twice)));
    }
    manifest_.pieces.push_back(std::move(piece));
    return Status();
  }

  Status CheckPieces() const {
    std::unordered_set<std::string_view> ids, files;
    std::set<int32_t> layers;
    for (const OriginalPiece& piece : manifest_.pieces) {
      if (!ids.insert(piece.piece_id).second) return Bad(fmt::format("pieces: {} is there twice", piece.piece_id));
      if (!files.insert(piece.file).second) {
        return Bad(fmt::format("pieces: file {} belongs to two pieces", QuoteName(piece.file)));
      }
      if (piece.layer >= manifest_.num_layers) {
        return Bad(
            fmt::format("pieces: {} is beyond the {} layers of the model", piece.piece_id, manifest_.num_layers));
      }
      if (piece.layer >= 0 && piece.expert < 0 && !layers.insert(piece.layer).second) {
        return Bad(fmt::format("pieces: layer {} is there as a whole and as a core", piece.layer));
      }
    }
    for (const std::string_view needed : {"embed", "norm_head"}) {
      if (!ids.contains(needed)) return Bad(fmt::format("pieces: {} is missing", needed));
    }
    for (int32_t layer = 0; layer < manifest_.num_layers; ++layer) {
      if (!layers.contains(layer))
        return Bad(fmt::format("pieces: layer_{0:03} or layer_{0:03}_core is missing", layer));
    }
    return Status();
  }

  const std::string_view what_;
  OriginalManifest manifest_;
};

Result<Json> Parse(std::string_view text, std::string_view what) {
  if (static_cast<int64_t>(text.size()) > kMaxOriginalManifestBytes) {
    return DataLossError(fmt::format("{}: expected at most {} bytes in a manifest of the original Nunspark, found {}",
                                     what, kMaxOriginalManifestBytes, text.size()));
  }
  return ParseJson(text, what);
}

}  // namespace

bool IsOriginalManifest(std::string_view text) {
  const Result<Json> root = Parse(text, "manifest");
  if (!root.ok() || root->Find("format_version") != nullptr) return false;
  const Json* const pieces = root->Find("pieces");
  if (pieces == nullptr || !pieces->is_array() || pieces->as_array().empty()) return false;
  const Json& first = pieces->as_array().front();
  return first.Find("keys") != nullptr && first.Find("file") != nullptr;
}

Result<OriginalManifest> ParseOriginalManifest(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(const Json root, Parse(text, what));
  return Reader(what).Read(root);
}

std::string OriginalTensorName(const OriginalPiece& piece, std::string_view key) {
  if (piece.layer < 0) {
    // The head and a drafter's own ends stand beside the base model.
    const bool base = piece.piece_id == "embed" || key.starts_with("norm.");
    return fmt::format("{}{}", base ? "model." : "", key);
  }
  if (piece.expert < 0) return fmt::format("model.layers.{}.{}", piece.layer, key);
  for (const ExpertModule& module : kExpertModules) {
    if (!key.starts_with(module.stacked) || key.size() == module.stacked.size()) continue;
    return fmt::format("model.layers.{}.{}{}.{}", piece.layer, module.unstacked, piece.expert,
                       key.substr(module.stacked.size()));
  }
  return "";
}

Status AddOriginalFiles(const OriginalManifest& manifest, const std::string& folder, TensorIndex& index) {
  for (const OriginalPiece& piece : manifest.pieces) {
    const std::string path = JoinPath(folder, piece.file);
    if (!FileExists(path)) {
      return DataLossError(fmt::format("{} is missing: the pack's manifest lists it as {}", path, piece.piece_id));
    }
    ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensorsFile(path));
    const int32_t number = index.AddFile(std::move(file.source));
    size_t found = 0;
    for (TensorInfo& tensor : file.tensors) {
      if (!std::binary_search(piece.keys.begin(), piece.keys.end(), tensor.name)) {
        return DataLossError(fmt::format("{}: tensor {} is in it, but the pack's manifest does not list it under {}",
                                         path, QuoteName(tensor.name), piece.piece_id));
      }
      ++found;
      tensor.name = OriginalTensorName(piece, tensor.name);
      tensor.file = number;
      RETURN_IF_ERROR(index.AddTensor(std::move(tensor)));
    }
    if (found == piece.keys.size()) continue;
    for (const std::string& key : piece.keys) {
      const TensorInfo* const tensor = index.Find(OriginalTensorName(piece, key));
      if (tensor != nullptr && tensor->file == number) continue;
      return DataLossError(fmt::format("{}: tensor {} is missing, which the pack's manifest lists under {}", path,
                                       QuoteName(key), piece.piece_id));
    }
  }
  return Status();
}

}  // namespace nunspark
