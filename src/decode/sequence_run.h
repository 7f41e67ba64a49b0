// SequenceRun: what one generation makes of its logits - samples, keeps the tokens, says when it is over, takes times.
//
// It knows neither model nor keys and values, so that a sequence alone and one among many are the same by construction.
// Used by one thread at a time.
#ifndef NUNSPARK_DECODE_SEQUENCE_RUN_H_
#define NUNSPARK_DECODE_SEQUENCE_RUN_H_

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/sampler.h"
#include "nunspark/options.h"
#include "nunspark/session.h"
#include "nunspark/status.h"

namespace nunspark {

// Errors: kInvalidArgument for sampling options or max_tokens out of range.
Status CheckGenerateOptions(const GenerateOptions& options);

// Errors: kInvalidArgument for no token at all, or an id outside the vocabulary.
Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size);

// Errors: kInvalidArgument when a prompt and the tokens to generate need more positions than `context`. The last token
// generated is not processed, so it needs none.
Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context);

class SequenceRun {
 public:
  // Starts the clock. `stop_ids` and `scratch` must outlive the run; scratch may be shared by the runs of one thread.
  // `bytes_read`: the drive's bytes so far, here and below. REQUIRES: options passed CheckGenerateOptions.
  SequenceRun(int64_t prompt_tokens, const GenerateOptions& options, std::span<const int32_t> stop_ids,
              int64_t vocab_size, SamplerScratch& scratch, int64_t bytes_read);

  // Samples the next token. logits [vocab_size].
  void Pick(const float* logits);

  // The token picked last becomes part of the output; false when the sequence ends with it. `wanted`: what the caller's
  // callback says to it, called once.
  template <typename Wanted>
  bool Accept(int64_t bytes_read, const Wanted& wanted) {
    Keep(bytes_read);
    return GoesOn(wanted(token_));
  }

  void Cancel() { result_.finish_reason = FinishReason::kCancelled; }

  int32_t token() const { return token_; }  // picked last
  int64_t length() const { return result_.prompt_tokens + static_cast<int64_t>(result_.ids.size()); }

  // What came out, also of a run that was cancelled on its way. The run is spent afterwards.
  GenerateResult Finish(int64_t bytes_read);

 private:
  using Clock = std::chrono::steady_clock;

  void Keep(int64_t bytes_read);
  bool GoesOn(bool wanted);

  GenerateOptions options_;
  std::span<const int32_t> stop_ids_;
  Sampler sampler_;
  GenerateResult result_;
  int32_t token_ = -1;
  int64_t bytes_at_start_;
  Clock::time_point start_;
  // When each token was known, and the drive's bytes until then.
  struct Moment {
    Clock::time_point time;
    int64_t bytes_read = 0;
  };
  std::vector<Moment> moments_;
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SEQUENCE_RUN_H_
