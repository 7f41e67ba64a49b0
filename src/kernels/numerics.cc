#include "kernels/numerics.h"

#include "base/align.h"
#include "base/check.h"

namespace nunspark {
namespace {

constexpr std::string_view kNames[] = {"f32", "i16", "i8"};

}  // namespace

std::string_view NumericsName(Numerics numerics) { return kNames[static_cast<int>(numerics)]; }

std::optional<Numerics> FindNumerics(std::string_view name) {
  for (const Numerics numerics : {Numerics::kF32, Numerics::kI16, Numerics::kI8}) {
    if (NumericsName(numerics) == name) return numerics;
  }
  return std::nullopt;
}

bool HasCodes(const WeightFormat& format) {
  switch (format.encoding) {
    case Encoding::kF32:
    case Encoding::kF16:
    case Encoding::kBF16:
    case Encoding::kAwq:
    case Encoding::kMxFp8:
    case Encoding::kFp8Block: return false;
    case Encoding::kAffine:
    case Encoding::kMxFp4:
    case Encoding::kNvFp4:
    case Encoding::kQ4_0:
    case Encoding::kQ4_1:
    case Encoding::kQ5_0:
    case Encoding::kQ5_1:
    case Encoding::kQ8_0:
    case Encoding::kQ2K:
    case Encoding::kQ3K:
    case Encoding::kQ4K:
    case Encoding::kQ5K:
    case Encoding::kQ6K:
    case Encoding::kIq4Nl:
    case Encoding::kIq4Xs:
    case Encoding::kGgufMxFp4: break;
  }
  return true;
}

RoundedRowLayout LayoutOfRoundedRow(int64_t n, Numerics numerics) {
  DCHECK(numerics != Numerics::kF32);
  RoundedRowLayout layout{};
  layout.units = CeilDiv(n, 128);
  layout.pairs = numerics == Numerics::kI16 ? 256 : 128;
  layout.steps = 2 * layout.pairs;
  layout.sums = layout.steps + 64;
  layout.half_sums = layout.sums + 64;
  layout.unit_bytes = layout.half_sums + 64;
  // An odd number of cache lines, so that rows do not all meet in the same sets of the cache.
  layout.bytes = (layout.units * layout.unit_bytes) | 64;
  return layout;
}

}  // namespace nunspark
