// How numbers are rounded on their way through a model.
#ifndef NUNSPARK_NUMERICS_H_
#define NUNSPARK_NUMERICS_H_

#include <cstdint>

namespace nunspark {

// How activations enter products with weights that are integer codes times scales: as they are, or rounded to integers
// of 16 or 8 bits, with a step for every 32 of them. Weights of other encodings take them as they are.
enum class Numerics : uint8_t { kF32, kI16, kI8 };

// The most precise whose decode rate is within 10 % of the fastest, by docs/measurements/numerics.md. A constant, never
// chosen by machine: the bytes of the output depend on it.
inline constexpr Numerics kDefaultNumerics = Numerics::kI16;

}  // namespace nunspark

#endif  // NUNSPARK_NUMERICS_H_
