// The picture of `bench --plot`.
#ifndef NUNSPARK_CLI_BENCH_PLOT_H_
#define NUNSPARK_CLI_BENCH_PLOT_H_

#include <span>
#include <string>

namespace nunspark::cli {

// One run.
struct BenchBar {
  std::string label;
  double ms_per_token = 0;
  double stall_share = 0;  // of it, waiting for the drive
  double tokens_per_s = 0;
  double read_mb_per_token = 0;
};

// SVG: a bar for each run, as long as a token takes, in a part that computed and one that waited for the drive.
std::string BenchPlot(const std::string& title, const std::string& subtitle, std::span<const BenchBar> bars);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_BENCH_PLOT_H_
