#include "weights/prefetch_governor.h"

#include <algorithm>

namespace nunspark {
namespace {

// Waits of less than this share of the time are not worth reading ahead for.
constexpr int64_t kStallPercent = 3;

// Reading ahead stays on when it is faster by this much at least: what is measured is noisy, and off is never wrong.
constexpr int64_t kGainPercent = 1;

// Less than this share used: reads that were not needed are in the way of those that are.
constexpr int64_t kUsedPercent = 30;
constexpr int64_t kTemporalUsedPercent = 80;  // a prompt keeps the drive busy anyway

// Fewer pieces say nothing.
constexpr int64_t kPieces = 64;
constexpr int64_t kTemporalPieces = 16;

constexpr int kPausePasses = 8;

}  // namespace

void LookaheadGovernor::EndPass(const PassFigures& pass) {
  if (mode_ != Governed::kAuto) return;
  if (on_) {
    read_ += pass.read;
    used_ += pass.used;
    if (read_ >= kPieces) {
      const bool useless = used_ * 100 < read_ * kUsedPercent;
      read_ = used_ = 0;
      if (useless) return Hold(false);
    }
  }
  if (!measuring_) {
    if (++held_ >= hold_) Measure();
    return;
  }
  if (in_block_ > 0) (on_ ? with_ : without_).Add(pass);
  if (++in_block_ < kBlock) return;
  in_block_ = 0;
  on_ = !on_;
  if (with_.samples == kSamples && without_.samples == kSamples) Hold(OnIsBetter());
}

bool LookaheadGovernor::OnIsBetter() const {
  if (without_.stall_sum_us * 100 < without_.wall_sum_us * kStallPercent) return false;
  return with_.Median() * 100 <= without_.Median() * (100 - kGainPercent);
}

void LookaheadGovernor::Hold(bool on) {
  hold_ = on == held_on_ ? std::min(2 * hold_, kHoldMost) : kHoldFirst;
  held_on_ = on_ = on;
  measuring_ = false;
  held_ = 0;
}

void LookaheadGovernor::Measure() {
  measuring_ = true;
  in_block_ = 0;
  with_ = without_ = Way();
  read_ = used_ = 0;
}

void LookaheadGovernor::Way::Add(const PassFigures& pass) {
  if (samples == kSamples) return;
  wall_us[static_cast<size_t>(samples++)] = pass.wall_us;
  wall_sum_us += pass.wall_us;
  stall_sum_us += pass.stall_us;
}

int64_t LookaheadGovernor::Way::Median() const {
  std::array<int64_t, kSamples> sorted = wall_us;
  std::nth_element(sorted.begin(), sorted.begin() + samples / 2, sorted.begin() + samples);
  return sorted[static_cast<size_t>(samples / 2)];
}

void TemporalGovernor::EndPass(const PassFigures& pass) {
  if (mode_ != Governed::kAuto) return;
  if (pause_ > 0) {
    --pause_;
    return;
  }
  const bool useless = pass.read >= kTemporalPieces && pass.used * 100 < pass.read * kTemporalUsedPercent;
  const bool idle = pass.stall_us * 100 < pass.wall_us * kStallPercent && pass.read > 0;
  if (useless || idle) pause_ = kPausePasses;
}

}  // namespace nunspark
