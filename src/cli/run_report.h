// What a finished generation reports: the metrics block (contract 1.2) and the JSON object of `generate --json`.
#ifndef NUNSPARK_CLI_RUN_REPORT_H_
#define NUNSPARK_CLI_RUN_REPORT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "nunspark/engine.h"
#include "nunspark/options.h"

namespace nunspark::cli {

class RunClock {
 public:
  void Loaded() { load_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  double load_s() const { return load_s_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double load_s_ = 0;
};

struct RunReport {
  const GenerateResult& result;
  const std::vector<int32_t>& prompt;
  const std::string& text;
  EngineStats stats;
  MemoryPages pages;
  PlanSummary plan;
  double load_s = 0;
  std::string budget_text;
  std::string kv_budget_text;
  int64_t kv_budget_bytes = 0;
  DrafterOptions drafter{};
  bool prefetch = true;
  bool lookahead = false;  // asked for
  int64_t model_bytes = 0;
  std::string isa;
  int threads = 0;
  std::string io;
  std::string warm_start_note;
  std::string numerics;
  std::string model_folder;  // for the drive probe, which reads as the run did
  IoChoice io_choice = IoChoice::kAuto;
  bool direct_io = true;
};

// Tokens per pass of the target; 0 without passes.
double Multiplier(const DraftStats& d);

double Ratio(double a, double b);  // 0 for b = 0

Json IdsJson(const std::vector<int32_t>& ids);

// For each token its id and log probability, and those of the most probable ones.
Json LogprobsJson(const GenerateResult& result);

// "stop", "length", "cancelled".
std::string FinishName(FinishReason reason);

// Both end with what bound the run. The drive is probed for a moment, for comparison.
std::string ReportText(const RunReport& report);
std::string ReportJson(const RunReport& report);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_RUN_REPORT_H_
