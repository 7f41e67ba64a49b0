#include "models/arch/gemma4.h"

namespace nunspark {
namespace {

constexpr std::string_view kGguf[] = {"gemma4"};

}  // namespace

NUNSPARK_ARCH(gemma4_text){
    .name = "gemma4_text",
    .gguf = kGguf,
    .authors_code = "transformers, models/gemma4/modeling_gemma4.py",
    .config = arch::kGemma4Config,
    .tensors = arch::kGemma4Tensors,
    .experts = arch::kGemma4Experts,
    .ignored = arch::kGemma4Ignored,
    .block = arch::kGemma4Block,
};
static_assert(Valid(kArch_gemma4_text));

}  // namespace nunspark
