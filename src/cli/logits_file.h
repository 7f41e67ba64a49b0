// The safetensors file of the `logits` verb, written row by row: logits [T, V] f32, greedy [N] i32, margin [N] f32.
#ifndef NUNSPARK_CLI_LOGITS_FILE_H_
#define NUNSPARK_CLI_LOGITS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::cli {

// The file appears under its name when Finish succeeds, and not at all otherwise.
class LogitsFile {
 public:
  static Result<LogitsFile> Create(const std::string& path, int64_t tokens, int64_t vocab_size, int64_t greedy);

  // The next `count` rows. REQUIRES: `tokens` rows in all before Finish.
  Status AppendRows(int64_t count, const float* logits);

  // Notes the most probable token of `logits` (lowest id among equals) and its margin; returns it.
  int32_t AddGreedy(const std::vector<float>& logits);

  Status Finish();

 private:
  AtomicFile file_;
  int64_t vocab_size_ = 0;
  std::vector<int32_t> greedy_;
  std::vector<float> margin_;
};

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_LOGITS_FILE_H_
