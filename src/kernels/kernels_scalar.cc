// The scalar table: every kernel over an array of sixteen floats.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/align.h"
#include "base/half.h"
#include "kernels/matmul.h"
#include "kernels/tables.h"
#include "quant/gguf_decode.h"
#include "quant/lanes.h"
#include "quant/small_floats.h"

// Left to the compiler: sixteen floats fit no registers, and everything unrolled takes minutes to build with
// sanitizers.
#define NUNSPARK_INLINE inline
#define NUNSPARK_UNROLL

namespace nunspark {
namespace scalar_kernels {
namespace {

// Each builds on those before it.
// clang-format off
#include "kernels/lanes_scalar.inc"
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
#include "kernels/matmul_codes.inc"
// clang-format on

constexpr KernelTable kTable{
    .name = "scalar",
#include "kernels/table_entries.inc"
};

}  // namespace
}  // namespace scalar_kernels

const KernelTable& internal::ScalarKernels() { return scalar_kernels::kTable; }

}  // namespace nunspark
