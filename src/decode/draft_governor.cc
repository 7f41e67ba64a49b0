#include "decode/draft_governor.h"

#include <algorithm>
#include <array>
#include <span>

namespace nunspark {
namespace {

// Of a proposal's weight after each further one.
constexpr double kFading = 0.93;

// Share of a new measurement in a running mean: steps differ by what is in the cache.
constexpr double kNewShare = 0.2;

// A single pass may be held up by anything; it counts at most as so many usual ones.
constexpr double kMostOutlier = 3;

// Trials may cost this share of the time, and at first so many plain passes.
constexpr double kTrialShare = 0.015;
constexpr double kFirstTrials = 1.0;

// A draft has to promise this much more than plain decoding.
constexpr double kMargin = 1.02;

// The plain pass is measured at first, and again after so many passes with drafts, since its cost grows with the
// context.
constexpr int64_t kFirstPlain = 2;
constexpr int64_t kPlainAgain = 100;

// Passes until a draft is tried again where drafting did not pay: twice as many each time.
constexpr int64_t kFirstPause = 16;
constexpr int64_t kLongestPause = 512;

// Of the first draft, when nothing is known of its cost.
constexpr int32_t kFirstLength = 4;

// What a row more is assumed to cost, as a share of a plain pass, before anything is known.
constexpr double kRowShare = 0.1;

constexpr std::array<int32_t, 12> kLengths = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

}  // namespace

void AcceptanceRate::Observe(int32_t proposed, int32_t accepted) {
  right_ = right_ * kFading + accepted;
  wrong_ = wrong_ * kFading + (accepted < proposed ? 1 : 0);
}

double AcceptanceRate::TokensPerPass(int32_t length) const {
  double tokens = 1, reached = 1;
  for (int32_t i = 0; i < length; ++i) tokens += reached *= rate();
  return tokens;
}

bool DraftGovernor::Measured(int64_t rows) const {
  return rows < std::ssize(costs_) && costs_[static_cast<size_t>(rows)].passes > 0;
}

// Between measured widths on the line through them; beyond them by the last slope.
double DraftGovernor::PassSeconds(int64_t rows) const {
  int64_t below = 0, below_that = 0, above = 0;
  for (int64_t r = 1; r < std::ssize(costs_); ++r) {
    if (!Measured(r)) continue;
    if (r > rows) {
      above = r;
      break;
    }
    below_that = below;
    below = r;
  }
  const auto seconds = [this](int64_t r) { return costs_[static_cast<size_t>(r)].seconds; };
  if (below == rows) return seconds(rows);
  if (below == 0) return above == 0 ? 0 : seconds(above);
  if (above > 0) {
    const double share = static_cast<double>(rows - below) / static_cast<double>(above - below);
    return seconds(below) + share * (seconds(above) - seconds(below));
  }
  const double slope =
      below_that > 0 ? std::max(0.0, (seconds(below) - seconds(below_that)) / static_cast<double>(below - below_that))
                     : kRowShare * seconds(below);
  return seconds(below) + slope * static_cast<double>(rows - below);
}

int32_t DraftGovernor::Length(int32_t sequences, const AcceptanceRate& rate) {
  if (!Measured(sequences) || costs_[static_cast<size_t>(sequences)].passes < kFirstPlain) return 0;
  if (passes_ - costs_[static_cast<size_t>(sequences)].measured >= kPlainAgain) return 0;
  const double plain_s = PassSeconds(sequences);
  // Whatever the figures promise: what drafts have cost so far decides.
  if (lost_s_ >= kTrialShare * elapsed_s_ + kFirstTrials * plain_s) return 0;
  int32_t best = 0;
  double best_rate = sequences / plain_s * kMargin;
  for (const int32_t length :
       tree_nodes_ > 0 ? std::span<const int32_t>(&most_, 1) : std::span<const int32_t>(kLengths)) {
    if (length > most_) break;
    // Other widths are guessed from those that are known, the drafter's time not at all.
    if (steps_ == 0 && tree_nodes_ == 0 && length > kFirstLength) break;
    const double seconds = PassSeconds(sequences * Rows(length)) + DraftSeconds(length);
    const double tokens_rate = sequences * rate.TokensPerPass(length) / seconds;
    if (tokens_rate <= best_rate) continue;
    best = length;
    best_rate = tokens_rate;
  }
  if (best > 0) {
    pause_ = kFirstPause / 2;
    return best;
  }
  // Acceptance and costs change with the text and the cache.
  if (passes_ < next_trial_) return 0;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_trial_ = passes_ + pause_;
  return tree_nodes_ > 0 ? most_ : std::min(most_, 2);
}

void DraftGovernor::Record(const Pass& pass) {
  ++passes_;
  const size_t rows = static_cast<size_t>(pass.rows);
  if (costs_.size() <= rows) costs_.resize(rows + 1);
  Cost& cost = costs_[rows];
  const double seconds = cost.passes > 0 ? std::min(pass.pass_s, kMostOutlier * cost.seconds) : pass.pass_s;
  // A first pass may be slow for being the first.
  cost.seconds = cost.passes == 0   ? seconds
                 : cost.passes == 1 ? std::min(cost.seconds, seconds)
                                    : cost.seconds + kNewShare * (seconds - cost.seconds);
  ++cost.passes;
  cost.measured = passes_;
  elapsed_s_ += pass.pass_s + pass.draft_s;
  if (pass.steps > 0) {
    const double step_s = pass.draft_s / pass.steps;
    step_s_ = steps_ == 0 ? step_s : step_s_ + kNewShare * (std::min(step_s, kMostOutlier * step_s_) - step_s_);
    ++steps_;
  }
  if (pass.rows == pass.sequences && pass.steps == 0) return;
  const double plain_s = PassSeconds(pass.sequences);
  lost_s_ += pass.pass_s + pass.draft_s - pass.tokens * plain_s / pass.sequences;
  // Gains do not pay for losses to come without end.
  lost_s_ = std::max(lost_s_, -kTrialShare * elapsed_s_);
}

}  // namespace nunspark
