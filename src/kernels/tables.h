// The tables that this build holds, one per instruction set; kernels.cc chooses among those the processor can run.
#ifndef NUNSPARK_KERNELS_TABLES_H_
#define NUNSPARK_KERNELS_TABLES_H_

#include <vector>

#include "kernels/kernels.h"

namespace nunspark::internal {

// Portable C++, the definition of all others.
const KernelTable& ScalarKernels();

// Highway's tables that this processor can run, best first.
std::vector<const KernelTable*> VectorKernels();

// On 64-bit Arm, where this processor has the extension; null otherwise.
const KernelTable* NeonDotprodKernels();
const KernelTable* NeonI8mmKernels();

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_TABLES_H_
