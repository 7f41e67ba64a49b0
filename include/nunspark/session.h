// Session: one sequence at a time, processed by the caller's thread. What a generation gives.
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

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm of the probability that the model gives it, before penalties and temperature
};

// A generated token.
struct GeneratedToken {
  int32_t token = 0;
  float logprob = 0;                        // where GenerateOptions::logprobs >= 0
  std::span<const TokenLogprob> best = {};  // that many, the most probable first; borrowed
};

// What drafts did for a run.
struct DraftStats {
  int64_t passes = 0;         // of the target after the prompt
  int64_t tokens = 0;         // generated, the first and EOS included
  int64_t proposed = 0;       // drafted tokens that were checked
  int64_t accepted = 0;       // of them
  int64_t off_path = 0;       // of the accepted, that the target would not have picked
  int64_t near_tie_rows = 0;  // rows checked whose two largest logits are less than 0.5 apart
  int32_t shortest = 0;       // lengths that were drafted
  int32_t longest = 0;
  int64_t plain_passes = 0;  // passes without a draft
  int64_t rounds_off = 0;    // prompt lookup, while nothing was looked up
  int64_t probes = 0;        // of it, since then
};

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
  int64_t cached_tokens = 0;  // of the prompt, whose keys and values were there already
  DraftStats drafts{};
  std::vector<float> logprobs{};              // [ids], where they were asked for
  std::vector<TokenLogprob> best_logprobs{};  // [ids, GenerateOptions::logprobs]
};

// One generation.
struct SequenceRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options{};
};

// Used by one thread at a time. Engine must outlive it.
class Session {
 public:
  virtual ~Session() = default;

  // Processes `tokens` as a new sequence (what was stored before is forgotten) and hands out the logits of every one.
  // Errors: kInvalidArgument for an empty or too long prompt or an id outside the vocabulary; those of the reads.
  virtual Status Logits(std::span<const int32_t> tokens, const LogitsCallback& callback) = 0;

  // Processes one more token of the sequence of Logits. Errors: as above.
  virtual Status Append(int32_t token, const LogitsCallback& callback) = 0;

  // Processes `prompt` and generates; no sequence is left. Errors: as above, and when prompt + max_tokens exceed the
  // context.
  virtual Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                          const TokenCallback& on_token, const PromptCallback& on_prompt = {}) = 0;

  // Makes the running call end soon with kCancelled; when none is running, the next one. Thread-safe and
  // async-signal-safe.
  virtual void Cancel() = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_SESSION_H_
