// Whether reading ahead pays, by what it brought: passes with it against passes without it.
//
// Plain arithmetic on figures that the cache measures, so that tests need no clock. Not thread-safe.
#ifndef NUNSPARK_WEIGHTS_PREFETCH_GOVERNOR_H_
#define NUNSPARK_WEIGHTS_PREFETCH_GOVERNOR_H_

#include <array>
#include <cstdint>

#include "nunspark/options.h"

namespace nunspark {

// What one pass took.
struct PassFigures {
  int64_t wall_us = 0;
  int64_t stall_us = 0;
  int64_t read = 0;  // pieces ahead of need
  int64_t used = 0;
};

// For passes of one row. kAuto: compares in short blocks, turn by turn with and without, and holds to the better way
// for a while, longer each time the answer stays the same. Off at once where little of what is read ahead is used.
class LookaheadGovernor {
 public:
  explicit LookaheadGovernor(Governed mode) : mode_(mode) {}

  bool on() const { return mode_ == Governed::kOn || (mode_ == Governed::kAuto && on_); }
  void EndPass(const PassFigures& pass);

 private:
  static constexpr int kBlock = 4;     // passes of one way; the first of them still has the other one's traces
  static constexpr int kSamples = 18;  // of each way
  static constexpr int64_t kHoldFirst = 256;
  static constexpr int64_t kHoldMost = 2048;

  struct Way {
    std::array<int64_t, kSamples> wall_us{};
    int samples = 0;
    int64_t wall_sum_us = 0;
    int64_t stall_sum_us = 0;

    void Add(const PassFigures& pass);
    int64_t Median() const;
  };

  bool OnIsBetter() const;
  void Hold(bool on);
  void Measure();

  const Governed mode_;
  bool on_ = true;
  bool measuring_ = true;
  int in_block_ = 0;
  Way with_, without_;
  int64_t held_ = 0;  // passes since the last measurement
  int64_t hold_ = kHoldFirst;
  bool held_on_ = false;
  int64_t read_ = 0, used_ = 0;  // since the last look
};

// For passes of several rows, of which there are few: on while most of what is read ahead is used and there are waits
// to save; else off for some passes, then tried again.
class TemporalGovernor {
 public:
  explicit TemporalGovernor(Governed mode) : mode_(mode) {}

  bool on() const { return mode_ == Governed::kOn || (mode_ == Governed::kAuto && pause_ == 0); }
  void EndPass(const PassFigures& pass);

 private:
  const Governed mode_;
  int pause_ = 0;
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_PREFETCH_GOVERNOR_H_
