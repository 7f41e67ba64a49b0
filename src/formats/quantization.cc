#include "formats/quantization.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "formats/tensor_index.h"

namespace nunspark {
namespace {

// The modes MLX writes. Only those this build decodes are accepted; the others are recognised to say so.
struct ModeRow {
  std::string_view name;
  bool supported;
};
constexpr std::array kModes = {ModeRow{"affine", true}, ModeRow{"mxfp4", false}, ModeRow{"nvfp4", false},
                               ModeRow{"mxfp8", false}};

constexpr int64_t kMaxBits = 8;
constexpr int64_t kMaxGroupSize = 1024;

bool IsSettingsKey(std::string_view key) { return key == "group_size" || key == "bits" || key == "mode"; }

// The block in force and its name for messages; {nullptr, ""} when the model is not quantised.
struct Block {
  const Json* json = nullptr;
  std::string name;
};

Block FindBlock(const Json& config) {
  // Wrappers of several modalities keep the block of the language model in text_config; the top level wins.
  for (const char* const parent : {"", "text_config"}) {
    const Json* const holder = *parent == '\0' ? &config : config.Find(parent);
    if (holder == nullptr) continue;
    for (const char* const key : {"quantization", "quantization_config"}) {
      const Json* const block = holder->Find(key);
      if (block == nullptr || block->is_null()) continue;
      return {block, *parent == '\0' ? key : fmt::format("{}.{}", parent, key)};
    }
  }
  return {};
}

class BlockReader {
 public:
  BlockReader(const Block& block, std::string_view what) : block_(block), what_(what) {}

  Result<QuantizationConfig> Read() const;

 private:
  Status Wrong(std::string_view key, std::string_view expected, const Json& found) const {
    return DataLossError(fmt::format("{}: {}.{}: expected {}, found {}", what_, block_.name, key, expected,
                                     found.is_number() || found.is_string() ? WriteJson(found) : found.TypeName()));
  }

  Result<QuantSettings> ReadSettings(const Json& object, std::string_view prefix) const;

  const Block& block_;
  std::string_view what_;
};

// Missing sizes are MLX's 64 and 4, a missing mode is affine - also in an entry of a block whose own mode is another.
Result<QuantSettings> BlockReader::ReadSettings(const Json& object, std::string_view prefix) const {
  QuantSettings settings;
  const auto path = [&](std::string_view key) { return fmt::format("{}{}", prefix, key); };
  if (const Json* const bits = object.Find("bits"); bits != nullptr && !bits->is_null()) {
    if (!bits->is_int() || bits->as_int() < 1 || bits->as_int() > kMaxBits) {
      return Wrong(path("bits"), fmt::format("an integer from 1 to {}", kMaxBits), *bits);
    }
    settings.bits = static_cast<int>(bits->as_int());
  }
  if (const Json* const group = object.Find("group_size"); group != nullptr && !group->is_null()) {
    if (!group->is_int() || group->as_int() < 1 || group->as_int() > kMaxGroupSize ||
        (group->as_int() & (group->as_int() - 1)) != 0) {
      return Wrong(path("group_size"), fmt::format("a power of two up to {}", kMaxGroupSize), *group);
    }
    settings.group_size = static_cast<int>(group->as_int());
  }
  if (const Json* const mode = object.Find("mode"); mode != nullptr && !mode->is_null()) {
    if (!mode->is_string()) return Wrong(path("mode"), "a string", *mode);
    settings.mode = mode->as_string();
  }
  for (const ModeRow& row : kModes) {
    if (row.name == settings.mode && row.supported) return settings;
  }
  return UnsupportedError(fmt::format("{}: {}: quantisation mode {} is not built yet; this build reads affine", what_,
                                      fmt::format("{}.{}", block_.name, path("mode")), QuoteName(settings.mode)));
}

Result<QuantizationConfig> BlockReader::Read() const {
  QuantizationConfig result;
  result.present = true;
  ASSIGN_OR_RETURN(result.base, ReadSettings(*block_.json, ""));
  for (const auto& [key, value] : block_.json->as_object()) {
    if (IsSettingsKey(key)) continue;
    if (value.is_object()) {
      // An object of other things ("activation_config") concerns no module.
      const bool settings = value.as_object().empty() || value.Find("bits") != nullptr ||
                            value.Find("group_size") != nullptr || value.Find("mode") != nullptr;
      if (!settings) continue;
      ASSIGN_OR_RETURN(result.modules[key], ReadSettings(value, fmt::format("{}.", key)));
    } else if (value.is_bool() && key != "quantize_activations") {
      // `true` means quantised as the base says. quantize_activations is a switch of the block, not a module; how
      // activations are rounded is this engine's own choice (numerics).
      result.modules[key] = value.as_bool() ? std::optional(result.base) : std::nullopt;
    }
    // Anything else ("quant_method", "linear_class", version numbers) describes the block, not a module.
  }
  return result;
}

}  // namespace

Result<QuantizationConfig> ParseQuantization(const Json& config, std::string_view what) {
  const Block block = FindBlock(config);
  if (block.json == nullptr) return QuantizationConfig();
  if (!block.json->is_object()) {
    return DataLossError(fmt::format("{}: {}: expected an object, found {}", what, block.name, block.json->TypeName()));
  }
  const Json* const method = block.json->Find("quant_method");
  if (method != nullptr && !method->is_null()) {
    return UnsupportedError(fmt::format(
        "{}: {}.quant_method {} is not supported; this build reads floating-point checkpoints and MLX affine "
        "quantisation (as mlx-community publishes it)",
        what, block.name, method->is_string() ? QuoteName(method->as_string()) : WriteJson(*method)));
  }
  return BlockReader(block, what).Read();
}

}  // namespace nunspark
