// The table of AVX-512 and AMX: products of codes with many rows, over the vectors of AVX-512 with VNNI, whose table
// has all else. Highway's way to build for one target: this file includes itself.
#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/align.h"
#include "base/check.h"
#include "base/half.h"
#include "kernels/amx.h"
#include "kernels/hwy_setup.h"
#include "kernels/matmul.h"
#include "quant/gguf_decode.h"
#include "quant/lanes.h"
#include "quant/small_floats.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels_amx.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX3_DL
#undef HWY_TARGET_STR
#define HWY_TARGET_STR NUNSPARK_VNNI_TARGET_STR ",amx-tile,amx-int8"
HWY_BEFORE_NAMESPACE();
namespace nunspark {
namespace HWY_NAMESPACE {
namespace {

// What the other tables are for.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
// Each builds on those before it.
// clang-format off
#include "kernels/lanes_hwy.inc"
#include "kernels/lanes16.inc"
#include "kernels/vector_ops.inc"
#include "kernels/matmul_blocks.inc"
#include "kernels/matmul_decode.inc"
#include "kernels/matmul_tiles.inc"
#include "kernels/codes.inc"
#define NUNSPARK_WIDE_TILES
#define NUNSPARK_TILES
#include "kernels/matmul_lanes.inc"
#include "kernels/matmul_wide.inc"
#include "kernels/matmul_codes.inc"
#undef NUNSPARK_TILES
#undef NUNSPARK_WIDE_TILES
#include "kernels/amx_hardware.inc"
#include "kernels/matmul_amx.inc"
// clang-format on
#pragma GCC diagnostic pop

}  // namespace

const KernelTable& TableOf(const KernelTable& vnni) { return TableWithTiles(vnni, "avx512amx"); }

}  // namespace HWY_NAMESPACE
}  // namespace nunspark
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
const nunspark::KernelTable& nunspark::internal::AmxTable(const KernelTable& vnni) { return N_AVX3_DL::TableOf(vnni); }
#endif
#endif
