#include "formats/quantization.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "formats/tensor_index.h"

namespace nunspark {
namespace {

struct ModeRow {
  std::string_view name;
  int bits;
  int group_size;
  bool fixed;  // no other bits and group sizes
};
constexpr std::array kModes = {ModeRow{"affine", 4, 64, false}, ModeRow{"mxfp4", 4, 32, true},
                               ModeRow{"mxfp8", 8, 32, true}, ModeRow{"nvfp4", 4, 16, true}};

constexpr int64_t kMaxBits = 8;
constexpr int64_t kMaxGroupSize = 1024;
constexpr int64_t kMaxFp8Block = 65535;

const ModeRow* FindMode(std::string_view name) {
  for (const ModeRow& row : kModes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool IsSettingsKey(std::string_view key) { return key == "group_size" || key == "bits" || key == "mode"; }

// A block and its name for messages; {nullptr, ""} when there is none.
struct Block {
  const Json* json = nullptr;
  std::string name;
};

// Wrappers of several modalities keep the block of the language model in text_config; the top level wins.
Block FindBlock(const Json& config, std::string_view key) {
  for (const char* const parent : {"", "text_config"}) {
    const Json* const holder = *parent == '\0' ? &config : config.Find(parent);
    if (holder == nullptr) continue;
    const Json* const block = holder->Find(key);
    if (block == nullptr || block->is_null()) continue;
    return {block, *parent == '\0' ? std::string(key) : fmt::format("{}.{}", parent, key)};
  }
  return {};
}

class BlockReader {
 public:
  BlockReader(const Block& block, std::string_view what) : block_(block), what_(what) {}

  // MLX's settings.
  Status Read(QuantizationConfig& result) const;
  // Another tool's.
  Status ReadForeign(std::string_view method, QuantizationConfig& result) const;

 private:
  Status Wrong(std::string_view key, std::string_view expected, const Json& found) const {
    return DataLossError(fmt::format("{}: {}.{}: expected {}, found {}", what_, block_.name, key, expected,
                                     found.is_number() || found.is_string() ? WriteJson(found) : found.TypeName()));
  }

  Result<QuantSettings> ReadSettings(const Json& object, std::string_view prefix) const;
  Status CheckAwq() const;
  Status ReadFp8(QuantizationConfig& result) const;

  const Block& block_;
  std::string_view what_;
};

// A missing mode is affine - also in an entry of a block whose own mode is another. Missing sizes are the mode's.
Result<QuantSettings> BlockReader::ReadSettings(const Json& object, std::string_view prefix) const {
  const auto path = [&](std::string_view key) { return fmt::format("{}{}", prefix, key); };
  std::string name = "affine";
  if (const Json* const mode = object.Find("mode"); mode != nullptr && !mode->is_null()) {
    if (!mode->is_string()) return Wrong(path("mode"), "a string", *mode);
    name = mode->as_string();
  }
  const ModeRow* const mode = FindMode(name);
  if (mode == nullptr) {
    return UnsupportedError(
        fmt::format("{}: {}.{}: quantisation mode {} is not known; supported: affine, mxfp4, mxfp8, nvfp4", what_,
                    block_.name, path("mode"), QuoteName(name)));
  }
  QuantSettings settings{.group_size = mode->group_size, .bits = mode->bits, .mode = std::move(name)};
  if (const Json* const bits = object.Find("bits"); bits != nullptr && !bits->is_null()) {
    if (!bits->is_int() || bits->as_int() < 1 || bits->as_int() > kMaxBits) {
      return Wrong(path("bits"), fmt::format("an integer from 1 to {}", kMaxBits), *bits);
    }
    if (mode->fixed && bits->as_int() != mode->bits) {
      return Wrong(path("bits"), fmt::format("{} for {}", mode->bits, mode->name), *bits);
    }
    settings.bits = static_cast<int>(bits->as_int());
  }
  if (const Json* const group = object.Find("group_size"); group != nullptr && !group->is_null()) {
    if (!group->is_int() || group->as_int() < 1 || group->as_int() > kMaxGroupSize ||
        (group->as_int() & (group->as_int() - 1)) != 0) {
      return Wrong(path("group_size"), fmt::format("a power of two up to {}", kMaxGroupSize), *group);
    }
    if (mode->fixed && group->as_int() != mode->group_size) {
      return Wrong(path("group_size"), fmt::format("{} for {}", mode->group_size, mode->name), *group);
    }
    settings.group_size = static_cast<int>(group->as_int());
  }
  return settings;
}

Status BlockReader::Read(QuantizationConfig& result) const {
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
  return Status();
}

Status BlockReader::ReadForeign(std::string_view method, QuantizationConfig& result) const {
  if (method == "mxfp4") {
    result.foreign = ForeignMethod::kMxFp4;
    return Status();
  }
  if (method == "awq") {
    result.foreign = ForeignMethod::kAwq;
    return CheckAwq();
  }
  if (method == "fp8") {
    result.foreign = ForeignMethod::kFp8;
    return ReadFp8(result);
  }
  return UnsupportedError(fmt::format(
      "{}: {}.quant_method {} is not supported; this build reads floating-point checkpoints, MLX quantisation (as "
      "mlx-community publishes it), mxfp4 as gpt-oss has it, awq and fp8",
      what_, block_.name, QuoteName(method)));
}

Status BlockReader::CheckAwq() const {
  if (const Json* const version = block_.json->Find("version"); version != nullptr && !version->is_null()) {
    if (!version->is_string()) return Wrong("version", "a string", *version);
    if (const std::string& name = version->as_string(); name != "gemm" && name != "GEMM") {
      return UnsupportedError(fmt::format("{}: {}.version: AWQ's packing {} is not supported; supported: gemm", what_,
                                          block_.name, QuoteName(name)));
    }
  }
  if (const Json* const bits = block_.json->Find("bits"); bits != nullptr && !bits->is_null()) {
    if (!bits->is_int()) return Wrong("bits", "an integer", *bits);
    if (bits->as_int() != 4) {
      return UnsupportedError(fmt::format("{}: {}.bits: AWQ with {} bits is not supported; supported: 4", what_,
                                          block_.name, bits->as_int()));
    }
  }
  // -1: one group for all inputs. The shape of the scales says it too, and counts.
  const Json* const group = block_.json->Find("group_size");
  if (group == nullptr || group->is_null()) return Status();
  if (group->is_int() && (group->as_int() == -1 || (group->as_int() >= 1 && group->as_int() <= kMaxGroupSize))) {
    return Status();
  }
  return Wrong("group_size", fmt::format("-1 or an integer from 1 to {}", kMaxGroupSize), *group);
}

Status BlockReader::ReadFp8(QuantizationConfig& result) const {
  const Json* const format = block_.json->Find("fmt");
  if (format != nullptr && !format->is_null() && !(format->is_string() && format->as_string() == "e4m3")) {
    return UnsupportedError(fmt::format("{}: {}.fmt {} is not supported; supported: e4m3", what_, block_.name,
                                        format->is_string() ? QuoteName(format->as_string()) : WriteJson(*format)));
  }
  const Json* const block = block_.json->Find("weight_block_size");
  if (block == nullptr || block->is_null()) return Status();
  const auto size = [&](size_t axis) {
    const Json& entry = block->as_array()[axis];
    return entry.is_int() && entry.as_int() >= 1 && entry.as_int() <= kMaxFp8Block ? entry.as_int() : 0;
  };
  const bool pair = block->is_array() && block->as_array().size() == 2;
  if (!pair || size(0) == 0 || size(1) == 0) {
    return Wrong("weight_block_size", fmt::format("two integers from 1 to {}", kMaxFp8Block), *block);
  }
  result.fp8_block_rows = size(0);
  result.fp8_block_cols = size(1);
  return Status();
}

}  // namespace

std::optional<QuantSettings> DefaultSettings(std::string_view mode) {
  const ModeRow* const row = FindMode(mode);
  if (row == nullptr) return std::nullopt;
  return QuantSettings{.group_size = row->group_size, .bits = row->bits, .mode = std::string(mode)};
}

Result<QuantizationConfig> ParseQuantization(const Json& config, std::string_view what) {
  const Block mlx = FindBlock(config, "quantization");
  const Block copy = FindBlock(config, "quantization_config");
  QuantizationConfig result;
  for (const Block& block : {mlx, copy}) {
    if (block.json == nullptr || block.json->is_object()) continue;
    return DataLossError(fmt::format("{}: {}: expected an object, found {}", what, block.name, block.json->TypeName()));
  }
  if (mlx.json != nullptr) RETURN_IF_ERROR(BlockReader(mlx, what).Read(result));
  if (copy.json == nullptr) return result;
  const Json* const method = copy.json->Find("quant_method");
  if (method == nullptr || method->is_null()) {
    // MLX writes its settings under both names.
    if (mlx.json == nullptr) RETURN_IF_ERROR(BlockReader(copy, what).Read(result));
    return result;
  }
  const std::string name = method->is_string() ? method->as_string() : WriteJson(*method);
  const Status foreign = BlockReader(copy, what).ReadForeign(name, result);
  if (!foreign.ok() && !(mlx.json != nullptr && foreign.code() == StatusCode::kUnsupported)) return foreign;
  if (!foreign.ok()) result.foreign = ForeignMethod::kNone;
  return result;
}

}  // namespace nunspark
