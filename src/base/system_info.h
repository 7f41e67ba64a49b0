// What the system allows and how it is set up, as far as it decides how well a model streams. All from /proc, /sys and
// the process's limits.
//
// Every function takes the folder that stands for "/" (tests give one of their own). Nothing here fails: what cannot be
// read is empty, 0 or -1 as said.
#ifndef NUNSPARK_BASE_SYSTEM_INFO_H_
#define NUNSPARK_BASE_SYSTEM_INFO_H_

#include <cstdint>
#include <string>

namespace nunspark {

struct SwapInfo {
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
};
SwapInfo ReadSwap(const std::string& root = "");

// RLIMIT_MEMLOCK in bytes; -1 when unlimited.
struct LockLimits {
  int64_t soft_bytes = 0;
  int64_t hard_bytes = 0;
};
LockLimits ReadLockLimits();

// /proc/sys/vm/overcommit_memory: 0, 1, or 2 (no more than swap and a share of memory may be promised); -1 = unknown.
int OvercommitMode(const std::string& root = "");

// The chosen word of /sys/kernel/mm/transparent_hugepage/enabled: "always", "madvise", "never"; "" = unknown.
std::string HugePageMode(const std::string& root = "");

struct CpuClock {
  std::string governor;     // of the first CPU; "" = unknown or decided elsewhere
  int64_t current_khz = 0;  // of the fastest CPU now
  int64_t highest_khz = 0;  // that any CPU can reach
  int64_t throttled = -1;   // times that heat slowed a CPU since the system started
};
CpuClock ReadCpuClock(const std::string& root = "");

// The hottest sensor and the temperature at which its part is slowed or shut off, in degrees Celsius; -1 = unknown.
struct Heat {
  double now = -1;
  double limit = -1;
};
Heat ReadHeat(const std::string& root = "");

}  // namespace nunspark

#endif  // NUNSPARK_BASE_SYSTEM_INFO_H_
