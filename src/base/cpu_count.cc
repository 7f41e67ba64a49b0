#include "base/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "base/cgroup.h"

namespace nunspark {
namespace {

// The mask of the affinity call has room for this many CPUs; larger machines fall back to the count of all.
constexpr int kMaskCpus = 8192;

int AffinityCpus() {
  cpu_set_t* const set = CPU_ALLOC(kMaskCpus);
  if (set == nullptr) return 1;
  const size_t bytes = CPU_ALLOC_SIZE(kMaskCpus);
  const bool known = sched_getaffinity(0, bytes, set) == 0;
  const int cpus = known ? CPU_COUNT_S(bytes, set) : static_cast<int>(std::thread::hardware_concurrency());
  CPU_FREE(set);
  return std::max(1, cpus);
}

// CPUs that the quota of one group allows; infinity without one.
double QuotaCpus(const std::string& folder) {
  double quota = 0, period = 0;
  // Version 2: "<quota> <period>" or "max <period>". Version 1: two files, quota -1 for none.
  std::ifstream both(folder + "/cpu.max");
  if (!(both >> quota >> period)) {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

int DefaultThreads(const std::string& root) {
  double cpus = AffinityCpus();
  for (const std::string& folder : CgroupFolders("cpu", root)) cpus = std::min(cpus, std::ceil(QuotaCpus(folder)));
  return std::max(1, static_cast<int>(cpus));
}

}  // namespace nunspark
