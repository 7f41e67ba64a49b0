// MLX quantisation entries of config.json ("quantization", else "quantization_config" without a foreign quant_method).
#ifndef NUNSPARK_FORMATS_QUANTIZATION_H_
#define NUNSPARK_FORMATS_QUANTIZATION_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark {

struct QuantSettings {
  int group_size = 64;
  int bits = 4;
  std::string mode = "affine";

  friend bool operator==(const QuantSettings&, const QuantSettings&) = default;
};

struct QuantizationConfig {
  bool present = false;
  QuantSettings base;
  // Entries by full module path ("model.layers.3.mlp.gate"); nullopt = explicitly not quantised.
  std::map<std::string, std::optional<QuantSettings>, std::less<>> modules;
};

// Errors: kDataLoss for wrong types or values (names the key); kUnsupported for a foreign quant_method or an unknown
// mode, naming it and what is supported.
Result<QuantizationConfig> ParseQuantization(const Json& config, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_QUANTIZATION_H_
