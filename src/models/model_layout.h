// ModelLayout: which bytes of a checkpoint are which weights of the model, cut into pieces. The one description that
// the piece index, the packer, the memory plan and the layer plans are made from.
#ifndef NUNSPARK_MODELS_MODEL_LAYOUT_H_
#define NUNSPARK_MODELS_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/arch_spec.h"
#include "models/hparams.h"
#include "models/weight_source.h"
#include "nunspark/status.h"
#include "quant/encoding.h"

namespace nunspark {

// A contiguous run of bytes in a file: one stored tensor, or one expert's row of a stacked one.
struct TensorSlice {
  std::string name;  // in the unstacked Hugging Face scheme, as a pack names it
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // without the expert axis
  int32_t file = 0;            // index into the checkpoint's TensorIndex::files
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A weight of the forward pass, as indices into its piece's parts. Several weights may share parts (fused matrices).
struct WeightUse {
  Role role = Role::kEmbed;
  WeightFormat format;
  int64_t rows = 1;  // 1 for vectors
  int64_t cols = 0;
  int32_t data = -1;
  int32_t scales = -1;  // -1 when the encoding has none
  int32_t biases = -1;
  int32_t bias = -1;  // additive bias, -1 when absent
  FloatType bias_type = FloatType::kF32;
  int64_t row_begin = 0;  // row n is the stored row row_begin + n * row_step
  int64_t row_step = 1;
  int64_t stored_rows = 0;  // 0: rows

  friend bool operator==(const WeightUse&, const WeightUse&) = default;
};

// kRowTable: per-layer embeddings, whose rows are read on demand.
enum class PieceKind : uint8_t { kEmbed, kRowTable, kCore, kExpert, kNormHead };

struct PieceLayout {
  PieceKind kind = PieceKind::kCore;
  int32_t layer = -1;
  int32_t expert = -1;
  // "embed", "embed_per_layer", "layer_003" (dense), "layer_003_core", "layer_003_expert_7", "norm_head"
  std::string id;
  std::vector<TensorSlice> parts;  // in the order in which the forward pass uses them
  std::vector<WeightUse> weights;  // same order for every expert of a layer
  int64_t bytes = 0;               // sum over parts
};

struct ModelLayout {
  const ArchSpec* spec = nullptr;
  HParams hparams;
  std::vector<PieceLayout> pieces;  // embed, row table; per layer core then experts ascending; norm_head
  PieceId embed = -1;
  PieceId per_layer_embed = -1;       // -1: the model has none
  PieceId norm_head = -1;             // with tied embeddings it holds the norm only
  std::vector<PieceId> core;          // [layers]
  std::vector<PieceId> first_expert;  // [layers], -1 for dense layers; experts follow each other
  std::vector<std::string> ignored;   // tensors of the checkpoint that no role uses

  int64_t total_bytes = 0;  // over all pieces
};

// Resolves a checkpoint. Errors: kUnsupported for the model type or an encoding (names type or tensor, lists what is
// supported); kNotFound for a missing tensor; kDataLoss for a wrong shape or type (tensor, expected, found).
Result<ModelLayout> ResolveModel(const Checkpoint& checkpoint);

// The weight with `role` in a piece; nullptr when the piece has none.
const WeightUse* FindWeight(const PieceLayout& piece, Role role);

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_MODEL_LAYOUT_H_
