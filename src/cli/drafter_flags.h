// The flags of speculative decoding, which every verb that generates shares.
#ifndef NUNSPARK_CLI_DRAFTER_FLAGS_H_
#define NUNSPARK_CLI_DRAFTER_FLAGS_H_

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark::cli {

struct DrafterFlags {
  std::string draft_model, eagle_drafter;
  bool ngram = false, no_ngram_adaptive = false, no_adaptive = false;
  int64_t ngram_longest = 3, tokens = 16, accept_top_k = 1;
  std::string tree;
};

void AddDrafterFlags(CLI::App& verb, DrafterFlags& flags);

// Errors: kInvalidArgument naming the flag.
Result<DrafterOptions> MakeDrafterOptions(const DrafterFlags& flags);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_DRAFTER_FLAGS_H_
