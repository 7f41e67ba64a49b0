// StoredMatrix: how one weight is stored in a checkpoint - which tensors, in which encoding -, found by its module's
// name. Private to models.
#ifndef NUNSPARK_MODELS_STORED_MATRIX_H_
#define NUNSPARK_MODELS_STORED_MATRIX_H_

#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/arch_spec.h"
#include "nunspark/status.h"
#include "quant/encoding.h"

namespace nunspark::internal {

// One stored tensor of a weight, with what its shape has to be (without an expert axis).
struct StoredTensor {
  const TensorInfo* tensor = nullptr;  // nullptr: there is none
  std::string suffix;                  // of the module's name: ".weight", ".weight@q4_k", "_blocks", ".scales"
  std::vector<int64_t> shape;
};

struct StoredMatrix {
  WeightFormat format;
  StoredTensor data, scales, biases;
  StoredTensor bias;  // additive, if there is one
  FloatType bias_type = FloatType::kF32;
};

// What is asked for.
struct MatrixRequest {
  std::string module = {};  // "model.layers.0.self_attn.q_proj"
  std::vector<std::string> config_names =
      {};  // names under which config.json's quantisation may list it; module is one
  TensorKind kind = TensorKind::kLinear;
  int64_t rows = 1;  // of the stored matrix, of all weights in it
  int64_t cols = 0;
  int64_t experts = 0;                              // length of an axis in front, of experts or heads; 0 = none
  MatrixOrder bare_order = MatrixOrder::kRowMajor;  // of floats without ".weight"
};

// The folder or file that messages name.
const std::string& PlaceOf(const Checkpoint& checkpoint);

// Whether any tensor of the module exists.
bool HasModule(const TensorIndex& tensors, const std::string& module);

// Finds the weight and its encoding. Forms, in this order: "m.weight" (floats; MLX codes with scales; fp8 with
// weight_scale_inv), "m.weight@lanes16" (MLX codes in lanes), "m.qweight" (AWQ), "m.weight@TYPE" (GGML blocks),
// "m_blocks" (gpt-oss), "m" (floats). Bits and
// groups follow from the shapes; config.json's entry for the module must agree.
// Errors: kNotFound; kDataLoss (wrong shape or type, config against tensors); kUnsupported. Each names the tensor.
Result<StoredMatrix> FindMatrix(const Checkpoint& checkpoint, std::string_view model_type,
                                const MatrixRequest& request);

}  // namespace nunspark::internal

#endif  // NUNSPARK_MODELS_STORED_MATRIX_H_
