// How many threads of computation this process can really run at once.
#ifndef NUNSPARK_BASE_CPU_COUNT_H_
#define NUNSPARK_BASE_CPU_COUNT_H_

#include <string>

namespace nunspark {

// The CPUs this process may run on, within the CPU quota of its control groups (any ancestor, version 1 or 2), at
// least 1. `root` stands for "/" in tests.
int DefaultThreads(const std::string& root = "");

}  // namespace nunspark

#endif  // NUNSPARK_BASE_CPU_COUNT_H_
