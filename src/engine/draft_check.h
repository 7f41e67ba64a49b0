// Whether one model can draft for another.
#ifndef NUNSPARK_ENGINE_DRAFT_CHECK_H_
#define NUNSPARK_ENGINE_DRAFT_CHECK_H_

#include "engine/model_files.h"
#include "nunspark/status.h"

namespace nunspark {

// A draft model's tokens have to be the target's: the same text for every id that both have. Vocabularies may differ in
// padding. Models without tokenizers need vocabularies of one size. Errors: kInvalidArgument with the first token that
// differs. REQUIRES: a model that runs alone.
Status CheckDraftModel(const ModelFilesImpl& draft, const ModelFilesImpl& target);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_DRAFT_CHECK_H_
