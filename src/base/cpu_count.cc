#include "base/cpu_count.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/cgroup.h"

namespace nunspark {
namespace {

// A core with less than these shares of the largest one's capacity, or of its clock where only that is known, is a slow
// one. Capacity counts work done: phones' middle cores have 60-90 % and join, small cores 20-45 %. A clock says less:
// efficiency cores have 70-78 % of it and about half the speed.
constexpr double kSlowCapacity = 0.5;
constexpr double kSlowClock = 0.8;

// "0-3,8" -> 0 1 2 3 8. Nothing when the text is something else.
std::vector<int> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const char* const end = text.data() + comma;
    int first = 0, last = 0;
    auto [at, error] = std::from_chars(text.data(), end, first);
    last = first;
    if (error == std::errc() && at != end && *at == '-') {
      const auto [after, range_error] = std::from_chars(at + 1, end, last);
      at = after;
      error = range_error;
    }
    if (error != std::errc() || at != end || first < 0 || last < first || last >= CpuMask::kMaxCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return cpus;
}

std::vector<int> ReadCpuList(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return ParseCpuList(line);
}

bool Contains(const std::vector<int>& cpus, int cpu) { return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end(); }

// Those of `cpus` whose number in `file` of their folder is at least `share` of the largest. All of them when one has
// no such file; nothing is left out on a guess.
std::vector<int> LargestBy(const std::vector<int>& cpus, const std::string& folder, const char* file, double share) {
  std::vector<double> values;
  for (const int cpu : cpus) {
    double value = 0;
    if (!(std::ifstream(fmt::format("{}/cpu{}/{}", folder, cpu, file)) >> value)) return cpus;
    values.push_back(value);
  }
  const double largest = *std::max_element(values.begin(), values.end());
  std::vector<int> large;
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (values[i] >= share * largest) large.push_back(cpus[i]);
  }
  return large;
}

std::vector<int> FastCores(const std::vector<int>& allowed, const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu";
  // Intel's mixed processors name their fast cores.
  std::vector<int> fast;
  for (const int cpu : ReadCpuList(root + "/sys/devices/cpu_core/cpus")) {
    if (Contains(allowed, cpu)) fast.push_back(cpu);
  }
  if (!fast.empty()) return fast;
  fast = LargestBy(allowed, folder, "cpu_capacity", kSlowCapacity);
  // Where nobody measured capacities, all are the same.
  if (fast.size() == allowed.size()) fast = LargestBy(allowed, folder, "cpufreq/cpuinfo_max_freq", kSlowClock);
  return fast;
}

// CPUs that the quota of one group allows; infinity without one.
double QuotaOf(const std::string& folder) {
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

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  CpuMask mask;
  if (mask.ReadFrom(0)) {
    for (int cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
      if (mask.Has(cpu)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) {
    const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < all; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> ComputeCpus(const std::vector<int>& allowed, const std::string& root) {
  std::vector<int> taken, chosen;
  for (const int cpu : FastCores(allowed, root)) {
    if (Contains(taken, cpu)) continue;
    chosen.push_back(cpu);
    const std::vector<int> siblings =
        ReadCpuList(fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
    taken.insert(taken.end(), siblings.begin(), siblings.end());
  }
  return chosen;
}

double QuotaCpus(const std::string& root) {
  double cpus = std::numeric_limits<double>::infinity();
  for (const std::string& folder : CgroupFolders("cpu", root)) cpus = std::min(cpus, QuotaOf(folder));
  return cpus;
}

int DefaultThreads(const std::vector<int>& allowed, const std::string& root) {
  const double cpus = std::min(static_cast<double>(ComputeCpus(allowed, root).size()), QuotaCpus(root));
  return std::max(1, static_cast<int>(cpus));
}

}  // namespace nunspark
