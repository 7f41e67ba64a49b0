// NgramDrafter: prompt lookup. What followed the last tokens when they came before, follows them again
// (prompt-lookup decoding, Saxena 2023; the adaptive length is the original Nunspark's).
#ifndef NUNSPARK_DECODE_NGRAM_DRAFTER_H_
#define NUNSPARK_DECODE_NGRAM_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "decode/drafter.h"

namespace nunspark {

struct NgramOptions {
  int32_t longest_suffix = 3;
  int32_t most_tokens = 16;    // K
  bool adaptive = true;        // else K always
  int32_t fewest_tokens = 2;   // of an adaptive length
  int32_t reprobe_every = 50;  // proposals while off
};

// Errors: kInvalidArgument for a number below 1.
Status CheckNgramOptions(const NgramOptions& options);

// The tokens that followed the longest suffix of `history`, of at most longest_suffix tokens, where it last came
// before, overlap allowed: at most `most`, fewer at the end of the history, none when it never came.
std::span<const int32_t> FollowingTokens(std::span<const int32_t> history, int32_t longest_suffix, int32_t most);

// The length of one sequence's proposals. It doubles while nearly all is accepted, halves below a quarter, and goes off
// at the floor; while off, every reprobe_every-th proposal is a short probe.
class NgramLength {
 public:
  explicit NgramLength(const NgramOptions& options) : options_(options), length_(options.most_tokens) {
    shortest_ = longest_ = length_;
  }

  // Of the proposal that comes now; 0: none.
  int32_t Next();
  void Observe(int32_t proposed, int32_t accepted);

  int32_t length() const { return length_; }  // 0: off
  int32_t shortest() const { return shortest_; }
  int32_t longest() const { return longest_; }
  int64_t rounds_off() const { return rounds_off_; }
  int64_t probes() const { return probes_; }

 private:
  void Set(int32_t length);

  NgramOptions options_;
  int32_t length_;
  int32_t shortest_, longest_;
  int64_t calls_off_ = 0;
  int64_t rounds_off_ = 0;
  int64_t probes_ = 0;
  bool probing_ = false;
};

class NgramDrafter : public Drafter {
 public:
  NgramDrafter(const NgramOptions& options, int32_t slots)
      : options_(options), lengths_(static_cast<size_t>(slots), NgramLength(options)) {}

  bool WantsHidden() const override { return false; }
  bool DraftsTrees() const override { return false; }
  void Begin(int32_t slot) override { lengths_[static_cast<size_t>(slot)] = NgramLength(options_); }
  int32_t WantedLength(int32_t slot, int32_t most) override;
  Status Propose(std::span<const DraftRequest> requests, const std::atomic<bool>& cancelled) override;
  void Observe(int32_t slot, int32_t proposed, int32_t accepted) override {
    lengths_[static_cast<size_t>(slot)].Observe(proposed, accepted);
  }
  const NgramLength* ngram_length(int32_t slot) const override { return &lengths_[static_cast<size_t>(slot)]; }

 private:
  const NgramOptions options_;
  std::vector<NgramLength> lengths_;  // [slots]
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_NGRAM_DRAFTER_H_
