// Packs of the original Nunspark (version 0.11 to 0.13): manifest.json and one small safetensors file for each piece.
// They become an ordinary tensor index, with the names that a checkpoint with unstacked experts has.
#ifndef NUNSPARK_FORMATS_ORIGINAL_PACK_H_
#define NUNSPARK_FORMATS_ORIGINAL_PACK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

// The largest manifest of the original that is read: 700 bytes describe an expert, so this is enough for 90000.
inline constexpr int64_t kMaxOriginalManifestBytes = int64_t{64} << 20;

struct OriginalPiece {
  std::string piece_id;  // "embed", "layer_003", "layer_003_core", "layer_003_expert_7", "masked_embed", "norm_head"
  int32_t layer = -1;    // -1: of none
  int32_t expert = -1;   // -1: of none
  std::string file;      // a plain file name
  std::vector<std::string> keys;
};

struct OriginalManifest {
  std::string model_type;
  // Of the checkpoint that was packed; text_config's members are at the top level as well for wrapped models. It has
  // model_type and tie_word_embeddings, from the manifest where the config lacked them.
  Json config;
  int32_t num_layers = 0;
  std::vector<OriginalPiece> pieces;
};

// Whether `text` looks like the manifest of such a pack: no format_version, and a first piece with "keys". False for
// text that is no JSON at all.
bool IsOriginalManifest(std::string_view text);

// Errors: kDataLoss for missing, unknown and mistyped fields, names with folders in them, unknown, repeated or missing
// pieces, repeated files and keys, a model type that contradicts the config's; kUnsupported for a piece whose `quant`
// is not null. Each names the field or piece.
Result<OriginalManifest> ParseOriginalManifest(std::string_view text, std::string_view what);

// The full name of a piece's tensor: "embed_tokens.weight" of embed is "model.embed_tokens.weight", and
// "mlp.switch_mlp.up_proj.weight" of layer_003_expert_7 "model.layers.3.mlp.experts.7.up_proj.weight". Empty for a key
// that has no place in such a piece.
std::string OriginalTensorName(const OriginalPiece& piece, std::string_view key);

// Reads the header of every piece's file in `folder` and adds the tensors. Errors: kDataLoss when a file is missing, is
// truncated, or holds other tensors than its piece lists (names file and tensor); those of AddSafetensorsFile.
Status AddOriginalFiles(const OriginalManifest& manifest, const std::string& folder, TensorIndex& index);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_ORIGINAL_PACK_H_
