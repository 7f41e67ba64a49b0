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

#include "decode/logit_rules.h"
#include "decode/sampler.h"
#include "nunspark/options.h"
#include "nunspark/session.h"
#include "nunspark/status.h"

namespace nunspark {

// Errors: kInvalidArgument for sampling options, max_tokens and the like out of range.
Status CheckGenerateOptions(const GenerateOptions& options, int64_t vocab_size);

// Errors: kInvalidArgument for no token at all, or an id outside the vocabulary.
Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size);

// Errors: kInvalidArgument when a prompt and the tokens to generate need more positions than `context`. The last token
// generated is not processed, so it needs none.
Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context);

// Whether `token` ends an output instead of being part of its text. `model_ends`: ModelFiles::stop_ids.
bool EndsText(const GenerateOptions& options, std::span<const int32_t> model_ends, int32_t token);

class SequenceRun {
 public:
  // Starts the clock. `stop_ids` and `scratch` must outlive the run; scratch may be shared by the runs of one thread.
  // `bytes_read`: the drive's bytes so far, here and below. REQUIRES: options passed CheckGenerateOptions.
  SequenceRun(std::span<const int32_t> prompt, const GenerateOptions& options, std::span<const int32_t> stop_ids,
              int64_t vocab_size, SamplerScratch& scratch, int64_t bytes_read);
  SequenceRun(SequenceRun&&) = delete;

  // One pass may give several tokens: each is chosen from its row of logits [vocab_size], after those before it, and
  // taken. What is chosen may be replaced by another token before it is taken.
  int32_t Choose(const float* logits);
  void Take(int32_t token, const float* logits);

  // The tokens taken become part of the output, one after the other, until the sequence ends; false when it does.
  // Those after its end are dropped. `wanted`: what the caller's callback says to each, called once.
  template <typename Wanted>
  bool Accept(int64_t bytes_read, const Wanted& wanted) {
    for (size_t i = 0; i < taken_.size(); ++i) {
      Keep(taken_[i], bytes_read);
      if (!GoesOn(wanted(Generated()))) return false;
    }
    taken_.clear();
    return true;
  }

  void Cancel() { result_.finish_reason = FinishReason::kCancelled; }

  // The prompt is done as far as `tokens` by what was stored before.
  void Cached(int64_t tokens) { result_.cached_tokens = tokens; }

  const SamplingOptions& sampling() const { return options_.sampling; }
  // Whether no token may be taken but the one that was chosen.
  bool strict() const { return options_.constraint != nullptr || options_.token_override != nullptr; }
  int64_t prompt_tokens() const { return result_.prompt_tokens; }
  std::span<const int32_t> taken() const { return taken_; }
  int64_t left() const { return options_.max_tokens - std::ssize(result_.ids) - std::ssize(taken_); }
  DraftStats& drafts() { return result_.drafts; }

  // What came out, also of a run that was cancelled on its way. The run is spent afterwards.
  GenerateResult Finish(int64_t bytes_read);

  // Bytes of a run of `room` tokens, prompt and output, for the memory plan.
  static int64_t PlanBytes(int64_t room, int64_t vocab_size);

 private:
  using Clock = std::chrono::steady_clock;
  // When each token was known, and the drive's bytes until then.
  struct Moment {
    Clock::time_point time;
    int64_t bytes_read = 0;
  };

  void Keep(int32_t token, int64_t bytes_read);
  bool GoesOn(bool wanted);
  GeneratedToken Generated() const;

  const GenerateOptions options_;
  std::span<const int32_t> stop_ids_;
  const int64_t vocab_size_;
  SamplerScratch& scratch_;
  LogitRules rules_;
  Sampler sampler_;
  GenerateResult result_;
  std::vector<int32_t> taken_;
  int64_t bytes_at_start_;
  Clock::time_point start_;
  std::vector<Moment> moments_;
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_SEQUENCE_RUN_H_
