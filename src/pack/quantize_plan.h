// Which weights of a model are encoded anew on their way into a pack, decided before anything is written.
#ifndef NUNSPARK_PACK_QUANTIZE_PLAN_H_
#define NUNSPARK_PACK_QUANTIZE_PLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/manifest.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "pack/quantize_rules.h"
#include "quant/encoding.h"

namespace nunspark {

// A module that a rule would encode and that stays as the source has it.
struct KeptModule {
  std::string module;
  std::string reason;
};

// What a part of a piece is encoded to.
struct PartEncoding {
  WeightFormat format;
  MatrixOrder source = MatrixOrder::kRowMajor;  // of the floats; kColumnMajor: the part's shape is [inputs, outputs]

  // Of the part as a matrix. REQUIRES: its shape has an axis.
  int64_t Inputs(const TensorSlice& part) const {
    return source == MatrixOrder::kRowMajor ? part.shape.back() : part.shape.front();
  }
};

struct QuantizePlan {
  // [pieces][parts of the piece]: nullopt where a part's bytes stay as they are. Empty when nothing is encoded.
  std::vector<std::vector<std::optional<PartEncoding>>> encodings;
  int64_t encoded = 0;           // modules; those of a layer's experts count one by one
  int64_t already_encoded = 0;   // modules that a rule would encode, had the source not done so
  std::vector<KeptModule> kept;  // that stay floats against a rule

  std::optional<PartEncoding> EncodingOf(size_t piece, size_t part) const {
    return encodings.empty() ? std::nullopt : encodings[piece][part];
  }
};

// Applies `rules` to the linear weights of `layout` (embedding and head are such; norms, sinks, biases and single
// numbers are not). Routers that only a rule without a pattern reaches get affine:8:64, as mlx-lm has it. Adds MLX's
// "quantization" to `config`, or extends the one it has: the settings of most modules, and an entry for each module of
// others. No rules: nothing happens.
// Errors: kInvalidArgument for a pattern that matches no module, for rules that treat a layer's experts differently,
// and when nothing is left to encode.
Result<QuantizePlan> PlanQuantization(const ModelLayout& layout, std::span<const QuantizeRule> rules, Json& config);

// How `part` is stored: one tensor as it is, or weight, scales and, for affine, biases. Offsets are not set yet.
std::vector<ManifestTensor> StoredTensors(const TensorSlice& part, const std::optional<PartEncoding>& encoding);

// Elements of a part. REQUIRES: a float type.
int64_t PartElements(const TensorSlice& part);

// The float type of a tensor; nullopt for others.
std::optional<FloatType> FloatTypeOf(DType dtype);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_QUANTIZE_PLAN_H_
