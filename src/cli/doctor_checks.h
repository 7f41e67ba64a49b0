// What `nunspark doctor` finds out about the machine: each finding with what to do about it.
#ifndef NUNSPARK_CLI_DOCTOR_CHECKS_H_
#define NUNSPARK_CLI_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/system_info.h"
#include "io/drive_sweep.h"
#include "io/file_system.h"

namespace nunspark::cli {

// kProblem: prevents running.
enum class Level : uint8_t { kGood, kHint, kWarning, kProblem };
std::string_view LevelName(Level level);

struct Finding {
  Level level = Level::kGood;
  std::string topic;
  std::string text;
  std::string remedy;  // "nothing to do" where all is well
};

// About the machine as a whole. `root` stands for "/" in tests, except for what only a system call tells.
std::vector<Finding> CheckMachine(const std::string& root = "");

Finding CheckSwap(const SwapInfo& swap);
Finding CheckLocks(const LockLimits& limits);
Finding CheckHugePages(const std::string& root);
Finding CheckClock(const CpuClock& clock);
Finding CheckHeat(const Heat& heat, const CpuClock& clock);
Finding CheckFileSystem(const FileSystemInfo& info, const std::string& path);

// How the drive is read, and how fast.
std::vector<Finding> CheckDrive(const DriveSweep& sweep);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_DOCTOR_CHECKS_H_
