// Tables whose products on tiles run without AMX, over a model of it (amx_model.h).
#ifndef NUNSPARK_KERNELS_AMX_TESTING_H_
#define NUNSPARK_KERNELS_AMX_TESTING_H_

#include <vector>

#include "kernels/kernels.h"

namespace nunspark::internal {

// The products of kernels_amx.cc in plain C++, for every machine; and, where there is AVX-512 with VNNI, the very table
// "avx512amx": its tile instructions, which a processor without AMX does not know, are caught (SIGILL) and done by the
// model. A processor with AMX may execute them itself.
std::vector<const KernelTable*> TilesTables();

// Catches the tile instructions from now on, in all threads. Others stay the errors that they are.
void CatchTileInstructions();

}  // namespace nunspark::internal

#endif  // NUNSPARK_KERNELS_AMX_TESTING_H_
