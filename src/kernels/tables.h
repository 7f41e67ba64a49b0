// The tables that this build holds, one per instruction set; kernels.cc chooses among those the processor can run.
#ifndef NUNSPARK_KERNELS_TABLES_H_
#define NUNSPARK_KERNELS_TABLES_H_

#include <vector>

#include "kernels/kernels.h"

// Kernels are built of many small functions that must keep their vectors in registers, and of short loops with constant
// counts that must disappear.
#define NUNSPARK_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define NUNSPARK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NUNSPARK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace nunspark::internal {

// Portable C++, the definition of all others.
const KernelTable& ScalarKernels();

// Highway's tables that this processor can run, best first.
std::vector<const KernelTable*> VectorKernels();

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_TABLES_H_
