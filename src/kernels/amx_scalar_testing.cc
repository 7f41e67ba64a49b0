// The products of kernels_amx.cc in plain C++.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/half.h"
#include "kernels/amx.h"
#include "kernels/amx_model.h"
#include "kernels/amx_testing.h"
#include "kernels/matmul.h"
#include "kernels/tables.h"
#include "quant/gguf_decode.h"
#include "quant/lanes.h"
#include "quant/small_floats.h"

#define NUNSPARK_INLINE inline
#define NUNSPARK_UNROLL

namespace nunspark {
namespace scalar_tiles {
namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
// Each builds on those before it.
// clang-format off
#include "kernels/lanes_scalar.inc"
#include "kernels/lanes16.inc"
#include "kernels/vector_ops.inc"
#include "kernels/matmul_blocks.inc"
#include "kernels/matmul_decode.inc"
#include "kernels/matmul_tiles.inc"
#include "kernels/codes.inc"
#define NUNSPARK_TILES
#include "kernels/matmul_lanes.inc"
#include "kernels/matmul_wide.inc"
#include "kernels/matmul_codes.inc"
// clang-format on

// What amx_hardware.inc does with instructions.
struct Tiles {
  static void Configure(const internal::TileConfig& config) { internal::ThisThreadsTiles().Configure(config); }
  static void Release() { internal::ThisThreadsTiles().Release(); }
  template <int kTile>
  static void Zero() {
    internal::ThisThreadsTiles().Zero(kTile);
  }
  template <int kTile>
  static void Load(const uint8_t* from, int64_t stride) {
    internal::ThisThreadsTiles().Load(kTile, from, stride);
  }
  template <int kTile>
  static void Store(uint8_t* to, int64_t stride) {
    internal::ThisThreadsTiles().Store(kTile, to, stride);
  }
  template <int kTile, int kX, int kCodes>
  static void Dot() {
    internal::ThisThreadsTiles().Dot(kTile, kX, kCodes);
  }
};

#include "kernels/matmul_amx.inc"
#pragma GCC diagnostic pop

}  // namespace
}  // namespace scalar_tiles

std::vector<const KernelTable*> internal::TilesTables() {
  std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
  CatchTileInstructions();
  for (const KernelTable* table : VectorKernels()) {
    if (std::string_view(table->name) == "avx512vnni") tables.push_back(&AmxTable(*table));
  }
#endif
  tables.push_back(&scalar_tiles::TableWithTiles(ScalarKernels(), "scalar-tiles"));
  return tables;
}

}  // namespace nunspark
