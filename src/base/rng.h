// Keyed random numbers: a pure function of its key, so that speculation, batching and threads cannot change a draw.
#ifndef NUNSPARK_BASE_RNG_H_
#define NUNSPARK_BASE_RNG_H_

#include <array>
#include <cstdint>

namespace nunspark {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011).
inline std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// What one draw is for.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t choice = 0;    // index of the answer within its request
  uint32_t position = 0;  // of the token that is drawn
};

// Uniform in (0, 1), never 0 or 1, for item `item` of a draw.
inline double KeyedUniform(const DrawKey& key, uint32_t item) {
  const auto bits = Philox({key.position, key.choice, item, 0},
                           {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  const uint64_t mantissa = (uint64_t{bits[0]} << 32 | bits[1]) >> 12;  // 52 bits
  return (static_cast<double>(mantissa) + 0.5) * 0x1p-52;
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_RNG_H_
