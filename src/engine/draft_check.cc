#include "engine/draft_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/tokenizer/tokenizer.h"

namespace nunspark {

Status CheckDraftModel(const ModelFilesImpl& draft, const ModelFilesImpl& target) {
  const text::Tokenizer* const of_draft = draft.tokenizer();
  const text::Tokenizer* const of_target = target.tokenizer();
  if (of_draft == nullptr || of_target == nullptr) {
    if (draft.vocab_size() == target.vocab_size()) return Status();
    return InvalidArgumentError(fmt::format("{}: it has {} tokens, {} has {}, and there are no tokenizers to compare",
                                            draft.folder(), draft.vocab_size(), target.folder(), target.vocab_size()));
  }
  const text::TokenId shared = std::min(of_draft->vocab_size(), of_target->vocab_size());
  for (text::TokenId id = 0; id < shared; ++id) {
    const std::string_view a = of_draft->TokenText(id), b = of_target->TokenText(id);
    // An id that only one of them names is padding of the other.
    if (a == b || a.data() == nullptr || b.data() == nullptr) continue;
    return InvalidArgumentError(fmt::format(
        "{}: its tokenizer is another one than that of {}: token {} is '{}' and '{}'; take a draft model of "
        "the same family",
        draft.folder(), target.folder(), id, a, b));
  }
  return Status();
}

}  // namespace nunspark
