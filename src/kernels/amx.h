// AMX: tiles of bytes and their products, where the processor and the system have them.
#ifndef NUNSPARK_KERNELS_AMX_H_
#define NUNSPARK_KERNELS_AMX_H_

#include <cstdint>
#include <string>

#include "kernels/kernels.h"

namespace nunspark::internal {

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 0;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// The shapes that matmul_amx.inc gives its tiles for products over `words` times four inputs.
constexpr TileConfig TileConfigOf(int words) {
  TileConfig config{.palette = 1};
  for (int i = 0; i < 8; ++i) {
    const bool is_x = i == 4 || i == 5, is_codes = i >= 6;
    config.rows[i] = static_cast<uint8_t>(is_codes ? words : 16);
    config.row_bytes[i] = static_cast<uint16_t>(is_x ? 4 * words : 64);
  }
  return config;
}

// The table of AVX-512 and AMX, made of that of AVX-512 with VNNI. Whether it can be run here is asked below.
const KernelTable& AmxTable(const KernelTable& vnni);

struct AmxChoice {
  const KernelTable* table = nullptr;  // null: not here
  std::string trouble;                 // why, where the processor has AMX
};

// Asks the processor, then the system for permission to use tiles in all threads of this process, then multiplies once
// in both ways and compares. vnni: null where the processor lacks that table.
AmxChoice ChooseAmx(const KernelTable* vnni);

// Empty if both tables give the same products of codes, otherwise what differs.
std::string DifferenceOfCodes(const KernelTable& table, const KernelTable& reference);

// What matmul_codes needs beside the scratch of all tables, in floats.
int64_t AmxScratchFloats(const WeightMatrix& w, int64_t rows);
// That scratch.
int64_t VectorScratchFloats(const WeightMatrix& w, int64_t rows);

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_AMX_H_
