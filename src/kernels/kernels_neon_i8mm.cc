// The table of 64-bit Arm with dot products of unsigned with signed bytes (optional since 8.2, in every core
// since 8.6). CMakeLists.txt compiles this file for such processors.
#if defined(__aarch64__)
#define NUNSPARK_TABLE I8mmTable
#define NUNSPARK_NEON_NAME "neon-i8mm"
#include <sys/auxv.h>

#include "kernels/kernels_hwy.cc"

#if HWY_ONCE
const nunspark::KernelTable* nunspark::internal::NeonI8mmKernels() {
  // The flags of this file allow the compiler everything of version 8.2.
  constexpr uint64_t kNeeded = HWCAP_ASIMDDP | HWCAP_ATOMICS;
  const bool has = (::getauxval(AT_HWCAP) & kNeeded) == kNeeded && (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return has ? &N_NEON::I8mmTable() : nullptr;
}
#endif
#endif
