// A progress bar with rate and time left: on stderr, only on a terminal, only once the work has taken two seconds.
#ifndef NUNSPARK_CLI_PROGRESS_H_
#define NUNSPARK_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace nunspark::cli {

enum class ProgressUnit { kBytes, kTokens, kPrompts };

class Progress {
 public:
  Progress(std::string label, ProgressUnit unit);
  ~Progress() { Clear(); }

  // Cheap; draws at most ten times a second.
  void Update(int64_t done, int64_t total);

  // Takes the bar off the screen.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  ProgressUnit unit_;
  bool terminal_;
  bool drawn_ = false;
  int64_t first_done_ = -1;  // what an earlier run had done counts for no rate
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_{};
};

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_PROGRESS_H_
