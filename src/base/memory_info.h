// What the system says about memory: the machine, the control group, this process. All from /proc and /sys.
//
// Every function takes the folder that stands for "/" (tests give one of their own). Nothing here fails: what cannot be
// read or makes no sense is 0, "unknown".
#ifndef NUNSPARK_BASE_MEMORY_INFO_H_
#define NUNSPARK_BASE_MEMORY_INFO_H_

#include <cstdint>
#include <string>

namespace nunspark {

struct MachineMemory {
  int64_t total_bytes = 0;      // MemTotal
  int64_t available_bytes = 0;  // MemAvailable: what programs can still take before the system swaps
};
MachineMemory ReadMachineMemory(const std::string& root = "");

// The smallest limit over this process's memory control group and all groups above it, version 1 or 2 (there
// memory.high counts as well: beyond it the kernel throttles). 0 when there is no limit.
int64_t ReadCgroupLimit(const std::string& root = "");

struct ProcessMemory {
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
};
ProcessMemory ReadProcessMemory(const std::string& root = "");

// RLIMIT_AS, 0 when unlimited.
int64_t AddressSpaceLimit();

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MEMORY_INFO_H_
