// Which CPUs this process should compute on, and how many threads of computation can really run at once.
#ifndef NUNSPARK_BASE_CPU_COUNT_H_
#define NUNSPARK_BASE_CPU_COUNT_H_

#include <string>
#include <vector>

namespace nunspark {

// The CPUs that this process may run on (its affinity mask), ascending, at least one.
std::vector<int> AllowedCpus();

// Those of `allowed` that are worth a thread of computation, ascending, at least one: the fast cores of a machine that
// has slow ones too, and one hardware thread of each core. A product's threads wait for the slowest of them, and one
// thread a core reaches the memory limit. `root` stands for "/" in tests.
std::vector<int> ComputeCpus(const std::vector<int>& allowed, const std::string& root = "");

// What the CPU quotas of the control groups (any ancestor, version 1 or 2) pay for, in CPUs; infinity without a quota.
double QuotaCpus(const std::string& root = "");

// Threads of computation unless the user says how many: one for each of ComputeCpus, but no more than the quota pays
// for in full, at least 1. More threads than that would all be stopped for the rest of each period, in the middle of a
// product.
//
// The threads that read from the drive are not counted: they sleep in the kernel nearly all the time (12 ms of a CPU
// for each GB, docs/measurements/read-queue.md), and while they have work the computing threads mostly wait for it.
int DefaultThreads(const std::vector<int>& allowed = AllowedCpus(), const std::string& root = "");

}  // namespace nunspark

#endif  // NUNSPARK_BASE_CPU_COUNT_H_
