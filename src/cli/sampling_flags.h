// How tokens are picked and where a text ends: flags of the verbs that generate.
#ifndef NUNSPARK_CLI_SAMPLING_FLAGS_H_
#define NUNSPARK_CLI_SAMPLING_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/text_options.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark::cli {

struct SamplingFlags {
  int64_t max_tokens = 32, min_tokens = 0, logprobs = -1;
  double temperature = 0;
  int32_t top_k = 0;
  double top_p = 1, min_p = 0, typical_p = 1;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::string logit_bias;
  std::string seed = "0";
  std::vector<std::string> stops;
  std::string stop_ids;
  bool ignore_eos = false;
};

void AddSamplingFlags(CLI::App& verb, SamplingFlags& flags);

// Errors: kInvalidArgument naming the flag. Ranges are checked by the engine.
Result<TextOptions> MakeTextOptions(const SamplingFlags& flags);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_SAMPLING_FLAGS_H_
