#include "models/arch/gemma4.h"

namespace nunspark {
namespace {

constexpr std::string_view kAliases[] = {"gemma4_unified"};

}  // namespace

NUNSPARK_ARCH(gemma4){
    .name = "gemma4",
    .aliases = kAliases,
    .authors_code = "transformers, models/gemma4/modeling_gemma4.py",
    .config = arch::kGemma4Config,
    .tensors = arch::kGemma4Tensors,
    .experts = arch::kGemma4Experts,
    .ignored = arch::kGemma4Ignored,
    .block = arch::kGemma4Block,
};
static_assert(Valid(kArch_gemma4));

}  // namespace nunspark
