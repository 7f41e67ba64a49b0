// Sessions: what an Engine processes - one sequence, or several together.
#ifndef NUNSPARK_SESSION_H_
#define NUNSPARK_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nunspark/options.h"
#include "nunspark/status.h"

namespace nunspark {

// Logits [count, vocab_size] of consecutive tokens, the first of which is token `first` of the call; borrowed.
using LogitsCallback = std::function<Status(int64_t first, int64_t count, const float* logits)>;

// Called after each generated token, EOS included. Returning false stops the run (FinishReason::kCancelled).
using TokenCallback = std::function<bool(int32_t token)>;

// Called during the prompt with tokens done so far and in total. Returning false stops the run.
using PromptCallback = std::function<bool(int64_t done, int64_t total)>;

struct GenerateResult {
  std::vector<int32_t> ids;  // generated, the ending EOS included
  FinishReason finish_reason = FinishReason::kLength;
  int64_t prompt_tokens = 0;
  double prompt_s = 0;              // until the prompt was processed
  double first_token_s = 0;         // until the first token was known
  double decode_s = 0;              // from the first token to the last
  double decode_second_half_s = 0;  // from token ids.size() / 2 to the last
  int64_t prompt_bytes_read = 0;    // from the drive
  int64_t decode_bytes_read = 0;
  int64_t decode_second_half_bytes_read = 0;
};

// Used by one thread at a time. Engine must outlive it.
class Session {
 public:
  virtual ~Session() = default;

  // Processes `tokens` as a new sequence (what was stored before is forgotten) and hands out the logits of every one.
  // Errors: kInvalidArgument for an empty or too long prompt or an id outside the vocabulary; those of the reads.
  virtual Status Logits(std::span<const int32_t> tokens, const LogitsCallback& callback) = 0;

  // Processes one more token of the sequence. Errors: as above.
  virtual Status Append(int32_t token, const LogitsCallback& callback) = 0;

  // Processes `prompt` as a new sequence and generates. Errors: as above, and when prompt + max_tokens exceed the
  // context.
  virtual Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                          const TokenCallback& on_token, const PromptCallback& on_prompt = {}) = 0;

  // Makes the running call end soon with kCancelled; when none is running, the next one. Thread-safe and
  // async-signal-safe.
  virtual void Cancel() = 0;
};

// One of several sequences.
struct SequenceRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options{};
};

// Called after each generated token of request `index`, EOS included. Returning false ends that sequence
// (FinishReason::kCancelled); the others go on.
using GroupTokenCallback = std::function<bool(int32_t index, int32_t token)>;

// Sequences that are decoded together: a step reads every weight that it needs once and makes one token of each, so the
// tokens of all come at far less than the sum of their costs. Each sequence gets the very tokens that Session::Generate
// gives it alone. Used by one thread at a time. Engine must outlive it.
class GroupSession {
 public:
  virtual ~GroupSession() = default;

  // Runs all requests, at most EngineOptions::max_sequences; prompts are processed as fast as steps allow, and a
  // sequence that ends leaves the group. Results are in the order of the requests; the times of each count from the
  // call, its bytes are those that all sequences read meanwhile. Errors: kInvalidArgument, with the request's index,
  // for one that Session::Generate would refuse, before anything is run; kResourceExhausted for too many requests;
  // those of the reads, which end all of them.
  virtual Result<std::vector<GenerateResult>> Generate(std::span<const SequenceRequest> requests,
                                                       const GroupTokenCallback& on_token) = 0;

  // Makes the running call end soon, every sequence that has not ended with kCancelled; when none is running, the next
  // one. Thread-safe and async-signal-safe.
  virtual void Cancel() = 0;

  // The same for request `index` alone, from the next step on. REQUIRES: 0 <= index < EngineOptions::max_sequences.
  virtual void CancelOne(int32_t index) = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_SESSION_H_
