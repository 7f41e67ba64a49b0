// What a generation is asked for, as JSON objects spell it: lines of a batch, requests to a server.
#ifndef NUNSPARK_ENGINE_TEXT_OPTIONS_H_
#define NUNSPARK_ENGINE_TEXT_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "decode/sequence_run.h"  // EndsText, for those who show the text
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark {

// What counts of tokens and ids may be at most, far beyond any model.
inline constexpr int64_t kMostTokens = 1 << 28;

struct TextOptions {
  GenerateOptions generate;
  std::vector<std::string> stops;  // strings that end the text
};

// Takes a member of a JSON object: "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
// "presence_penalty", "frequency_penalty", "logit_bias", "seed", "max_tokens", "min_tokens", "logprobs", "stop" (a
// string or a list), "stop_ids" or "stop_token_ids", "ignore_eos". False: it is none of these. Errors: kInvalidArgument
// naming it, what it must be and what it is. Ranges of the numbers are checked where they are used.
Result<bool> TakeTextField(const std::string& name, const Json& value, TextOptions& options);

// Errors: kInvalidArgument for too many stop strings, or too long ones.
Status CheckStops(const std::vector<std::string>& stops);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_TEXT_OPTIONS_H_
