#include "models/arch/gemma3.h"

namespace nunspark {
namespace {
constexpr std::string_view kGguf[] = {"gemma3"};
}  // namespace

NUNSPARK_ARCH(gemma3_text){
    .name = "gemma3_text",
    .gguf = kGguf,
    .authors_code = "transformers, models/gemma3/modeling_gemma3.py",
    .config = arch::kGemma3Config,
    .tensors = arch::kGemma3Tensors,
    .ignored = arch::kIgnoredTowers,
    .block = arch::kGemma3Block,
};
static_assert(Valid(kArch_gemma3_text));

}  // namespace nunspark
