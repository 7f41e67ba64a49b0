// What config.json says about quantised weights: MLX's settings ("quantization", else "quantization_config" without a
// quant_method) and the method of another tool ("quantization_config" with one). A checkpoint may have both: MLX's for
// some modules beside another's for the rest.
#ifndef NUNSPARK_FORMATS_QUANTIZATION_H_
#define NUNSPARK_FORMATS_QUANTIZATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark {

// Of MLX. mode: "affine", "mxfp4", "mxfp8" or "nvfp4"; each but affine has one group size and number of bits.
struct QuantSettings {
  int group_size = 64;
  int bits = 4;
  std::string mode = "affine";

  friend bool operator==(const QuantSettings&, const QuantSettings&) = default;
};

// Layouts of other tools. Which tensors have them, their names say.
enum class ForeignMethod : uint8_t {
  kNone,
  kMxFp4,  // gpt-oss: "<name>_blocks", "<name>_scales"
  kAwq,    // "qweight", "qzeros", "scales" in AutoAWQ's GEMM packing
  kFp8,    // e4m3 "weight" with "weight_scale_inv"
};

struct QuantizationConfig {
  bool present = false;  // MLX's settings
  QuantSettings base;
  // Entries by full module path ("model.layers.3.mlp.gate"); nullopt = explicitly not quantised.
  std::map<std::string, std::optional<QuantSettings>, std::less<>> modules;

  ForeignMethod foreign = ForeignMethod::kNone;
  // kFp8: outputs and inputs that share a scale, 1 to 65535 each.
  int64_t fp8_block_rows = 128;
  int64_t fp8_block_cols = 128;
};

// The settings of a mode when config.json names nothing else; nullopt for an unknown mode.
std::optional<QuantSettings> DefaultSettings(std::string_view mode);

// Errors: kDataLoss for wrong types or values, or ones that contradict the mode (names the key); kUnsupported for an
// unknown mode or quant_method, naming it and what is supported. A foreign method beside MLX's settings that is not
// known is ignored: its tensors, if there are any, have names that nothing reads.
Result<QuantizationConfig> ParseQuantization(const Json& config, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_QUANTIZATION_H_
