// generate --batch: a file of prompts, many at a time, one line of JSON for each as it is done.
#ifndef NUNSPARK_CLI_GENERATE_BATCH_H_
#define NUNSPARK_CLI_GENERATE_BATCH_H_

#include <cstdint>
#include <string>

#include "cli/sampling_flags.h"
#include "nunspark/engine.h"
#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark::cli {

struct BatchJob {
  std::string file;      // JSON lines, see docs/batch.md
  std::string out;       // results are added to it; empty: standard output
  int64_t parallel = 8;  // prompts at once
  std::string system;    // system message of lines that have none
  bool chat_template = true;
  TextOptions defaults;  // of lines that do not say otherwise
};

// Runs what `out` has no result of yet. Returns the exit code: 1 when lines failed, 130 when stopped.
// Errors: kInvalidArgument for files that do not belong together; kIo when the results cannot be written.
Result<int> RunBatch(const ModelFiles& files, EngineOptions options, const BatchJob& job);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_GENERATE_BATCH_H_
