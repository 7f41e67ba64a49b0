// A bound on what one call may do, so that a hostile vocabulary, pattern or character map cannot make it quadratic.
#ifndef NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_
#define NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_

#include <cstdint>

#include "nunspark/status.h"

namespace nunspark::text {

// Counts steps: of a walk through a trie, of backtracking, bytes that take the place of others, several for a byte that
// a text grows by. Real files take a few for each byte of the text; what is linear anyway is not counted.
class WorkLimit {
 public:
  // A quarter of a second or so; a second more for 8 MB of text.
  explicit WorkLimit(uint64_t text_bytes = 0)
      : steps_left_((uint64_t{1} << 27) + 128 * text_bytes),
        seconds_left_(2 + 5e-7 * static_cast<double>(text_bytes)) {}
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

  // For work whose steps cannot be counted: processor time, two seconds and one more for 2 MB of text. Errors: as
  // Spend.
  Status SpendSeconds(double seconds) {
    seconds_left_ -= seconds;
    return seconds_left_ >= 0 ? Status() : Exceeded();
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
  double seconds_left_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_WORK_LIMIT_H_
