// Sizes as people write them. Contract section 1: TB GB MB KB T G M K B are decimal and case-insensitive, fractions are
// allowed with a unit, a bare integer is bytes.
#ifndef NUNSPARK_BASE_SIZE_H_
#define NUNSPARK_BASE_SIZE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

// "1.5GB" -> 1500000000. Spaces around the text are ignored.
// Errors: kInvalidArgument for anything else, for a negative size and for one beyond 2^63 - 1.
Result<int64_t> ParseSize(std::string_view text);

// For people: "512 B", "84.0 MB", "1.05 GB" (decimal units, three significant figures or so).
std::string FormatSize(int64_t bytes);

// A size to suggest as a flag's value: short ("1.05GB", three digits), read by ParseSize as at least (at most) `bytes`.
// REQUIRES: bytes >= 0.
std::string SizeFlagAtLeast(int64_t bytes);
std::string SizeFlagAtMost(int64_t bytes);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_SIZE_H_
