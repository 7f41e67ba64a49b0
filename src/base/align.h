// Multiples of a unit. Values are not negative and far from the type's end; a unit is positive.
#ifndef NUNSPARK_BASE_ALIGN_H_
#define NUNSPARK_BASE_ALIGN_H_

#include <cstdint>

namespace nunspark {

constexpr int64_t AlignDown(int64_t value, int64_t unit) { return value / unit * unit; }
constexpr int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
constexpr int64_t AlignUp(int64_t value, int64_t unit) { return AlignDown(value + unit - 1, unit); }

static_assert(CeilDiv(0, 3) == 0 && CeilDiv(3, 3) == 1 && CeilDiv(4, 3) == 2);
static_assert(AlignDown(8191, 4096) == 4096 && AlignDown(4096, 4096) == 4096);
static_assert(AlignUp(1, 16) == 16 && AlignUp(16, 16) == 16 && AlignUp(0, 16) == 0 && AlignUp(10, 3) == 12);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_ALIGN_H_
