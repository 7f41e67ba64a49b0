// What `nunspark pack --quantize` says: which modules become which encoding.
#ifndef NUNSPARK_PACK_QUANTIZE_RULES_H_
#define NUNSPARK_PACK_QUANTIZE_RULES_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/quantization.h"
#include "nunspark/status.h"
#include "quant/encoding.h"

namespace nunspark {

// One --quantize. The last rule that matches a module counts.
struct QuantizeRule {
  // A glob on the module's path, which is its weight's name in a pack without ".weight": '*' stands for any characters,
  // dots included, '?' for one. Experts are also known by their stacked name ("...mlp.switch_mlp.up_proj"). Empty:
  // every module.
  std::string pattern;
  std::optional<QuantSettings> settings;  // nullopt: as the source has it
};

// "[PATTERN=]affine:BITS[:GROUP]", "[PATTERN=]mxfp4", "[PATTERN=]mxfp8", "[PATTERN=]none". Errors: kInvalidArgument
// with the part that is wrong and what may stand there.
Result<QuantizeRule> ParseQuantizeRule(std::string_view text);

// The canonical text, which ParseQuantizeRule reads back.
std::string QuantizeRuleText(const QuantizeRule& rule);
std::string SettingsText(const QuantSettings& settings);  // "affine:4:64"

// The format of weights encoded by `settings` from floats of `source`. REQUIRES: settings of a parsed rule.
WeightFormat EncodedFormat(const QuantSettings& settings, FloatType source);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_QUANTIZE_RULES_H_
