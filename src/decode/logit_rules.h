// LogitRules: what changes the logits of one sequence before its sampler sees them - penalties, biases, tokens that may
// not come yet or not at all (nunspark/options.h has the order and the formulas).
#ifndef NUNSPARK_DECODE_LOGIT_RULES_H_
#define NUNSPARK_DECODE_LOGIT_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark {

// Errors: kInvalidArgument naming the option, its range and the value; a token outside the vocabulary.
Status CheckLogitRules(const GenerateOptions& options, int64_t vocab_size);

class LogitRules {
 public:
  // `options` and `stop_ids`, the tokens that end the output, must outlive the rules. `room`: tokens that prompt and
  // output may have together, so that Advance allocates nothing.
  LogitRules(const GenerateOptions& options, std::span<const int32_t> stop_ids, std::span<const int32_t> prompt,
             int64_t room, int64_t vocab_size);

  // Whether Apply changes anything for any token.
  bool active() const { return active_; }

  // Bytes of one sequence's rules, for the memory plan.
  static int64_t PlanBytes(int64_t room, int64_t vocab_size) {
    return room * static_cast<int64_t>(sizeof(Seen)) + vocab_size / 8;
  }

  // The logits of the token after those so far, in place. logits [vocab_size].
  void Apply(float* logits);

  // The token that came.
  void Advance(int32_t token);

 private:
  struct Seen {
    int32_t token;
    int32_t count;  // in the output; 0: of the prompt alone
  };

  const GenerateOptions& options_;
  std::span<const int32_t> stop_ids_;
  const int64_t vocab_size_;
  const bool penalties_;
  const bool active_;
  int32_t generated_ = 0;
  std::vector<Seen> seen_;         // by token
  std::vector<uint32_t> allowed_;  // by the constraint
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_LOGIT_RULES_H_
