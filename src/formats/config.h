// config.json in one form, whatever version of the tools wrote it, and the tokens that end a text.
#ifndef NUNSPARK_FORMATS_CONFIG_H_
#define NUNSPARK_FORMATS_CONFIG_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark {

// The largest config.json or generation_config.json that is read; real ones have some KB, the largest, which list every
// quantised tensor, a few MB. As a tree in memory a document can take thirty times its size.
inline constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
inline constexpr std::string_view kConfigLimitReason = "the most that a model's configuration may have";

// Newer tools write {"rope_parameters": {"rope_theta", "rope_type", ...}}; it becomes the flat "rope_theta" and
// "rope_scaling" (null for rope_type "default", else the remaining members), and "partial_rotary_factor" when it holds
// one. Flat keys that are there and not null win. rope_parameters that hold one object per layer type stay as they are.
// The same is done inside "text_config". Nothing is removed.
// Errors: kDataLoss when the config, rope_parameters or a lifted member has the wrong type.
Result<Json> NormalizeConfig(Json config, std::string_view what);

// eos_token_id of generation_config.json (`generation` may be null: there is none) when it holds any - 0 alone and an
// empty list count as none, as in the tools that wrote it -, else of config.json, else of its text_config. An integer
// or a list; repeated ids are dropped. Errors: kDataLoss for other types and ids outside [0, 2^31).
Result<std::vector<int32_t>> EosIds(const Json& config, std::string_view config_what, const Json* generation,
                                    std::string_view generation_what);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_CONFIG_H_
