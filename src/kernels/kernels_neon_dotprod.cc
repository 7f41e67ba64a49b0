// The table of 64-bit Arm with signed dot products of bytes (optional since 8.2, in every core since 8.4).
// CMakeLists.txt compiles this file for such processors.
#if defined(__aarch64__)
#define NUNSPARK_TABLE DotprodTable
#define NUNSPARK_NEON_NAME "neon-dotprod"
#include <sys/auxv.h>

#include "kernels/kernels_hwy.cc"

#if HWY_ONCE
const nunspark::KernelTable* nunspark::internal::NeonDotprodKernels() {
  // The flags of this file allow the compiler everything of version 8.2.
  constexpr uint64_t kNeeded = HWCAP_ASIMDDP | HWCAP_ATOMICS;
  const bool has = (::getauxval(AT_HWCAP) & kNeeded) == kNeeded;
  return has ? &N_NEON::DotprodTable() : nullptr;
}
#endif
#endif
