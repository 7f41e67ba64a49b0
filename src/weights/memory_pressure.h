// Whether the system runs short of memory, by its own account.
#ifndef NUNSPARK_WEIGHTS_MEMORY_PRESSURE_H_
#define NUNSPARK_WEIGHTS_MEMORY_PRESSURE_H_

#include <cstdint>
#include <string>

namespace nunspark {

// Reads what Linux tells, of the process's control group (version 2) where there is one: how often it was throttled or
// met its limit (memory.events), and how long tasks waited for memory (memory.pressure; else the whole machine's,
// /proc/pressure/memory). Where the kernel tells neither, there is never pressure. Not thread-safe.
class MemoryPressure {
 public:
  // `root` stands for "/" in tests.
  explicit MemoryPressure(const std::string& root = "");

  // Since the last call, or in the last ten seconds. A few small reads.
  bool Sample();

 private:
  std::string events_path_, pressure_path_;
  int64_t events_ = -1;  // throttled and limited, so far
};

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_MEMORY_PRESSURE_H_
