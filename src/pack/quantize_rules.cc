#include "pack/quantize_rules.h"

#include <charconv>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/parts.h"
#include "formats/tensor_index.h"
#include "quant/quantize.h"

namespace nunspark {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kAffine = "affine";

// -1 for anything but a plain number.
int Number(std::string_view text) {
  int value = -1;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? value : -1;
}

Result<std::optional<QuantSettings>> ParseSettings(std::string_view text) {
  const auto wrong = [&](std::string_view what, std::string_view expected) {
    return InvalidArgumentError(fmt::format("{}: expected {}, found {}", what, expected, QuoteName(text)));
  };
  if (text == kNone) return std::optional<QuantSettings>();
  const std::vector<std::string_view> parts = SplitAt(text, ':');
  std::optional<QuantSettings> settings = DefaultSettings(parts[0]);
  if (!settings.has_value() || settings->mode == "nvfp4") {
    return wrong("encoding", "affine:BITS:GROUP, mxfp4, mxfp8 or none");
  }
  if (settings->mode != kAffine) {
    if (parts.size() > 1) return wrong("encoding", fmt::format("{} without numbers", settings->mode));
    return settings;
  }
  if (parts.size() < 2 || parts.size() > 3) return wrong("encoding", "affine:BITS or affine:BITS:GROUP");
  settings->bits = Number(parts[1]);
  if (parts.size() == 3) settings->group_size = Number(parts[2]);
  if (settings->bits < 2 || settings->bits > 8 || settings->bits == 7) return wrong("bits", "2, 3, 4, 5, 6 or 8");
  const int group = settings->group_size;
  if (group != 32 && group != 64 && group != 128) return wrong("group size", "32, 64 or 128");
  return settings;
}

}  // namespace

Result<QuantizeRule> ParseQuantizeRule(std::string_view text) {
  QuantizeRule rule;
  std::string_view encoding = text;
  if (const size_t equals = text.rfind('='); equals != std::string_view::npos) {
    rule.pattern = text.substr(0, equals);
    encoding = text.substr(equals + 1);
    if (rule.pattern.empty()) {
      return InvalidArgumentError(fmt::format(
          "pattern: expected a module's path such as '*.mlp.down_proj' before '=', found {}", QuoteName(text)));
    }
  }
  ASSIGN_OR_RETURN(rule.settings, ParseSettings(encoding));
  return rule;
}

std::string QuantizeRuleText(const QuantizeRule& rule) {
  return fmt::format("{}{}{}", rule.pattern, rule.pattern.empty() ? "" : "=",
                     rule.settings.has_value() ? SettingsText(*rule.settings) : std::string(kNone));
}

std::string SettingsText(const QuantSettings& settings) {
  return settings.mode == kAffine ? fmt::format("{}:{}:{}", kAffine, settings.bits, settings.group_size)
                                  : settings.mode;
}

WeightFormat EncodedFormat(const QuantSettings& settings, FloatType source) {
  WeightFormat format;
  if (settings.mode == kAffine) {
    format = {.encoding = Encoding::kAffine,
              .bits = static_cast<uint8_t>(settings.bits),
              .group_size = static_cast<uint16_t>(settings.group_size),
              .scale_type = source};
  } else {
    format = FixedFormat(settings.mode == "mxfp4" ? Encoding::kMxFp4 : Encoding::kMxFp8);
  }
  CHECK(CanEncode(format));
  return format;
}

}  // namespace nunspark
