// DraftGovernor: how many tokens to draft, so that speculation pays or stays out of the way.
//
// It knows what passes of so many rows cost, what drafting costs, and how often each sequence's drafts are accepted,
// all measured on the run itself, and picks the length with the most tokens per second; none, when plain decoding is
// faster. What it does not know it tries, but only as far as all such trials have cost no more than a small share of
// the time. Used by one thread at a time; changes no token.
#ifndef NUNSPARK_DECODE_DRAFT_GOVERNOR_H_
#define NUNSPARK_DECODE_DRAFT_GOVERNOR_H_

#include <cstdint>
#include <vector>

#include "decode/draft.h"

namespace nunspark {

// How often the next drafted token is right, given that those before it were. Old proposals fade.
class AcceptanceRate {
 public:
  void Observe(int32_t proposed, int32_t accepted);
  double rate() const { return (right_ + kPriorRight) / (right_ + wrong_ + kPriorRight + kPriorWrong); }
  bool known() const { return right_ + wrong_ >= 1; }

  // Tokens that a pass over a chain of `length` drafted ones gives, the target's own included.
  double TokensPerPass(int32_t length) const;

 private:
  static constexpr double kPriorRight = 0.6, kPriorWrong = 0.2;
  double right_ = 0, wrong_ = 0;
};

class DraftGovernor {
 public:
  // `shape`: the longest chain that may be drafted, or a tree, which is drafted whole or not at all.
  explicit DraftGovernor(const TreeShape& shape)
      : most_(shape.depth()), tree_nodes_(shape.chain() ? 0 : shape.nodes()) {}

  // The levels to draft for each of `sequences` sequences that decode together, of mean acceptance `rate`, in the pass
  // that comes now; 0: none.
  int32_t Length(int32_t sequences, const AcceptanceRate& rate);

  // What the pass was: its rows, the tokens it gave, its seconds, and those of drafting before it, `steps` of the
  // drafter one after the other.
  struct Pass {
    int32_t sequences = 1;
    int32_t rows = 1;
    int32_t tokens = 1;
    double pass_s = 0;
    double draft_s = 0;
    int32_t steps = 0;
  };
  void Record(const Pass& pass);

 private:
  struct Cost {
    double seconds = 0;
    int64_t passes = 0;    // measured
    int64_t measured = 0;  // when, in passes
  };

  double PassSeconds(int64_t rows) const;
  double DraftSeconds(int32_t length) const { return step_s_ * length; }
  bool Measured(int64_t rows) const;

  // Of one sequence.
  int64_t Rows(int32_t length) const { return 1 + (tree_nodes_ > 0 && length > 0 ? tree_nodes_ : length); }

  const int32_t most_;
  const int32_t tree_nodes_;
  std::vector<Cost> costs_;  // [rows]
  double step_s_ = 0;        // of the drafter, for one token
  int64_t steps_ = 0;        // measured
  int64_t passes_ = 0;
  int64_t next_trial_ = 0;  // of a draft while plain decoding seems faster
  int64_t pause_ = 0;       // until then
  double elapsed_s_ = 0;
  double lost_s_ = 0;  // against plain decoding, by drafts so far
};

}  // namespace nunspark

#endif  // NUNSPARK_DECODE_DRAFT_GOVERNOR_H_
