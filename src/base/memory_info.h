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

// The memory control group of this process and all groups above it, version 1 or 2.
struct CgroupMemory {
  // The smallest limit (in version 2 memory.high counts as well: beyond it the kernel throttles). 0 when there is none.
  int64_t limit_bytes = 0;
  // What the limits leave to this process in all: the smallest over the groups of the limit less what others in the
  // group hold and the kernel cannot take back. At least 1 where there is a limit, else 0.
  int64_t share_bytes = 0;
};
// `own_bytes`: anonymous memory of this process, part of what the groups use.
CgroupMemory ReadCgroupMemory(int64_t own_bytes, const std::string& root = "");

struct ProcessMemory {
  int64_t resident_bytes = 0;
  int64_t anonymous_bytes = 0;  // of those: not pages of a file
  int64_t virtual_bytes = 0;
};
ProcessMemory ReadProcessMemory(const std::string& root = "");

// RLIMIT_AS, 0 when unlimited.
int64_t AddressSpaceLimit();

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MEMORY_INFO_H_
