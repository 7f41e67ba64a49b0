// config.json: normalisation, quantisation entries and stop tokens, of any document that is JSON.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "formats/config.h"
#include "formats/quantization.h"

namespace {

using namespace nunspark;

void CheckSettings(const QuantSettings& settings) {
  CHECK(settings.bits >= 1 && settings.bits <= 8);
  CHECK(settings.group_size >= 1 && (settings.group_size & (settings.group_size - 1)) == 0);
  const std::optional<QuantSettings> usual = DefaultSettings(settings.mode);
  CHECK(usual.has_value());
  CHECK(settings.mode == "affine" || settings == *usual);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> json = ParseJson({reinterpret_cast<const char*>(data), size}, "input");
  if (!json.ok()) return 0;
  const Result<Json> config = NormalizeConfig(*json, "config.json");
  if (!config.ok()) {
    CHECK(config.status().code() == StatusCode::kDataLoss);
    return 0;
  }
  const Result<Json> twice = NormalizeConfig(*config, "config.json");
  CHECK(twice.ok() && WriteJson(*twice) == WriteJson(*config));
  const Result<QuantizationConfig> quantization = ParseQuantization(*config, "config.json");
  if (quantization.ok()) {
    CheckSettings(quantization->base);
    for (const int64_t block : {quantization->fp8_block_rows, quantization->fp8_block_cols}) {
      CHECK(block >= 1 && block <= 65535);
    }
    for (const auto& [name, settings] : quantization->modules) {
      CHECK(quantization->present);
      if (settings.has_value()) CheckSettings(*settings);
    }
  }
  // The document plays both files.
  const Result<std::vector<int32_t>> ids = EosIds(*config, "config.json", &*json, "generation_config.json");
  if (ids.ok()) {
    for (const int32_t id : *ids) CHECK(id >= 0);
  }
  return 0;
}
