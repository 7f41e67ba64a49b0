// What each token of a generation took, for plots and long runs: `generate --step-trace`.
#ifndef NUNSPARK_CLI_STEP_TRACE_H_
#define NUNSPARK_CLI_STEP_TRACE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "io/file.h"
#include "nunspark/stats.h"

namespace nunspark::cli {

// A file of JSON lines, one for each token; everything but "token" and "rss_bytes" is what came since the line before,
// the first being that of the prompt. Tokens of one pass (drafts) come together: the first has what the pass took.
class StepTrace {
 public:
  // Creates or truncates the file. Errors: kNotFound, kPermission, kIo.
  static Result<StepTrace> Create(const std::string& path);

  // After each token.
  void Add(const CacheStats& now);

  // Writes all lines so far. Errors: of this and of every earlier write (kResourceExhausted, kIo).
  Status Flush();

 private:
  explicit StepTrace(File file) : file_(std::move(file)) {}

  File file_;
  int64_t bytes_ = 0;  // written
  int64_t tokens_ = 0;
  CacheStats before_;
  std::chrono::steady_clock::time_point before_at_ = std::chrono::steady_clock::now();
  std::string text_;
  Status status_;
};

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_STEP_TRACE_H_
