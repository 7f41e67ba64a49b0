// AMX's tiles in plain C++, for tests: palette 1 and the instructions as Intel's manual describes them. What a
// processor answers with an exception fails a CHECK. Each thread has tiles of its own.
#ifndef NUNSPARK_KERNELS_AMX_MODEL_H_
#define NUNSPARK_KERNELS_AMX_MODEL_H_

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/amx.h"

namespace nunspark::internal {

class TileModel {
 public:
  void Configure(const TileConfig& config) {
    CHECK(config.palette == 1 && config.start_row == 0);
    for (const uint8_t byte : config.reserved) CHECK(byte == 0);
    for (int i = 0; i < 16; ++i) {
      CHECK(config.rows[i] <= (i < 8 ? 16 : 0) && config.row_bytes[i] <= (i < 8 ? 64 : 0));
      CHECK((config.rows[i] == 0) == (config.row_bytes[i] == 0));
    }
    *this = {};
    config_ = config;
  }
  void Release() { *this = {}; }
  bool IsConfigured() const { return config_.palette != 0; }

  void Zero(int tile) {
    CHECK(IsConfigured() && Rows(tile) > 0);
    tiles_[tile] = {};
  }
  void Load(int tile, const uint8_t* from, int64_t stride) {
    CHECK(IsConfigured() && Rows(tile) > 0 && RowBytes(tile) % 4 == 0);
    tiles_[tile] = {};
    for (int r = 0; r < Rows(tile); ++r) std::memcpy(tiles_[tile].bytes[r], from + r * stride, RowBytes(tile));
  }
  void Store(int tile, uint8_t* to, int64_t stride) const {
    CHECK(IsConfigured() && Rows(tile) > 0 && RowBytes(tile) % 4 == 0);
    for (int r = 0; r < Rows(tile); ++r) std::memcpy(to + r * stride, tiles_[tile].bytes[r], RowBytes(tile));
  }
  // TDPBSUD tile, x, codes: products of signed bytes of x with unsigned ones of codes.
  void Dot(int tile, int x, int codes) {
    CHECK(IsConfigured() && Rows(tile) > 0 && Rows(x) > 0 && Rows(codes) > 0);
    CHECK(tile != x && tile != codes && x != codes && RowBytes(tile) % 4 == 0 && RowBytes(x) % 4 == 0);
    CHECK(RowBytes(tile) == RowBytes(codes) && Rows(tile) == Rows(x));
    CHECK(RowBytes(x) == 4 * static_cast<size_t>(Rows(codes)));
    Tile result{};
    for (int m = 0; m < Rows(tile); ++m) {
      for (size_t n = 0; n < RowBytes(tile); n += 4) {
        uint32_t sum;
        std::memcpy(&sum, tiles_[tile].bytes[m] + n, sizeof sum);
        for (size_t k = 0; k < RowBytes(x); ++k) {
          const int32_t signed_byte = static_cast<int8_t>(tiles_[x].bytes[m][k]);
          sum += static_cast<uint32_t>(signed_byte * int32_t{tiles_[codes].bytes[k / 4][n + k % 4]});
        }
        std::memcpy(result.bytes[m] + n, &sum, sizeof sum);
      }
    }
    tiles_[tile] = result;
  }

 private:
  struct Tile {
    uint8_t bytes[16][64];
  };
  int Rows(int tile) const { return config_.rows[tile]; }
  size_t RowBytes(int tile) const { return config_.row_bytes[tile]; }

  TileConfig config_ = {};
  Tile tiles_[8] = {};
};

inline TileModel& ThisThreadsTiles() {
  static thread_local TileModel tiles;
  return tiles;
}

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_AMX_MODEL_H_
