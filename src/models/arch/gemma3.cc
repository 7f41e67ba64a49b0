#include "models/arch/gemma3.h"

namespace nunspark {

NUNSPARK_ARCH(gemma3){
    .name = "gemma3",
    .authors_code = "transformers, models/gemma3/modeling_gemma3.py",
    .config = arch::kGemma3Config,
    .tensors = arch::kGemma3Tensors,
    .ignored = arch::kIgnoredTowers,
    .block = arch::kGemma3Block,
};
static_assert(Valid(kArch_gemma3));

}  // namespace nunspark
