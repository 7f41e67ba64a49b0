// The tables of Highway's targets. This file includes itself once for every target.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/align.h"
#include "base/half.h"
#include "kernels/hwy_setup.h"
#include "kernels/matmul.h"
#include "kernels/tables.h"
#include "quant/gguf_decode.h"
#include "quant/lanes.h"
#include "quant/small_floats.h"

// kernels_neon_*.cc include this file too, for extensions that are no target of Highway's.
#if !defined(NUNSPARK_TABLE)
#define NUNSPARK_TABLE Table
#define NUNSPARK_NEON_NAME "neon"
#define NUNSPARK_ALL_TABLES
#endif

// Only targets with fused multiply-add; older processors run the scalar table. Vectors of a length that is not known
// are not made use of.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels_hwy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The build's baseline (plain x86-64) may be a target of Highway's that has no table here.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
#if HWY_TARGET == HWY_AVX3_DL
#undef HWY_TARGET_STR
#define HWY_TARGET_STR NUNSPARK_VNNI_TARGET_STR
#endif
HWY_BEFORE_NAMESPACE();
namespace nunspark {
namespace HWY_NAMESPACE {
namespace {

// Each builds on those before it.
// clang-format off
#include "kernels/lanes_hwy.inc"
#include "kernels/lanes16.inc"
#include "kernels/vector_ops.inc"
#include "kernels/kv_rows.inc"
#include "kernels/attention.inc"
#include "kernels/attention_codes.inc"
#include "kernels/matmul_blocks.inc"
#include "kernels/matmul_decode.inc"
#include "kernels/matmul_tiles.inc"
#include "kernels/matmul.inc"
#include "kernels/codes.inc"
#include "kernels/matmul_lanes.inc"
#include "kernels/matmul_lanes_f32.inc"
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define NUNSPARK_WIDE_TILES
#include "kernels/matmul_wide.inc"
#endif
#include "kernels/matmul_codes.inc"
#undef NUNSPARK_WIDE_TILES
// clang-format on

constexpr KernelTable kTable {
#if HWY_TARGET == HWY_AVX2
  .name = "avx2",
#elif HWY_TARGET == HWY_AVX3
  .name = "avx512",
#elif HWY_TARGET == HWY_AVX3_DL
  .name = "avx512vnni",
#else
  .name = NUNSPARK_NEON_NAME,
#endif
#include "kernels/table_entries.inc"
};

}  // namespace

const KernelTable& NUNSPARK_TABLE() { return kTable; }

}  // namespace HWY_NAMESPACE
}  // namespace nunspark
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE && defined(NUNSPARK_ALL_TABLES)
namespace nunspark {

std::vector<const KernelTable*> internal::VectorKernels() {
  std::vector<const KernelTable*> tables;
  [[maybe_unused]] const int64_t supported = hwy::SupportedTargets();
#if (HWY_TARGETS) & HWY_AVX3_DL
  if ((supported & HWY_AVX3_DL) != 0) tables.push_back(&N_AVX3_DL::Table());
#endif
#if (HWY_TARGETS) & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) tables.push_back(&N_AVX3::Table());
#endif
#if (HWY_TARGETS) & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) tables.push_back(&N_AVX2::Table());
#endif
#if (HWY_TARGETS) & HWY_NEON
  if ((supported & HWY_NEON) != 0) {
    for (const KernelTable* table : {internal::NeonI8mmKernels(), internal::NeonDotprodKernels()}) {
      if (table != nullptr) tables.push_back(table);
    }
    tables.push_back(&N_NEON::Table());
  }
#endif
  return tables;
}

}  // namespace nunspark
#endif
