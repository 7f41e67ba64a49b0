// From a conversation to token ids.
#ifndef NUNSPARK_CLI_PROMPT_H_
#define NUNSPARK_CLI_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "nunspark/engine.h"
#include "nunspark/status.h"

namespace nunspark::cli {

// {"role": .., "content": ..}
Json Message(std::string_view role, std::string text);

// The ids of messages through the model's chat template. Where there is none, or it cannot be applied, the last
// message's text as it is, with a note on standard error in the second case. Errors: the tokenizer's.
Result<std::vector<int32_t>> ChatPrompt(const ModelFiles& files, Json::Array messages);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_PROMPT_H_
