// A bound on what one call may do, so that a hostile vocabulary, pattern or character map cannot make it quadratic.
#ifndef NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_
#define NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_

#include <cstdint>

#include "nunspark/status.h"

namespace nunspark::text {

// Counts steps: of a walk through a trie, of backtracking, several for a byte that a text grows by. Real files take a
// few for each byte of the text; what is linear anyway is not counted.
class WorkLimit {
 public:
  // A quarter of a second or so; a second more for 4 MB of text.
  explicit WorkLimit(uint64_t text_bytes = 0) : steps_left_((uint64_t{1} << 27) + 256 * text_bytes) {}
  static WorkLimit OfSteps(uint64_t steps) {
    WorkLimit limit;
    limit.steps_left_ = steps;
    return limit;
  }

  // Errors: kResourceExhausted once more than the limit has been spent.
  Status Spend(uint64_t steps) {
    if (steps <= steps_left_) {
      steps_left_ -= steps;
      return Status();
    }
    steps_left_ = 0;
    return Exceeded();
  }

  // Spends for a text that becomes `new_bytes` long. It may shrink.
  Status Grow(uint64_t old_bytes, uint64_t new_bytes) {
    return new_bytes <= old_bytes ? Status() : Spend(kStepsPerByte * (new_bytes - old_bytes));
  }

 private:
  // Memory that is touched for the first time is slow.
  static constexpr uint64_t kStepsPerByte = 16;

  static Status Exceeded() {
    return ResourceExhaustedError(
        "the text takes too much work: the tokenizer file has tokens, patterns or replacements that no real one has");
  }

  uint64_t steps_left_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_
