// The one message for numbers that must lie between two others.
#ifndef NUNSPARK_BASE_IN_RANGE_H_
#define NUNSPARK_BASE_IN_RANGE_H_

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "nunspark/status.h"

namespace nunspark {

// `value`. Errors: kInvalidArgument: "<name> must be from <least> to <most>, found <value>". REQUIRES: both limits fit.
inline Result<int32_t> InRange(std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return static_cast<int32_t>(value);
  return InvalidArgumentError(fmt::format("{} must be from {} to {}, found {}", name, least, most, value));
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_IN_RANGE_H_
