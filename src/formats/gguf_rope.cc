#include "formats/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/file.h"

namespace nunspark {
namespace {

constexpr double kDefaultTheta = 10000;  // llama.cpp's
// What the converter writes for elements that do not turn at all.
constexpr float kNoTurn = 1e29F;
// Half the width of a head; far above any real one, and a bound for the memory of a list of factors.
constexpr int64_t kMaxFactors = 65536;

class RopeReader {
 public:
  RopeReader(const GgufModel& model, const GgufKeys& keys, Json& config)
      : model_(model), keys_(keys), config_(config) {}

  Status Read();

 private:
  Status ReadScaling(std::string_view type, double factor);
  Status ReadYarn(double factor);
  Status SetFactors(const std::vector<float>& short_factors, const std::vector<float>& long_factors);
  bool SetProportional(const std::vector<float>& factors);
  // Empty when there is no such tensor.
  Result<std::vector<float>> ReadFactors(std::string_view name) const;
  Result<double> NumberOr(std::string_view name, double missing) const;

  const GgufModel& model_;
  const GgufKeys& keys_;
  Json& config_;
};

Status RopeReader::Read() {
  if (config_.Find("rope_theta") == nullptr) config_.Set("rope_theta", kDefaultTheta);
  config_.Set("rope_scaling", Json());
  ASSIGN_OR_RETURN(std::string_view type, keys_.Text(keys_.Name("rope.scaling.type")));
  ASSIGN_OR_RETURN(const double old_factor, NumberOr("rope.scale_linear", 0));
  ASSIGN_OR_RETURN(double factor, NumberOr("rope.scaling.factor", old_factor));
  if (factor < 0) return keys_.Wrong(keys_.Name("rope.scaling.factor"), "a factor", fmt::format("{}", factor));
  if (factor == 0) factor = 1;
  if (type.empty()) type = "linear";
  ASSIGN_OR_RETURN(const std::vector<float> all, ReadFactors("rope_freqs.weight"));
  ASSIGN_OR_RETURN(const std::vector<float> shorter, ReadFactors("rope_factors_short.weight"));
  ASSIGN_OR_RETURN(const std::vector<float> longer, ReadFactors("rope_factors_long.weight"));
  const bool by_tensor = !all.empty() || !shorter.empty() || !longer.empty();
  if (!by_tensor) return ReadScaling(type, factor);
  if (factor != 1 || (type != "linear" && type != "none" && type != "longrope")) {
    return UnsupportedError(
        fmt::format("{}: rope scaling {} by {} together with a tensor of factors; expected one of the two",
                    keys_.what(), QuoteName(type), factor));
  }
  if (!all.empty() && (!shorter.empty() || !longer.empty())) {
    return UnsupportedError(
        fmt::format("{}: rope_freqs together with rope_factors; expected one of the two", keys_.what()));
  }
  if (all.empty() && shorter.size() != longer.size()) {
    return DataLossError(
        fmt::format("{}: expected as many factors in rope_factors_short as in rope_factors_long, found {} and {}",
                    keys_.what(), shorter.size(), longer.size()));
  }
  if (!all.empty() && SetProportional(all)) return Status();
  return all.empty() ? SetFactors(shorter, longer) : SetFactors(all, all);
}

Status RopeReader::ReadScaling(std::string_view type, double factor) {
  if (type == "none") return Status();
  if (type == "yarn") return ReadYarn(factor);
  if (type == "longrope") {
    return DataLossError(
        fmt::format("{}: tensor \"rope_factors_long.weight\": expected one for rope scaling "
                    "\"longrope\", found none",
                    keys_.what()));
  }
  if (type != "linear") {
    return UnsupportedError(fmt::format("{}: key {}: expected none, linear, yarn or longrope, found {}", keys_.what(),
                                        QuoteName(keys_.Name("rope.scaling.type")), QuoteName(type)));
  }
  if (factor == 1) return Status();
  Json scaling;
  scaling.Set("rope_type", "linear");
  scaling.Set("factor", factor);
  config_.Set("rope_scaling", std::move(scaling));
  return Status();
}

Status RopeReader::ReadYarn(double factor) {
  Json scaling;
  scaling.Set("rope_type", "yarn");
  scaling.Set("factor", factor);
  for (const auto& [name, config_name] :
       {std::pair("rope.scaling.original_context_length", "original_max_position_embeddings"),
        std::pair("rope.scaling.yarn_beta_fast", "beta_fast"), std::pair("rope.scaling.yarn_beta_slow", "beta_slow"),
        std::pair("rope.scaling.yarn_attn_factor", "attention_factor")}) {
    const std::string key = keys_.Name(name);
    const GgufValue* const value = keys_.Find(key);
    if (value == nullptr) continue;
    ASSIGN_OR_RETURN(const std::optional<double> number, keys_.Number(key));
    scaling.Set(config_name, value->Int().has_value() ? Json(*value->Int()) : Json(*number));
  }
  ASSIGN_OR_RETURN(const double extrapolation, NumberOr("rope.scaling.yarn_ext_factor", 1));
  if (extrapolation != 1) {
    return UnsupportedError(fmt::format("{}: key {}: expected 1, found {}", keys_.what(),
                                        QuoteName(keys_.Name("rope.scaling.yarn_ext_factor")), extrapolation));
  }
  // The converter writes a tenth of DeepSeek's mscale_all_dim (conversion/deepseek.py, "legacy reasons"), which those
  // models always set to their mscale.
  ASSIGN_OR_RETURN(const double log_multiplier, NumberOr("rope.scaling.yarn_log_multiplier", 0));
  if (log_multiplier != 0) {
    scaling.Set("mscale", log_multiplier * 10);
    scaling.Set("mscale_all_dim", log_multiplier * 10);
  }
  config_.Set("rope_scaling", std::move(scaling));
  return Status();
}

Status RopeReader::SetFactors(const std::vector<float>& short_factors, const std::vector<float>& long_factors) {
  // The shortest decimal of each, as in every other number that the file has in single precision.
  const auto list = [](const std::vector<float>& factors) {
    std::string bytes(reinterpret_cast<const char*>(factors.data()), factors.size() * sizeof(float));
    const GgufValue value(GgufType::kF32, true, std::move(bytes));
    Json::Array numbers;
    for (size_t i = 0; i < value.size(); ++i) numbers.emplace_back(*value.Number(i));
    return numbers;
  };
  ASSIGN_OR_RETURN(const double attention_factor, NumberOr("rope.scaling.attn_factor", 1));
  const Json* const trained = config_.Find("max_position_embeddings");
  constexpr int64_t kMaxPositions = int64_t{1} << 40;
  ASSIGN_OR_RETURN(const std::optional<int64_t> original,
                   keys_.Int(keys_.Name("rope.scaling.original_context_length"), 1, kMaxPositions));
  Json scaling;
  scaling.Set("rope_type", "longrope");
  scaling.Set("short_factor", list(short_factors));
  scaling.Set("long_factor", list(long_factors));
  scaling.Set("attention_factor", attention_factor);
  if (original.has_value() || trained != nullptr) {
    const Json positions = original.has_value() ? Json(*original) : *trained;
    scaling.Set("original_max_position_embeddings", positions);
    // Where phi3's config.json has it.
    config_.Set("original_max_position_embeddings", positions);
  }
  config_.Set("rope_scaling", std::move(scaling));
  return Status();
}

// Gemma 4 leaves the last elements of a head unturned in the layers that see everything. The file says that with
// factors 1 and "infinite", which the other layers ignore; config.json says it by layer type.
bool RopeReader::SetProportional(const std::vector<float>& factors) {
  const auto turned = std::find_if(factors.begin(), factors.end(), [](float factor) { return factor != 1; });
  const bool rest = std::all_of(turned, factors.end(), [](float factor) { return factor >= kNoTurn; });
  if (turned == factors.end() || !rest) return false;
  Json full;
  full.Set("rope_type", "proportional");
  full.Set("rope_theta", Json(*config_.Find("rope_theta")));
  full.Set("partial_rotary_factor",
           static_cast<double>(turned - factors.begin()) / static_cast<double>(factors.size()));
  Json sliding;
  sliding.Set("rope_type", "default");
  const Json* const local = config_.Find("rope_local_base_freq");
  sliding.Set("rope_theta", local != nullptr ? Json(*local) : Json(kDefaultTheta));
  Json parameters;
  parameters.Set("full_attention", std::move(full));
  parameters.Set("sliding_attention", std::move(sliding));
  config_.Set("rope_parameters", std::move(parameters));
  return true;
}

Result<std::vector<float>> RopeReader::ReadFactors(std::string_view name) const {
  const TensorInfo* const tensor = model_.tensors.Find(name);
  if (tensor == nullptr) return std::vector<float>();
  const std::string& path = model_.tensors.files()[static_cast<size_t>(tensor->file)].path;
  if (tensor->dtype != DType::kF32 || tensor->shape.size() != 1 || tensor->shape[0] > kMaxFactors) {
    return DataLossError(fmt::format("{}: tensor {}: expected F32 [1 to {}], found {} {}", path, QuoteName(name),
                                     kMaxFactors, DTypeName(tensor->dtype), ShapeText(tensor->shape)));
  }
  std::vector<float> factors(static_cast<size_t>(tensor->shape[0]));
  ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
  RETURN_IF_ERROR(
      file.ReadAt(tensor->offset, {reinterpret_cast<uint8_t*>(factors.data()), factors.size() * sizeof(float)}));
  for (const float factor : factors) {
    if (factor > 0 && std::isfinite(factor)) continue;
    return DataLossError(
        fmt::format("{}: tensor {}: expected factors above 0, found {}", path, QuoteName(name), factor));
  }
  return factors;
}

Result<double> RopeReader::NumberOr(std::string_view name, double missing) const {
  ASSIGN_OR_RETURN(const std::optional<double> number, keys_.Number(keys_.Name(name)));
  return number.value_or(missing);
}

}  // namespace

Status ReadGgufRope(const GgufModel& model, const GgufKeys& keys, Json& config) {
  return RopeReader(model, keys, config).Read();
}

}  // namespace nunspark
